# SPDX-License-Identifier: Apache-2.0
"""What a person decides: where a ledger goes on, and how a blocked range goes on.

Contract: each decision is durable before it is reported. A ledger that is set gets a new epoch, so nothing that was
pending can be committed to it; it never goes back over offsets that it has, because their rows are in the table. An
unblock is a cycle of its own in the control log.

Failure story: killed in between, a decision is either in the table (or log) or not made at all; the same command can be
given again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState
from airflow_provider_lakecommit.committer.ledger_updates import set_section
from airflow_provider_lakecommit.core.log import Directives, Raised
from airflow_provider_lakecommit.core.model import (
    Budget,
    Counts,
    Cycle,
    LedgerSection,
    SliceReport,
    Span,
    SpanReport,
    TableReport,
    TableTarget,
    slice_id,
    window_id,
)
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.planning import Watermark
from airflow_provider_lakecommit.core.restart import Restart, StatedOffsets, restart
from airflow_provider_lakecommit.core.settle import passed_by_all
from airflow_provider_lakecommit.core.state import Blocked
from airflow_provider_lakecommit.cycle.epochs import first_offsets, new_section, origin_position
from airflow_provider_lakecommit.cycle.open import empty_plan, new_cycle, send_start
from airflow_provider_lakecommit.cycle.prepare import (
    Prepared,
    ledger_state,
    prepare_for_commit,
    remembered,
    table_ledger,
)
from airflow_provider_lakecommit.cycle.session import FoldedLog, LandingSession, RunIdentity
from airflow_provider_lakecommit.cycle.tables import table_of
from airflow_provider_lakecommit.exceptions import BlockedRangeError, LedgerError, SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceState

__all__ = ["ledger_init", "unblock"]

Start = str | Mapping[tuple[str, int], int]
"""``earliest``, ``latest``, or an offset per (topic, partition)."""


def ledger_init(session: LandingSession, start: Start) -> dict[str, Any]:
    """Set the ledger of every table of the landing, under a new epoch. Where each partition goes on is decided by
    :mod:`~airflow_provider_lakecommit.core.restart`. Nothing is written before all tables were asked.

    :raises SourceError: an offset is stated for a partition that the topic lacks, that is past the end of the log, or
        that the source has removed
    :raises LedgerError: partitions are not named, and no ledger tells of them
    :raises TableError: a table is missing and may not be made, or cannot take the rows
    :raises CatalogError: the catalog is away
    """
    session.control.ensure()
    source = session.source.watermarks()
    word = _word(source.partitions, start)
    states = {name: ledger_state(session, name) for name in session.landing.tables}
    passed = _passed(session, states)
    settings: dict[str, _Setting] = {}
    data: Restart | None = None
    for name, state in states.items():
        old = None if state is None else state.section(session.landing.name, session.lane)
        if word.offsets.keys() >= source.partitions.keys():
            firsts: Mapping[SourcePartition, int] = {}
        else:
            firsts = _firsts(session, name, state, old, source) if data is None else _ends(data, source.partitions)
        settings[name] = _Setting(
            name=name, source=source, word=word, old=old, passed=passed.get(name, Coverage()), firsts=firsts
        )
        found = settings[name].restart(old)
        data = data or found
    for name in settings:
        table_of(session, name)
    return {"ledger": {name: _set(session, setting) for name, setting in settings.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What a person's word makes of the section of one table, whatever has landed there since it was looked at."""

    name: str
    source: SourceState
    word: StatedOffsets
    old: LedgerSection | None
    passed: Coverage
    firsts: Mapping[SourcePartition, int]

    def restart(self, section: LedgerSection | None) -> Restart:
        """:raises LakecommitError: the word leaves something open, or cannot be"""
        same = section is not None and self.old is not None and section.epoch == self.old.epoch
        passed = self.passed if same else Coverage()
        here = section if section is not None and section.cluster_id == self.source.cluster_id else None
        found = restart(self.word, self.source.partitions, here, passed=passed, firsts=self.firsts)
        _check(self.name, found, self.source.partitions)
        return found


