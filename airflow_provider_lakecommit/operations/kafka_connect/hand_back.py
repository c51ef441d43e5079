# SPDX-License-Identifier: Apache-2.0
"""Hand a table back to the connector that it was taken over from: `lakecommit connect adopt --back`.

Contract: the connector must be stopped. The landing's reported slices are published first; then, each step durable
before the next: the table tells the connector that everything it ever announced is done; the ledger records the
connector's turn, under a new epoch, so that no open work of the landing is committed any more and no run plans; the
connector's consumer group is set to the ledger's ends, and the group of its coordinator to the end of its control
topic. Then it is resumed. Meanwhile the landing is paused: its runs are skipped, with the reason.

Invariants: from the connector's turn on, its group's offsets only move forward, and only while it has no members. So
rows before the ledger's ends are the landing's, rows from them on the connector's.

Failure story: after a kill, the same command continues; a connector that already runs again is left alone; one that was
resumed before its offsets were set is named, with what it has read again. Unpublished work of the landing when the
ledger is set is lost work, but no lost record: the connector reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.core import (
    BACKFILL,
    HANDED_BACK,
    LAND,
    RESET_OFFSETS,
    VERIFY,
    AdoptedSink,
    Coverage,
    Decision,
    LedgerSection,
    RangeSet,
    without_rows,
)
from airflow_provider_lakecommit.cycle import LandingSession, RunIdentity, diverged_logs, drain, prepare_for_commit
from airflow_provider_lakecommit.exceptions import ConnectorError, LedgerError, SourceError
from airflow_provider_lakecommit.iceberg import set_section, sink_commits_text
from airflow_provider_lakecommit.kafka import offsets_of_group, set_group_offsets
from airflow_provider_lakecommit.operations.kafka_connect.connector import KnownConnector, rescue_of, settled
from airflow_provider_lakecommit.operations.kafka_connect.section import sink_section
from airflow_provider_lakecommit.operations.kafka_connect.take_over import off_things, put_back

Preview = tuple[dict[str, Any], list[str]]
"""Values for JSON, and lines for display."""


def hand_back_preview(session: LandingSession, connector: KnownConnector) -> Preview:
    """Return where the connector would continue; writes nothing.

    :raises ConnectorError: it is active, or this landing has not adopted it
    :raises SourceError: the source no longer has what the connector would have to read
    """
    section, sink = _adopted(session, connector)
    if not sink.lands:
        connector.check_stopped()
    return _checked(session, connector, section, sink)


def hand_back(
    session: LandingSession, connector: KnownConnector, *, decision: Decision, doubled_stay: bool = False
) -> dict[str, Any]:
    """Publish reported slices, let the connector continue after them, and return where, with the findings of `verify`.

    :param decision: the user who decided, for the table's history
    :param doubled_stay: keep the rows that the connector has read again
    :raises ConnectorError: it is active, or this landing has not adopted it
    :raises LakecommitError: a required part is unreachable
    """
    section, sink = _adopted(session, connector)
    if not (sink.lands and _has_moved_on(session, connector, section)):
        settled(session, connector)
        if not sink.lands:
            _checked(session, connector, section, sink)
            put_back(session, connector, decision)
            _publish(session)
        else:
            _set_back(session, connector, section, sink)
        log = rescue_of(session, connector, decision.by)
        _turn_over(session, connector, decision, log.end_turn(session.landing.table))
        section, sink = _adopted(session, connector)
        _set_offsets(session, connector, section, sink, doubled_stay=doubled_stay)
        _set_coordinator(connector, log.log.read_to)
        session.log(f"{connector.name}: set its offsets to the ends of the ledger")
    _resume(session, connector)
    return {**_checked(session, connector, section, sink)[0], "wrong": list(off_things(session))}


def _adopted(session: LandingSession, connector: KnownConnector) -> tuple[LedgerSection, AdoptedSink]:
    table = session.landing.table
    ours = sink_section(session, table)
    section, late = ours.section, ours.late
    if section is None or section.sink is None or section.sink.connector != connector.name:
        former = "no connector" if section is None or section.sink is None else f"connector {section.sink.connector}"
        raise ConnectorError(
            "LC7509",
            f"landing {session.landing.name} has taken {table} over from {former}, so it cannot be handed to "
            f"{connector.name}: name the former connector, which `{VERIFY} SPEC` shows",
        )
    if ours.lanes:
        raise LedgerError(
            "LC7510",
            f"{table}: backfill {', '.join(ours.lanes)} of landing {session.landing.name} is open, and cannot land "
            f"while {connector.name} has the table: finish it, or close it with `{BACKFILL} SPEC --close NAME`",
        )
    if late:
        raise LedgerError("LC7511", f"{table}: {sink_commits_text(section.sink, list(late))}")
    return section, section.sink


def _checked(session: LandingSession, connector: KnownConnector, section: LedgerSection, sink: AdoptedSink) -> Preview:
    """Return where the connector continues, and the numbers of records that are not landed yet. ``handed`` is set if
    the ledger records it.
    """
    marks = session.source.watermarks().partitions
    ends = {p: section.end(p) for p in marks}
    if not sink.lands and (lost := [f"{p} begins at {m.start}" for p, m in sorted(marks.items()) if ends[p] < m.start]):
        raise SourceError(
            "LC7512",
            f"{', '.join(lost)}: the source no longer has what {connector.name} would have to read: run "
            f"`{RESET_OFFSETS} SPEC --from earliest` to give it up",
        )
    left = {p: max(m.high - ends[p], 0) for p, m in marks.items()}
    landing = session.landing
    values = {
        "landing": landing.name,
        "table": landing.table,
        "connector": connector.name,
        "next": {str(p): end for p, end in sorted(ends.items())},
        "handed": sink.lands,
        "wrong": [],
    }
    goes = "continues" if sink.lands else "would continue"
    lines = [f"{landing.table}: connector {connector.name} {goes} after landing {landing.name}"]
    lines += [f"  {p}: at {end}, {left[p]} records are left to land" for p, end in sorted(ends.items())]
    return values, lines


def _group_ends(session: LandingSession, section: LedgerSection) -> dict[tuple[str, int], int]:
    """Return where it continues, also in partitions that the landing has not read yet."""
    there = session.source.watermarks().partitions
    return {(p.topic, p.partition): section.end(p) for p in (*section.starts, *section.covered.parts, *there)}


def _since(sink: AdoptedSink) -> dict[tuple[str, int], int]:
    return {(p.topic, p.partition): offset for p, offset in sink.since.items()}


def _has_moved_on(session: LandingSession, connector: KnownConnector, section: LedgerSection) -> bool:
    """Return True if it already reads after the ledger's ends; it begins later partitions by itself."""
    offsets, ends = connector.offsets(), _group_ends(session, section)
    handed = {(p.topic, p.partition) for p in (*section.starts, *section.covered.parts)}
    return all(offsets.get(key, -1) >= end for key, end in ends.items() if key in handed)


