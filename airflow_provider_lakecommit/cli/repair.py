# SPDX-License-Identifier: Apache-2.0
"""`lakecommit reset offsets|attest` and `lakecommit reset blocked`: the commands that errors name, for who has decided.

Contract: nothing here decides; what is asked for is done as a cycle of its own, which the tables and the control topic
record. `reset attest` only reads until it is given `--yes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecommit.committer.ledger_by_hand import OtherSections
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.retry import own_budget
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.lanes.asked import lane_asked
from airflow_provider_lakecommit.repair.init_preview import InitPreview
from airflow_provider_lakecommit.repair.stated import parse_offsets, parse_partition, parse_ranges, parse_start
from airflow_provider_lakecommit.repair.wording import attest_text, attest_to_dict, init_text, init_to_dict
from airflow_provider_lakecommit.reset_commands import RESET_ATTEST, RESET_BLOCKED, RESET_OFFSETS, spoken
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.terminal.confirm import agreed, asked, at_a_terminal, decision_of
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["ledger_attest", "ledger_init", "unblock"]


def ledger_init(
    spec: LandingSpec,
    output: Output,
    *,
    start: str,
    partitions: Sequence[str] | None = None,
    fill: str | None = None,
    again: bool = False,
    dry: bool = False,
    yes: bool = False,
    reason: str = "",
    give_up_reported: bool = False,
    others: str | None = None,
) -> int:
    """Begin the ledger where *start* says: ``earliest``, ``latest``, a time or ``topic:partition=offset,…``. What it
    gives up, or reads twice, is shown first, and has to be agreed to.

    :param fill: the lane that is left what it goes forward over
    :param again: go back over what is landed
    :param dry: only show it

    :raises SpecError: *start* is none of these
    :raises LakecommitError: a part that is needed is away, or refuses
    """
    from airflow_provider_lakecommit.repair import ledger_init as word
    from airflow_provider_lakecommit.repair.init_preview import init_preview
    from airflow_provider_lakecommit.repair.word import Way

    places, only = parse_start(start), {parse_partition(text) for text in partitions or ()}
    if only and isinstance(places, dict):
        raise SpecError("--partition goes with a time, earliest or latest: offsets name their partitions")
    way = Way(only=only, fill=lane_asked(name=fill).name if fill else "", again=again)
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        preview = init_preview(session, places, way)
        if dry:
            return _shown(output, preview)
        if preview.loses and not agreed(output, init_text(preview), yes=yes):
            return _unconfirmed(output, {"tables": [init_to_dict(t) for t in preview.tables]})
        done = word.ledger_init(
            session,
            places,
            way,
            agreed=preview,
            give_up_reported=give_up_reported,
            others=OtherSections(others or "ask"),
            decision=decision_of(f"{spoken(RESET_OFFSETS)} --from {start}", spec.landing.name, reason),
        )
        _done(output, done)
    return Exit.DONE


def delete_back(
    spec: LandingSpec,
    output: Output,
    *,
    start: str | None,
    partitions: Sequence[str] | None,
    fewer: bool,
    dry: bool,
    yes: bool,
    reason: str,
) -> int:
    """Go back over what is landed, with its rows; what goes is shown first, and has to be agreed to.

    :param start: where to; ``None``: all of the landing goes, and it begins where its declaration says
    :param fewer: what a table lacks of these rows was deleted by others
    :raises SpecError: *start* is no place
    :raises LakecommitError: a part that is needed is away, or refuses
    """
    from airflow_provider_lakecommit.repair import delete_back as word
    from airflow_provider_lakecommit.repair.word import Way

    places = None if start is None else parse_start(start)
    way = Way(only={parse_partition(text) for text in partitions or ()})
    command = "reset hard" if start is None else f"reset offsets --from {start} --delete"
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        found = word.delete_preview(session, places, way)
        if dry:
            if output.is_for_people:
                output.lines([*found.lines(), "nothing is written"])
            else:
                output.result({"written": False, **found.to_dict()})
            return Exit.DONE
        decision = decision_of(command, spec.landing.name, reason)
        if found.deletes and not agreed(output, found.lines(), yes=yes):
            return _unconfirmed(output, found.to_dict())
        _done(output, word.delete_back(session, found, decision, fewer=fewer))
    return Exit.DONE


def _shown(output: Output, preview: InitPreview) -> int:
    if output.is_for_people:
        output.lines([*init_text(preview), "nothing is written"])
    else:
        output.result({"written": False, "tables": [init_to_dict(t) for t in preview.tables]})
    return Exit.DONE


def _unconfirmed(output: Output, values: dict[str, Any]) -> int:
    if output.as_json:
        output.result({"written": False, **values})
    return Exit.UNCONFIRMED


def ledger_attest(
    spec: LandingSpec,
    output: Output,
    *,
    snapshot: int | None,
    log: bool,
    at: str | None,
    tables: Sequence[str] | None,
    yes: bool,
    reason: str = "",
    give_up_reported: bool = False,
    others: str | None = None,
) -> int:
    """Show what would be said of the tables, and say it if *yes*.

    :raises SpecError: *at* is no list of offsets, or a table is not of the landing
    :raises LakecommitError: a part that is needed is away, or the word cannot be true
    """
    from airflow_provider_lakecommit.repair import attest as word

    if strange := [t for t in tables or () if t not in spec.landing.tables]:
        raise SpecError(f"--table {strange[0]}: the landing has {', '.join(spec.landing.tables)}")
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        if snapshot is not None:
            said = word.from_snapshot(session, snapshot)
        elif log:
            said = word.from_log(session, tables)
        else:
            hint = f"--at {at!r}: say TOPIC:PARTITION=OFFSET,… as in orders:0=1500, or the same as a JSON object"
            said = word.from_offsets(session, parse_offsets(at or "", hint), tables)
        shown = not yes and not output.as_json and at_a_terminal()
        if shown:
            output.lines(attest_text(said))
            yes = asked(output)
        told = decision_of(spoken(RESET_ATTEST), spec.landing.name, reason)
        rows_of_others = OtherSections(others or "ask")
        done = (
            word.attest(session, said, decision=told, give_up_reported=give_up_reported, rows_of_others=rows_of_others)
            if yes
            else {}
        )
    if output.as_json:
        output.result({"tables": [attest_to_dict(t) for t in said.tables], "written": yes, **done})
    else:
        output.lines(() if shown else attest_text(said))
        output.lines(["written" if yes else "nothing is written: the same with --yes writes it"])
    return Exit.DONE


def unblock(
    spec: LandingSpec,
    output: Output,
    *,
    raise_to: tuple[int, float] | None,
    skip: bool,
    partitions: Sequence[str] | None,
    retry: bool = False,
    ranges: Sequence[str] | None = None,
    whole: bool = False,
    yes: bool = False,
    reason: str = "",
) -> int:
    """Say how to go on with blocked ranges: read them again, under another budget or as the landing says, or skip their
    bad records. Good records are given up only of ranges that are named, after they were shown and agreed to.

    :raises LakecommitError: a part that is needed is away, or nothing is blocked there
    """
    from airflow_provider_lakecommit.repair.unblock import blocked_parts
    from airflow_provider_lakecommit.repair.unblock import unblock as release

    if whole and not skip:
        raise SpecError("--whole is of --skip: a range that is read again loses no good record")
    budget = None if raise_to is None else Budget(max_records=raise_to[0], max_ratio=raise_to[1])
    if retry:
        budget = own_budget(spec.landing.budget, spec.landing.dead_letter_table)
    chosen = None if partitions is None else {parse_partition(text) for text in partitions}
    named = None if ranges is None else parse_ranges(ranges)
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        parts = blocked_parts(session, chosen, named)
        if whole and any(p.good != 0 for p in parts):
            shown = {"blocked": [str(p) for p in parts]}
            if chosen is None and named is None:
                output.lines([] if output.as_json else map(str, parts))
                output.log("good records are given up only of ranges that are named: --range or --partition")
                return _unconfirmed(output, shown)
            if not agreed(output, [f"GIVES UP all of {p}" for p in parts], yes=yes):
                return _unconfirmed(output, shown)
        how = "--skip" if skip else "--retry" if retry else "--raise"
        told = decision_of(f"{spoken(RESET_BLOCKED)} {how}", spec.landing.name, reason)
        _done(
            output,
            release(session, chosen, ranges=named, raise_to=budget, skip=skip, only_bad=not whole, decision=told),
        )
    return Exit.DONE


def _done(output: Output, values: dict[str, Any]) -> None:
    """For people, the progress has said it all."""
    if output.as_json:
        output.result(values)