def _set(session: LandingSession, setting: _Setting) -> dict[str, int]:
    """By one compare-and-swap that is decided on the section it finds."""
    name = setting.name
    made: list[tuple[LedgerSection, Restart]] = []
    control = origin_position(session)

    def make(now: LedgerSection | None) -> LedgerSection:
        if made and now is not None and now.epoch == made[-1][0].epoch:
            return now
        found = setting.restart(now)
        made.append((new_section(session, setting.source, found.starts, found.covered, control, before=now), found))
        return made[-1][0]

    set_section(session.tables, name, session.landing.name, session.lane, make, branch=session.landing.branch)
    section, found = made[-1]
    ends = {str(p): section.end(p) for p in sorted(setting.source.partitions)}
    session.log(f"{name}: goes on at {', '.join(f'{p} {o}' for p, o in ends.items())}")
    if found.given_up:
        session.log(f"{name}: gives up {found.given_up}, which it has not landed")
    if found.back:
        session.log(f"{name}: goes back over {found.back}, which are other records now than those it has landed")
    return ends


def _word(partitions: Mapping[SourcePartition, Watermark], start: Start) -> StatedOffsets:
    if isinstance(start, str):
        # Back to the earliest offset of a log that lost its end would be over rows that the table has.
        return StatedOffsets(offsets=first_offsets(partitions, start), back=start != "earliest")
    known = {(p.topic, p.partition): p for p in partitions}
    if unknown := [f"{t}[{n}]" for t, n in start if (t, n) not in known]:
        raise SourceError(f"{', '.join(unknown)}: the source has no such partition")
    # Every plan would be refused until the log is as long, and what comes up to there would never be read.
    ends = {known[place]: (offset, partitions[known[place]].high) for place, offset in start.items()}
    if beyond := [
        f"{p} ends at {high}, and not at {offset} or later" for p, (offset, high) in ends.items() if offset > high
    ]:
        raise SourceError(f"{'; '.join(beyond)}: nothing is changed; state offsets that the log has, or `latest`")
    return StatedOffsets(offsets={known[place]: offset for place, offset in start.items()})


def _passed(session: LandingSession, states: Mapping[str, LedgerState | None]) -> dict[str, Coverage]:
    """What a table has no rows of, which only the log tells: a table without rows is brought forward rarely. Nothing of
    that is known where a table has no ledger that holds, or the log is another one.
    """
    if not all(
        s and s.condition is Condition.PRESENT and s.section(session.landing.name, session.lane)
        for s in states.values()
    ):
        return {}
    ledgers = [table_ledger(session, name, state) for name, state in states.items() if state is not None]
    log = session.control.describe()
    places = {(t.section.control.cluster_id, t.section.control.topic_id, t.section.control.partition) for t in ledgers}
    if len(places) > 1 or next(iter(places))[:2] != (log.cluster_id, log.topic_id):
        return {}
    return passed_by_all(session.read_state(ledgers).state)


def _firsts(
    session: LandingSession, name: str, state: LedgerState | None, old: LedgerSection | None, source: SourceState
) -> dict[SourcePartition, int]:
    """Where partitions begin of which the data table's ledger does not tell, as in a plan: a topic that joins, and a
    landing that never ran, where the landing says; a topic that was made anew with its first record. Nobody knows where
    the rows of a ledger that is gone end.
    """
    lost = state is not None and state.condition in (Condition.LOST, Condition.CUT)
    if old is None and (lost or remembered(session, name)):
        return {}
    joined = first_offsets(source.partitions, session.landing.start)
    topics = set() if old is None else {p.topic for p in old.starts}
    return {p: mark.start if p.topic in topics else joined[p] for p, mark in source.partitions.items()}


def _ends(data: Restart, partitions: Iterable[SourcePartition]) -> dict[SourcePartition, int]:
    """A table that joins goes on where the data table's ledger ends."""
    return {p: data.covered[p].reach(data.starts.get(p, 0)) for p in partitions}


