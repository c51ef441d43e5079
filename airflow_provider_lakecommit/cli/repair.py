# SPDX-License-Identifier: Apache-2.0
"""`lakecommit ledger init|attest` and `lakecommit unblock`: the commands that errors name, for who has decided.

Contract: nothing here decides; what is asked for is done as a cycle of its own, which the tables and the control topic
record. `ledger attest` only reads until it is given `--yes`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.cli.confirm import agreed, asked, at_a_terminal, decision_of
from airflow_provider_lakecommit.cli.output import Exit, Output
from airflow_provider_lakecommit.committer.ledger_by_hand import OtherSections
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet
from airflow_provider_lakecommit.core.retry import own_budget
from airflow_provider_lakecommit.core.voiding import losses_text
from airflow_provider_lakecommit.cycle.session import LandingSession
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.repair.ledger_init import BEHIND

if TYPE_CHECKING:
    from airflow_provider_lakecommit.repair.attest import Attested, AttestedTable
    from airflow_provider_lakecommit.repair.ledger_init import InitPreview, InitTable

__all__ = ["ledger_attest", "ledger_init", "parse_offsets", "parse_partition", "unblock"]


def ledger_init(
    spec: LandingSpec,
    output: Output,
    *,
    start: str,
    yes: bool = False,
    reason: str = "",
    give_up_reported: bool = False,
    others: str | None = None,
) -> int:
    """Begin the ledger where *start* says: ``earliest``, ``latest`` or ``topic:partition=offset,…``. What it gives up
    is shown first, and has to be agreed to.

    :raises SpecError: *start* is none of these
    :raises LakecommitError: a part that is needed is away, or refuses
    """
    from airflow_provider_lakecommit.repair import ledger_init as word

    hint = f"--from {start!r}: say earliest, latest or TOPIC:PARTITION=OFFSET,… as in orders:0=1500"
    places = start if start in ("earliest", "latest") else parse_offsets(start, hint)
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        preview = word.init_preview(session, places)
        if preview.loses and not agreed(output, _init_text(preview), yes=yes):
            return _unconfirmed(output, {"tables": [_init_to_dict(t) for t in preview.tables]})
        done = word.ledger_init(
            session,
            places,
            agreed=preview,
            give_up_reported=give_up_reported,
            others=OtherSections(others or "ask"),
            decision=decision_of(f"ledger init --from {start}", spec.landing.name, reason),
        )
        _done(output, done)
    return Exit.DONE


def _init_text(preview: InitPreview) -> Iterable[str]:
    for t in preview.tables:
        ends = ", ".join(f"{p} {o}" for p, o in t.ends.items())
        yield f"{t.table}: would {'begin' if t.begins else 'go on'} at {ends}"
        if t.published:
            yield f"  publishes first, as the source has it no more: {_counted(t.published)}"
        if t.given_up:
            yield f"  GIVES UP, never read: {_counted(t.given_up)}"
        if t.back:
            yield f"  goes BACK over {_counted(t.back)}: other records now than those that are landed"
        if t.lost:
            yield f"  LOSES, reported and not to be read again: {t.lost}"
        if t.reported:
            yield f"  voids what is reported: {_counted(t.reported)}"
        if t.behind:
            yield f"  {BEHIND.format(_counted(t.behind))}"


def _counted(coverage: Coverage) -> str:
    return f"{coverage} ({len(coverage)} offsets)"


def _init_to_dict(t: InitTable) -> dict[str, Any]:
    return {
        "table": t.table,
        "next": {str(p): o for p, o in t.ends.items()},
        "published_first": t.published.to_dict(),
        "given_up": t.given_up.to_dict(),
        "back": t.back.to_dict(),
        "stays": t.behind.to_dict(),
        "voided": t.reported.to_dict(),
        "lost": t.lost,
    }


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
            output.lines(_said_text(said))
            yes = asked(output)
        told = decision_of("ledger attest", spec.landing.name, reason)
        rows_of_others = OtherSections(others or "ask")
        done = (
            word.attest(session, said, decision=told, give_up_reported=give_up_reported, rows_of_others=rows_of_others)
            if yes
            else {}
        )
    if output.as_json:
        output.result({"tables": [_said_to_dict(t) for t in said.tables], "written": yes, **done})
    else:
        output.lines(() if shown else _said_text(said))
        output.lines(["written" if yes else "nothing is written: the same with --yes writes it"])
    return Exit.DONE


def _said_to_dict(t: AttestedTable) -> dict[str, Any]:
    return {
        "table": t.table,
        "from": t.word,
        "condition": str(t.state.condition),
        "reason": t.state.reason,
        "rows": t.rows,
        "lost": losses_text(t.lost) if t.lost else "",
        "before": t.before.to_dict(),
        "announced": t.announced.to_dict(),
        "attested": t.section.covered.to_dict(),
        "next": {str(p): t.section.end(p) for p in sorted(t.section.starts)},
        "read_again": t.again.to_dict(),
        "never_read": t.unsaid.to_dict(),
    }


def _said_text(said: Attested) -> Iterable[str]:
    for t in said.tables:
        reason = f" ({t.state.reason})" if t.state.reason else ""
        yield f"{t.table}: ledger {t.state.condition}{reason}; attested by {t.word}"
        if t.rows is not None:
            yield f"  has {t.rows} rows now, of all writers"
        for p in sorted(t.section.starts):
            yield f"  {p}: landed {t.section.covered[p]}, goes on at {t.section.end(p)}"
        if t.again:
            yield f"  read AGAIN, though the ledger or the control log has it: {t.again}: doubled if its rows are there"
        if t.unsaid:
            yield f"  never read, though neither ledger nor log has it: {t.unsaid}: lost if its rows are not there"
        for text in filter(None, (losses_text(t.lost) if t.lost else "", *t.others_lost)):
            yield f"  reported, not published, and the source has it no more: {text}"


def parse_offsets(text: str, hint: str) -> dict[tuple[str, int], int]:
    """Offsets by (topic, partition), from ``topic:0=15,topic:1=9`` or a JSON object.

    :raises SpecError: *text* is neither, or names a partition twice
    """
    pairs = [part.strip().partition("=")[::2] for part in text.split(",")]
    if text.lstrip().startswith("{"):
        try:
            pairs = [(str(partition), str(offset)) for partition, offset in json.loads(text).items()]
        except ValueError:
            raise SpecError(hint) from None
    if not all(offset.isdecimal() for _, offset in pairs):
        raise SpecError(hint)
    places = [parse_partition(partition) for partition, _ in pairs]
    if twice := [f"{t}[{n}]" for (t, n), times in Counter(places).items() if times > 1]:
        raise SpecError(f"{', '.join(twice)}: which of its offsets?")
    return dict(zip(places, (int(offset) for _, offset in pairs), strict=True))


def parse_partition(text: str) -> tuple[str, int]:
    """``topic:3``, and ``topic[3]`` as messages have it.

    :raises SpecError: it is neither
    """
    topic, _, number = text.removesuffix("]").replace("[", ":").rpartition(":")
    if not topic or not number.isdecimal():
        raise SpecError(f"{text!r} is not TOPIC:PARTITION, as in orders:3")
    return topic, int(number)


def parse_ranges(texts: Sequence[str]) -> dict[tuple[str, int], RangeSet]:
    """Offsets by (topic, partition), from ``topic:0=15-20`` each, the end not included.

    :raises SpecError: a text is not that
    """
    found: dict[tuple[str, int], RangeSet] = {}
    for text in texts:
        partition, _, ends = text.partition("=")
        start, _, end = ends.partition("-")
        if not (start.isdecimal() and end.isdecimal() and int(start) < int(end)):
            raise SpecError(f"--range {text!r}: say TOPIC:PARTITION=FROM-TO as in orders:3=15-20, without offset 20")
        place = parse_partition(partition)
        found[place] = found.get(place, RangeSet()) | RangeSet.of((int(start), int(end)))
    return found


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
        told = decision_of(f"unblock {how}", spec.landing.name, reason)
        _done(
            output,
            release(session, chosen, ranges=named, raise_to=budget, skip=skip, only_bad=not whole, decision=told),
        )
    return Exit.DONE


def _done(output: Output, values: dict[str, Any]) -> None:
    """For people, the progress has said it all."""
    if output.as_json:
        output.result(values)