def _publish(session: LandingSession) -> None:
    """Publish reported slices; refuse if some that are before the end of the data table cannot be published."""
    run = RunIdentity(deployment="person", dag_id="adopt --back", run_id=str(session.new_id()))
    drain(session, run, "publishes reported slices before the table is handed back")
    prepared = prepare_for_commit(session)
    for failure in prepared.failures.values():
        raise failure
    state = session.read_state(prepared.ledgers).state
    # No other process reads the records that replaced lost ones: the connector continues after them.
    if diverged := diverged_logs(session, state, session.source.watermarks())[1]:
        raise SourceError("LC7513", f"{session.landing.table} is not handed back: {diverged}")
    landed = next(t.ledger.section for t in prepared.tables if t.name == session.landing.table).covered
    for name, accepted in state.accepted.items():
        if left := [a for a in accepted if a.file_count(name) and a.coverage & landed]:
            raise LedgerError(
                "LC7514", f"{name}: {left[0].coverage} is reported and not published: run `{LAND} SPEC` to see why"
            )
    _check_ahead(session)
    for blocked in state.blocked:
        session.log(f"left to the connector: {blocked}")


def _check_ahead(session: LandingSession) -> None:
    """:raises LedgerError: a table has rows of records that the connector would read, such as dead letters of a data
    table that was rolled back alone
    """
    data = sink_section(session, session.landing.table).section
    for table in session.landing.tables:
        section = sink_section(session, table).section
        if data is None or section is None:
            continue
        has = section.covered - without_rows(section.provenance, section.covered)
        if table != session.landing.table and section.sink is not None:
            has = has - section.sink.landed
        ends = {p: data.end(p) for p in session.source.watermarks().partitions}
        if again := Coverage({p: has[p] - RangeSet.of((0, end)) for p, end in ends.items()}):
            raise LedgerError(
                "LC7530",
                f"{table} has records of {again}, and {session.landing.table} ends before them, so the connector would "
                f"land them once more: run `{LAND} SPEC`, then this command again",
            )


