# SPDX-License-Identifier: Apache-2.0
"""Close a backfill: its ranges become the landing's, and its entry is removed.

Contract: one compare-and-swap per table removes the backfill's entry, and adds its ranges to the landing's entry
``filled``. Offsets that a table passed without a row, by the log, go there too. The data table comes last, so a
backfill is open as long as any table has it. Nothing can be committed to a closed backfill: it has no entry, and a new
one of the same name has another epoch.

Closing needs no source. If the brokers that answer are of another cluster than the backfill's, its control log cannot
be read: it is closed by the ledgers of its tables, and none of its reported slices can be published any more.

Before it is closed with gaps that a user gives up, its reported slices are published (:func:`publish_reported`): a
slice after a gap waits for it, and the source may have lost its records by the time of a new request. So the backfill
of each table begins after its last gap that is followed by a reported slice. A backfill that replaces publishes nothing
in parts.

Failure story: an incomplete backfill is refused, unless a user gives up the rest, which is recorded. After a kill, the
backfill is open, perhaps with a range that begins later, or with rows in some tables; the same command closes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_lakecommit.core import (
    BACKFILL,
    Coverage,
    Decision,
    EvaluatedBy,
    LedgerSection,
    RangeSet,
    SourcePartition,
    evaluated_in,
    passed_by_all,
    same_readings,
    spoken,
)
from airflow_provider_lakecommit.cycle import (
    LandingSession,
    Prepared,
    ledger_state,
    ledger_states,
    prepare_for_commit,
    prepared_table,
)
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import Condition, LedgerState, SnapshotKind, change_section, require_ledger
from airflow_provider_lakecommit.iceberg.ledger.merge_section import merge_section
from airflow_provider_lakecommit.operations.backfill.level import drain_or_log


def lane_rest(session: LandingSession, *, some: bool = False) -> Coverage:
    """Return what some table lacks of the backfill's range; reported, unpublished slices count as lacking.

    :param session: of the backfill
    :param some: leave out tables in which the backfill is no longer open
    :raises LakecommitError: a table cannot be read
    """
    prepared = lane_tables(session, some=some)
    return Coverage.union(_lacking(session, prepared).values())


def close_lane(session: LandingSession, *, decision: Decision | None = None) -> Coverage:
    """Close the backfill of a session; returns the ranges that were given up.

    :param decision: the user who gives up the missing ranges; without it that is refused
    :raises LedgerError: it is incomplete
    :raises LakecommitError: a table cannot be read or written
    """
    prepared = lane_tables(session, some=decision is not None)
    left_out = Coverage()
    if decision is not None and _has_log(session, prepared) and any(_lacking(session, prepared).values()):
        left_out = publish_reported(session, prepared, decision)
        prepared = lane_tables(session, some=True)
    lacking = _lacking(session, prepared)
    rest = Coverage.union(lacking.values()) | left_out
    if rest and decision is None:
        raise LedgerError(
            "LC7206", f"backfill {session.lane} of landing {session.landing.name} is not complete: it lacks {rest}"
        )
    half = _half_replaced(session, prepared, lacking)
    # Of topics that the source no longer has, nothing can be read again.
    if half and rest.parts.keys() <= session.source.watermarks(missing_ok=True).partitions.keys():
        raise LedgerError(
            "LC7207",
            f"backfill {session.lane} of landing {session.landing.name} has replaced its range only in "
            f"{', '.join(half)}: closed now, a record could end in two tables, or in none. Run `{BACKFILL} SPEC "
            f"--replace --name {session.lane}` to replace the rest",
        )
    passed = _passed(session, prepared)
    for t in reversed(prepared.tables):
        own = t.ledger.section
        merge_section(
            session.tables,
            t.name,
            (session.landing.name, session.lane),
            had=evaluated_in(passed.get(t.name, {}), own.bounds - own.covered),
            cluster_id=session.control.describe().cluster_id,
            branch=session.landing.branch,
            decision=decision and replace(decision, what=f"closes the backfill, gives up {lacking.get(t.name, rest)}"),
        )
    session.log(f"closed backfill {session.lane}, " + (f"{rest} is given up" if rest else "its range is in the tables"))
    return rest


def lane_tables(session: LandingSession, *, some: bool = False) -> Prepared:
    """Return every table of a backfill, in its current state.

    :param some: leave out tables in which it is no longer open, for example after a rollback
    """
    cluster = session.control.ensure().cluster_id
    found = {name: state for name in session.landing.tables if (state := ledger_state(session, name)) is not None}
    sections = {name: state.section(session.landing.name, session.lane) for name, state in found.items()}
    if any(s is not None and s.cluster_id != cluster for s in sections.values()):
        return _as_they_are(session, found)
    prepared = prepare_for_commit(session)
    without = {name for name, section in sections.items() if section is None}
    for name, failure in prepared.failures.items():
        if not some or name not in without or without >= found.keys():
            raise failure
    return prepared


def _has_log(session: LandingSession, prepared: Prepared) -> bool:
    """Return True if the control topic that answers is of the cluster that the backfill lands from."""
    cluster = session.control.describe().cluster_id
    return all(t.ledger.section.cluster_id == cluster for t in prepared.tables)


def _as_they_are(session: LandingSession, found: Mapping[str, LedgerState]) -> Prepared:
    """Return the tables that have the backfill, without reading a control log."""
    tables = []
    for name, state in found.items():
        require_ledger(state, name)
        if state.condition is Condition.ROLLED_BACK:
            raise LedgerError(
                "LC7208", f"{name}: {state.reason}; restore the branch, then close backfill {session.lane}"
            )
        if state.section(session.landing.name, session.lane) is not None:
            tables.append(prepared_table(session, name, session.tables.load(name), state))
    return Prepared(tables=tuple(tables))


def _half_replaced(session: LandingSession, prepared: Prepared, lacking: Mapping[str, Coverage]) -> list[str]:
    """Return the tables in which a backfill has replaced ranges that another table does not have of the same reading.
    After a rollback of one table, the backfill can be open there alone, and complete in the others.
    """
    done = [t for t in prepared.tables if t.ledger.section.replaces and t.ledger.section.covered]
    if not done or not any(lacking.values()):
        return []
    states = ledger_states(session)
    readings = {
        name: [e for s in state.sections if s.landing == session.landing.name for e in s.provenance]
        for name, state in states.items()
        if state is not None
    }
    return [
        t.name
        for t in done
        if any(t.ledger.section.covered - same_readings(t.ledger.section.provenance, r) for r in readings.values())
    ]


def _passed(session: LandingSession, prepared: Prepared) -> Mapping[str, EvaluatedBy]:
    """Return what has passed without a row, by its rules; nothing of a backfill that has former rows to remove."""
    if any(t.ledger.section.replaces for t in prepared.tables) or not _has_log(session, prepared):
        return {}
    state = session.read_state(prepared.ledgers).state
    found: dict[str, dict[str, Coverage]] = {}
    for name, ranges in passed_by_all(state).items():
        rules = found.setdefault(name, {})
        for a in state.accepted[name]:
            rules[a.report.rules] = rules.get(a.report.rules, Coverage()) | a.coverage & ranges
    return found


def _lacking(session: LandingSession, prepared: Prepared) -> dict[str, Coverage]:
    passed = _passed(session, prepared)
    lacking = {
        t.name: t.ledger.section.bounds - t.ledger.all_covered - Coverage.union(passed.get(t.name, {}).values())
        for t in prepared.tables
    }
    if _has_log(session, prepared):
        return lacking
    # Only the log has what a dead-letter table has passed.
    rows = {name: some for name, some in lacking.items() if name in session.landing.data_tables}
    return rows or lacking


def publish_reported(session: LandingSession, prepared: Prepared, decision: Decision) -> Coverage:
    """Publish reported slices after gaps of a backfill's range; returns the gaps, which are given up."""
    if any(t.ledger.section.replaces for t in prepared.tables):
        return Coverage()
    left_out, accepted = Coverage(), session.read_state(prepared.ledgers).state.accepted
    for t in prepared.tables:
        reported = Coverage.union(a.coverage for a in accepted[t.name])
        later = _later(t.ledger.section, reported, t.ledger.all_covered | reported)
        if not later:
            continue
        passed = Coverage({p: RangeSet.of((t.ledger.section.starts[p], start)) for p, start in later.items()})
        given_up = passed - t.ledger.all_covered - reported
        left_out |= given_up
        session.log(f"{t.name}: gives up {given_up}, so that the slices reported after it can be published")
        change_section(
            session.tables,
            t.name,
            session.landing.name,
            session.lane,
            SnapshotKind.INIT,
            lambda s, later=later: replace(s, starts={**s.starts, **later}),  # type: ignore[misc]
            branch=session.landing.branch,
            decision=replace(decision, what=f"gives up {given_up}"),
        )
    drain_or_log(session, f"{spoken(BACKFILL)} --close", "publishes reported slices before the backfill is closed")
    return left_out


def _later(section: LedgerSection, reported: Coverage, has: Coverage) -> dict[SourcePartition, int]:
    """Return the starts of partitions whose last hole is before a reported range."""
    out = {}
    for p, bounds in section.bounds.parts.items():
        start = section.starts.get(p, 0)
        behind = [r.start for r in has[p] & bounds if r.start > has[p].reach(start) and reported[p] & RangeSet.of(r)]
        if behind:
            out[p] = behind[-1]
    return out