def _check(name: str, found: Restart, marks: Mapping[SourcePartition, Watermark]) -> None:
    if found.untold:
        raise LedgerError(
            f"{name} has no ledger that tells of {', '.join(map(str, found.untold))}: name "
            f"{'it' if len(found.untold) == 1 else 'them'} too, or say `earliest` or `latest`; nothing is changed"
        )
    if found.removed:
        gone = "; ".join(f"{p} begins at {marks[p].start}, and not at {r.start}" for p, r in found.removed.items())
        raise SourceError(
            f"{gone}: nothing is changed; {name} would have to read there, so state offsets that the log has, or "
            f"`earliest`"
        )


def unblock(
    session: LandingSession,
    partitions: Collection[tuple[str, int]] | None = None,
    *,
    raise_to: Budget | None = None,
    skip: bool = False,
) -> dict[str, Any]:
    """Say how blocked ranges go on: read again under ``raise_to``, or given up (``skip``).

    :param partitions: only those; all that are blocked by default
    :raises BlockedRangeError: nothing is blocked there
    """
    prepared = prepare_for_commit(session)
    for failure in prepared.failures.values():
        raise failure
    folded = session.read_state(prepared.ledgers)
    chosen = [b for b in folded.state.blocked if _touches(b, partitions)]
    coverage = Coverage.of(
        (p, r)
        for b in chosen
        for p, r in b.coverage.items()
        if partitions is None or (p.topic, p.partition) in partitions
    )
    if not coverage:
        raise BlockedRangeError(
            f"landing {session.landing.name}: nothing is blocked there; `lakecommit status` lists what is"
        )
    run = RunIdentity(deployment="person", dag_id="unblock", run_id=str(session.new_id()))
    cycle = new_cycle(session, run, folded.state)
    send_start(session, folded.partition, cycle, empty_plan(session, f"unblock {coverage}"), Directives())
    if skip:
        _give_up(session, prepared, folded, coverage, cycle)
    raised = (Raised(coverage=coverage, budget=raise_to),) if raise_to and not skip else ()
    closed = session.sender("commit", cycle.commit_id).closed(
        session.new_id(), session.now(), None, Directives(raised=raised)
    )
    session.send("commit", cycle, folded.partition, [closed])
    session.log(f"{'given up' if skip else 'to be read again'}: {coverage}")
    return {"unblocked": {str(p): [[r.start, r.end] for r in s] for p, s in coverage.parts.items()}, "skipped": skip}


def _touches(b: Blocked, partitions: Collection[tuple[str, int]] | None) -> bool:
    return partitions is None or any((p.topic, p.partition) in partitions for p in b.coverage.parts)


def _give_up(session: LandingSession, prepared: Prepared, folded: FoldedLog, coverage: Coverage, cycle: Cycle) -> None:
    """Report each range as done with all of its offsets skipped; the next commit settles it like any other slice."""
    sender, version = session.sender("write", cycle.commit_id), session.landing.spec_version
    window = window_id(
        session.landing.name, session.lane, version, prepared.epochs, (Span(p, r) for p, r in coverage.items())
    )
    records = []
    for p, r in coverage.items():
        span = Span(p, r)
        report = SliceReport(
            slice_id=slice_id(window, (span,), session.landing.tables),
            attempt=session.new_id(),
            window_id=window,
            spec_version=version,
            spans=(SpanReport(span=span, counts=Counts(skipped=len(r))),),
            tables=tuple(_untouched(t) for t in prepared.targets),
        )
        records.append(sender.reported(session.new_id(), session.now(), report))
    session.send("skip", cycle, folded.partition, records)


def _untouched(t: TableTarget) -> TableReport:
    return TableReport(
        table=t.table, uuid=t.uuid, epoch=t.epoch, schema_id=t.schema_id, spec_id=t.spec_id, events=0, files=0, rows=0
    )