def _turn_over(session: LandingSession, connector: KnownConnector, decision: Decision, sequence: int) -> None:
    """Record the connector's turn in the ledgers; in the data table's first, so that no run plans any more."""
    landing = session.landing
    for table in landing.tables:
        section = sink_section(session, table).section
        if section is None or (section.sink is not None and section.sink.lands):
            continue
        ends = ", ".join(f"{p} {section.end(p)}" for p in sorted(section.starts))
        set_section(
            session.tables,
            table,
            landing.name,
            session.lane,
            lambda now: _handed(session, connector, now, sequence),
            branch=landing.branch,
            decision=replace(decision, what=f"hands back to connector {connector.name} at {ends}"[:300]),
        )
        session.log(f"{table}: handed over to connector {connector.name}")


def _handed(
    session: LandingSession, connector: KnownConnector, now: LedgerSection | None, sequence: int
) -> LedgerSection:
    if now is None:
        raise LedgerError(
            "LC7515", f"the ledger of landing {session.landing.name} disappeared meanwhile: run the command again"
        )
    own = now.sink or AdoptedSink(connector=connector.name, group=connector.group, since={}, sequence=0)
    if own.lands:
        return now
    suspended = f"connector {connector.name}, {HANDED_BACK}"
    return replace(now, epoch=session.new_id(), sink=replace(own, lands=True, sequence=sequence), suspended=suspended)


def _set_back(session: LandingSession, connector: KnownConnector, section: LedgerSection, sink: AdoptedSink) -> None:
    """Set the offsets of a connector that was resumed too early back to where it was, if the table has nothing of what
    it has read since: its announcements since are left out.
    """
    now, since = connector.offsets(), _since(sink)
    moved = {key: since.get(key, 0) for key in _group_ends(session, section) if now.get(key, 0) > since.get(key, 0)}
    if moved and sink_section(session, session.landing.table).turn.is_untouched:
        connector.move(moved)


def _set_offsets(
    session: LandingSession, connector: KnownConnector, section: LedgerSection, sink: AdoptedSink, *, doubled_stay: bool
) -> None:
    """Set the offsets of its tasks, never back; refuse if it has read again what the landing has landed."""
    now, ends, since = connector.offsets(), _group_ends(session, section), _since(sink)
    again = [
        f"{t}[{n}] [{since.get((t, n), 0)}, {min(o, ends[t, n])})"
        for (t, n), o in sorted(now.items())
        if (t, n) in ends and since.get((t, n), 0) < o < ends[t, n]
    ]
    if again and not doubled_stay:
        raise ConnectorError(
            "LC7516",
            f"connector {connector.name} was resumed before its offsets were set, and has read again records of "
            f"landing {section.landing}: {', '.join(again)}. Remove its commits since then by rolling the branch back, "
            f"or keep the duplicates with --doubled-stay",
        )
    behind = {key: end for key, end in ends.items() if now.get(key, -1) < end}
    if behind:
        connector.move(behind)


def _set_coordinator(connector: KnownConnector, read_to: Mapping[int, int]) -> None:
    """Skip the records of its control topic, which others decided: it continues after them."""
    group, topic = f"{connector.group}-coord", connector.control_topic
    now = offsets_of_group(connector.kafka, group)
    if behind := {(topic, n): end for n, end in read_to.items() if now.get((topic, n), -1) < end}:
        set_group_offsets(connector.kafka, group, behind)


def _resume(session: LandingSession, connector: KnownConnector) -> None:
    if connector.rest is None or connector.config is None:
        session.log(f"{connector.name}: Kafka Connect does not have it; it continues once it is created there again")
        return
    connector.rest.resume(connector.name)
    status = connector.rest.wait_for(connector.name, lambda s: s.is_running, connector.wait, "running")
    session.log(str(status))
