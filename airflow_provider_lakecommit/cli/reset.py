# SPDX-License-Identifier: Apache-2.0
"""The commands of the group ``reset``, which errors name, for a user who has decided.

Each command shows a preview first, and writes only with ``--yes``, as a cycle of its own, which the tables and the
control topic record.
"""

from __future__ import annotations

from argparse import Namespace

from airflow_provider_lakecommit.cli.control_log import source_of
from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, ends_with_preview
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.committer import OtherSections
from airflow_provider_lakecommit.core import (
    RESET_ASSERT,
    RESET_BLOCKED,
    RESET_HARD,
    RESET_KEY,
    RESET_MIGRATE,
    RESET_OFFSETS,
    Budget,
    Decision,
    own_budget,
    spoken,
)
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations import (
    SAME,
    BlockedPart,
    MigrationPreview,
    lane_request,
    migrate_landing,
    migration_preview,
    parse_offsets,
    parse_partition,
    parse_ranges,
    parse_start,
)


def reset_offsets(session: LandingSession, options: Namespace, output: Output) -> int:
    """Start the ledger at ``--from``: ``earliest``, ``latest``, a time or ``topic:partition=offset,…``."""
    from airflow_provider_lakecommit.operations import Way, init_preview
    from airflow_provider_lakecommit.operations.decisions import ledger_init

    if options.delete:
        return _delete_back(session, options, output, f"{spoken(RESET_OFFSETS)} --from {options.start} --delete")
    positions, only = parse_start(options.start), {parse_partition(text) for text in options.partition or ()}
    if only and isinstance(positions, dict):
        raise SpecError("LC8025", "--partition needs a time, earliest or latest: offsets name their partitions")
    way = Way(only=only, fill=lane_request(name=options.fill).name if options.fill else "", again=options.again)
    preview = init_preview(session, positions, way)
    values = {"unknown": preview.unknown or None, "tables": [t.to_dict() for t in preview.tables]}
    if (code := ends_with_preview(options, output, values, preview.lines())) is not None:
        return code
    done = ledger_init.ledger_init(
        session,
        positions,
        way,
        agreed=preview,
        give_up_reported=options.give_up_reported,
        others=OtherSections(options.others or "ask"),
        decision=_decision(session, f"{spoken(RESET_OFFSETS)} --from {options.start}", options),
    )
    output.answer(done)
    return Exit.DONE


def reset_hard(session: LandingSession, options: Namespace, output: Output) -> int:
    return _delete_back(session, options, output, spoken(RESET_HARD))


def _delete_back(session: LandingSession, options: Namespace, output: Output, command: str) -> int:
    from airflow_provider_lakecommit.operations import Way
    from airflow_provider_lakecommit.operations.decisions import delete_back

    start, partitions = getattr(options, "start", None), getattr(options, "partition", None) or ()
    positions = None if start is None else parse_start(start)
    found = delete_back.delete_preview(session, positions, Way(only={parse_partition(text) for text in partitions}))
    if (code := ends_with_preview(options, output, found.to_dict(), found.lines())) is not None:
        return code
    output.answer(delete_back.delete_back(session, found, _decision(session, command, options), fewer=options.fewer))
    return Exit.DONE


def reset_assert(session: LandingSession, options: Namespace, output: Output) -> int:
    """Record what the tables hold, by a snapshot, the control topic or offsets."""
    from airflow_provider_lakecommit.operations.decisions import assertion

    tables = session.landing.tables
    if strange := [t for t in options.table or () if t not in tables]:
        raise SpecError("LC8026", f"--table {strange[0]} is unknown; the landing has {', '.join(tables)}")
    if options.snapshot is not None:
        found = assertion.from_snapshot(session, options.snapshot)
    elif options.from_log:
        found = assertion.from_log(session, options.table)
    else:
        hint = f"--at {options.at!r}: use TOPIC:PARTITION=OFFSET,… for example orders:0=1500, or a JSON object"
        found = assertion.from_offsets(session, parse_offsets(options.at or "", hint), options.table)
    values = {"tables": [t.to_dict() for t in found.tables]}
    if (code := ends_with_preview(options, output, values, found.lines())) is not None:
        return code
    done = assertion.assert_tables(
        session,
        found,
        decision=_decision(session, spoken(RESET_ASSERT), options),
        give_up_reported=options.give_up_reported,
        rows_of_others=OtherSections(options.others or "ask"),
    )
    output.answer({**values, "written": True, **done}, ["written"])
    return Exit.DONE


