# SPDX-License-Identifier: Apache-2.0
"""The commands of the group ``reset``, which errors name, for a user who has decided.

Each command shows a preview first, and writes only with ``--yes``, as a cycle of its own, which the tables and the
control topic record.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from airflow_provider_lakecommit.cli.control_log import source_of
from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, ends_with_preview
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import (
    RESET_ASSERT,
    RESET_BLOCKED,
    RESET_HARD,
    RESET_KEY,
    RESET_MIGRATE,
    RESET_OFFSETS,
    Decision,
    spoken,
)
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations import (
    SAME,
    BlockedPart,
    MigrationPreview,
    Operation,
    ResetAssert,
    ResetBlocked,
    ResetHard,
    ResetKey,
    ResetOffsets,
    migrate_landing,
    migration_preview,
    parse_offsets,
    parse_partition,
    parse_ranges,
    parse_start,
)


def reset_offsets(session: LandingSession, options: Namespace, output: Output) -> int:
    """Start the ledger at ``--from``: ``earliest``, ``latest``, a time or ``topic:partition=offset,…``."""
    start, only = parse_start(options.start), {parse_partition(text) for text in options.partition or ()}
    if only and isinstance(start, dict) and not options.delete:
        raise SpecError("LC8025", "--partition needs a time, earliest or latest: offsets name their partitions")
    operation = ResetOffsets(
        start=options.start,
        partitions=options.partition,
        fill="" if options.delete else options.fill or "",
        again=options.again,
        delete=options.delete,
        fewer=options.fewer,
        others=options.others or "ask",
        give_up_reported=options.give_up_reported,
    )
    deletes = " --delete" if options.delete else ""
    return _decide(session, options, output, operation, f"{spoken(RESET_OFFSETS)} --from {options.start}{deletes}")


def reset_hard(session: LandingSession, options: Namespace, output: Output) -> int:
    return _decide(session, options, output, ResetHard(fewer=options.fewer), spoken(RESET_HARD))


def reset_key(session: LandingSession, options: Namespace, output: Output) -> int:
    """Make the rows unique by the key of the spec, or append again."""
    return _decide(session, options, output, ResetKey(), spoken(RESET_KEY), written=True)


def _decide(
    session: LandingSession,
    options: Namespace,
    output: Output,
    operation: Operation,
    command: str,
    *,
    written: bool = False,
) -> int:
    """Show what an operation would do; with ``--yes`` apply just that.

    :param command: for the tables' history
    :param written: the printed result says that it is written
    """
    found = operation.preview(session)
    if (code := ends_with_preview(options, output, found.to_dict(), found.lines())) is not None:
        return code
    done = operation.apply(session, found, _decision(session, command, options))
    output.answer({"written": True, **done} if written else done)
    return Exit.DONE


def _decision(session: LandingSession, command: str, options: Namespace) -> Decision:
    return decision_of(command, session.landing.name, options.reason)


def reset_assert(session: LandingSession, options: Namespace, output: Output) -> int:
    """Record what the tables hold, by a snapshot, the control topic or offsets."""
    tables = session.landing.tables
    if strange := [t for t in options.table or () if t not in tables]:
        raise SpecError("LC8026", f"--table {strange[0]} is unknown; the landing has {', '.join(tables)}")
    if options.at is not None:
        hint = f"--at {options.at!r}: use TOPIC:PARTITION=OFFSET,… for example orders:0=1500, or a JSON object"
        parse_offsets(options.at, hint)
    operation = ResetAssert(
        snapshot_id=options.snapshot,
        from_log=options.from_log,
        at=options.at,
        tables=options.table,
        others=options.others or "ask",
        give_up_reported=options.give_up_reported,
    )
    found = operation.preview(session)
    values = found.to_dict()
    if (code := ends_with_preview(options, output, values, found.lines())) is not None:
        return code
    done = operation.apply(session, found, _decision(session, spoken(RESET_ASSERT), options))
    output.answer({**values, "written": True, **done}, ["written"])
    return Exit.DONE


def reset_blocked(session: LandingSession, options: Namespace, output: Output) -> int:
    """Unblock ranges: read them again, or skip their bad records. Good records are given up only in named ranges. Or
    publish what checks refuse, or drop it from its branch.
    """
    way = next((name for name in ("retry", "skip", "release", "drop") if getattr(options, name)), "raise")
    if way in ("release", "drop") and (options.partition or options.range or options.whole):
        raise SpecError("LC8364", "--release and --drop are about all refused rows: leave out ranges and --whole")
    if options.whole and way != "skip":
        raise SpecError("LC8027", "--whole needs --skip: a range that is read again loses no good record")
    _check_named(options)
    operation = ResetBlocked(
        how="skip whole" if options.whole else way,
        budget=options.raise_to,
        partitions=options.partition,
        ranges=options.range,
    )
    found = operation.preview(session)
    if isinstance(found, tuple):
        code = _ends_with_ranges(options, output, found)
    elif found.tables:
        code = ends_with_preview(options, output, found.to_dict(), found.lines())
    else:
        output.answer({"written": False, **found.to_dict()}, found.lines())
        code = Exit.DONE
    if code is not None:
        return code
    done = operation.apply(session, found, _decision(session, f"{spoken(RESET_BLOCKED)} --{way}", options))
    output.answer(done if isinstance(found, tuple) else {"written": True, **done})
    return Exit.DONE


def _check_named(options: Namespace) -> None:
    """:raises SpecError: a partition or range has another form"""
    for text in options.partition or ():
        parse_partition(text)
    parse_ranges(options.range or ())


def _ends_with_ranges(options: Namespace, output: Output, parts: Sequence[BlockedPart]) -> int | None:
    """Show the blocked ranges; return the exit code if the command ends there."""
    values = {"blocked": [str(p) for p in parts]}
    if options.whole and not options.partition and not options.range and any(p.good != 0 for p in parts):
        output.answer({"written": False, **values}, map(str, parts))
        output.log("good records are given up only in named ranges: give --range or --partition")
        return Exit.UNCONFIRMED
    lines = (_blocked_text(p, skip=options.skip, whole=options.whole) for p in parts)
    return ends_with_preview(options, output, values, lines)


def _blocked_text(part: BlockedPart, *, skip: bool, whole: bool) -> str:
    if not skip:
        return f"reads again {part}"
    return f"GIVES UP all of {part}" if whole or part.good == 0 else f"GIVES UP the bad records of {part}"


def migrate(session: LandingSession, options: Namespace, output: Output) -> int:
    preview = _migration(session, options, output)
    if (code := ends_with_preview(options, output, preview.to_dict(), preview.lines())) is not None:
        return code
    decision = _decision(session, spoken(RESET_MIGRATE), options)
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