def reset_blocked(session: LandingSession, options: Namespace, output: Output) -> int:
    """Unblock ranges: read them again, or skip their bad records. Good records are given up only in named ranges. Or
    publish what checks refuse, or drop it from its branch.
    """
    from airflow_provider_lakecommit.operations import blocked_parts, unblock

    if options.release or options.drop:
        return _reset_audit(session, options, output)
    landing, skip, whole = session.landing, options.skip, options.whole
    if whole and not skip:
        raise SpecError("LC8027", "--whole needs --skip: a range that is read again loses no good record")
    budget = (
        None if options.raise_to is None else Budget(max_records=options.raise_to[0], max_ratio=options.raise_to[1])
    )
    if options.retry:
        budget = own_budget(landing.budget, landing.dead_letter_table)
    chosen = None if options.partition is None else {parse_partition(text) for text in options.partition}
    named = None if options.range is None else parse_ranges(options.range)
    parts = blocked_parts(session, chosen, named)
    values = {"blocked": [str(p) for p in parts]}
    if whole and chosen is None and named is None and any(p.good != 0 for p in parts):
        output.answer({"written": False, **values}, map(str, parts))
        output.log("good records are given up only in named ranges: give --range or --partition")
        return Exit.UNCONFIRMED
    lines = (_blocked_text(p, skip=skip, whole=whole) for p in parts)
    if (code := ends_with_preview(options, output, values, lines)) is not None:
        return code
    how = "--skip" if skip else "--retry" if options.retry else "--raise"
    decision = _decision(session, f"{spoken(RESET_BLOCKED)} {how}", options)
    output.answer(
        unblock(session, chosen, ranges=named, raise_to=budget, skip=skip, only_bad=not whole, decision=decision)
    )
    return Exit.DONE


def _reset_audit(session: LandingSession, options: Namespace, output: Output) -> int:
    from airflow_provider_lakecommit.operations import audit_preview, decide_audit

    if options.partition or options.range or options.whole:
        raise SpecError("LC8364", "--release and --drop are about all refused rows: leave out ranges and --whole")
    found = audit_preview(session, drop=options.drop)
    if not found.tables:
        output.answer({"written": False, **found.to_dict()}, found.lines())
        return Exit.DONE
    if (code := ends_with_preview(options, output, found.to_dict(), found.lines())) is not None:
        return code
    decision = _decision(session, f"{spoken(RESET_BLOCKED)} {'--drop' if options.drop else '--release'}", options)
    output.answer({"written": True, **decide_audit(session, found.to_dict(), decision)})
    return Exit.DONE


def _blocked_text(part: BlockedPart, *, skip: bool, whole: bool) -> str:
    if not skip:
        return f"reads again {part}"
    return f"GIVES UP all of {part}" if whole or part.good == 0 else f"GIVES UP the bad records of {part}"


def _decision(session: LandingSession, command: str, options: Namespace) -> Decision:
    return decision_of(command, session.landing.name, options.reason)


def reset_key(session: LandingSession, options: Namespace, output: Output) -> int:
    """Make the rows unique by the key of the spec, or append again."""
    from airflow_provider_lakecommit.operations import change_key, key_preview

    found = key_preview(session)
    if (code := ends_with_preview(options, output, found.to_dict(), found.lines())) is not None:
        return code
    output.answer(
        {"written": True, **change_key(session, found.to_dict(), _decision(session, spoken(RESET_KEY), options))}
    )
    return Exit.DONE


def migrate(session: LandingSession, options: Namespace, output: Output) -> int:
    preview = _migration(session, options, output)
    if (code := ends_with_preview(options, output, preview.to_dict(), preview.lines())) is not None:
        return code
    decision = decision_of(spoken(RESET_MIGRATE), session.landing.name, options.reason)
    output.answer({"written": True, **migrate_landing(session, preview, decision=decision)})
    return Exit.DONE


def _migration(session: LandingSession, options: Namespace, output: Output) -> MigrationPreview:
    old = None
    if options.old is not None:
        # The old cluster's own settings, or those of the new one with other brokers.
        old, _ = source_of(
            None, bootstrap=options.old, topic=None, config_file=options.kafka_config, connection=session.kafka
        )
        output.keep(old)
    elif options.start is None:
        raise SpecError("LC8018", "give a start: --old HOST:PORT, --from same, --from TOPIC:0=OFFSET,… or --from TIME")
    start = options.start if options.start in (None, SAME) else parse_start(options.start)
    if wrong := [text for text in options.topic if not all(text.partition("=")[::2])]:
        raise SpecError("LC8019", f"--topic {wrong[0]!r}: use OLD=NEW")
    return migration_preview(session, start, old=old, topics=dict(text.split("=", 1) for text in options.topic))
