# SPDX-License-Identifier: Apache-2.0
"""The state of a landing: ledger ends against the source, staged slices, open cycles, required decisions.

One scan of tables, control topic and source, folded as in a cycle. A missing table, and a ledger that is missing or
needs a decision, are states, not errors. Numbers are offsets, an upper bound of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_lakecommit.core import (
    LAND,
    AcceptedSlice,
    Coverage,
    CycleState,
    Headroom,
    LandingState,
    SourcePartition,
    TableDebt,
    TableLedger,
    cycle_fields,
    lag_fields,
    partition_fields,
    passed_ends,
    pending_fields,
    threshold_of,
    valid_through,
)
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.cycle import (
    FoldedLog,
    LandingSession,
    diverged_logs,
    headroom_now,
    lanes_in,
    ledger_states,
    plan_threshold,
    remembered,
    table_ledger,
    warnings,
)
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.iceberg import Condition, LedgerState, debt_of, unpublished
from airflow_provider_lakecommit.status.partition_status import PartitionStatus, partition_status, stale_transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table: its ledger, and the slices that wait to be published in it."""

    table: str
    condition: str
    reason: str
    snapshot_id: int | None = None
    head_id: int | None = None
    foreign_since: int = 0
    ends: Mapping[SourcePartition, int] = field(default_factory=dict)
    pending_slices: int = 0
    pending_files: int = 0
    pending_bytes: int = 0
    waiting: tuple[str, ...] = ()
    debt: TableDebt | None = None
    unpublished: int = 0
    """Rows on the landing's branch that wait for their checks, and that `main` lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of a landing. ``lanes`` are the open backfills; ``cycles`` have no COMMIT_COMPLETE yet, or were
    overtaken. ``quarantined`` are the newest ignored control records, each with its ``partition@offset``. ``stalled``
    is set if commits failed in so many cycles in a row that no window is planned. ``redundant`` counts the duplicate
    reports in the control topic: of replicas, and of attempts that were given up. ``stopped`` is why the newest cycle
    planned no window, if a user must act. ``diverged`` reports logs that have other records than were landed.
    """

    landing: str
    at: datetime
    tables: tuple[TableStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    cycles: tuple[CycleState, ...]
    blocked: tuple[str, ...]
    valid_through: datetime | None
    missing_topics: tuple[str, ...] = ()
    shortest: Headroom | None = None
    warnings: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    quarantined_count: int = 0
    signed: bool = False
    crowded: tuple[str, ...] = ()
    stalled: str = ""
    redundant: int = 0
    suspended: str = ""
    lanes: tuple[str, ...] = ()
    stopped: str = ""
    diverged: str = ""

    @property
    def lag(self) -> int:
        return sum(p.lag for p in self.partitions)


HEADROOM_SECONDS = 5.0


def read_status(session: LandingSession, every: timedelta | None = None) -> Status:
    """Read the state once.

    :param every: how often the landing runs, for the warning that its unread offsets may expire; by default derived
        from the control topic
    """
    at = session.now()
    session.source.request_retention()
    states = ledger_states(session).items()
    ledgers = [
        table_ledger(session, name, state)
        for name, state in states
        if state is not None and state.section(session.landing.name, session.lane) is not None
    ]
    source = session.source.watermarks(missing_ok=True)
    folded = _read_log(session, ledgers)
    known = {t.table for t in ledgers}
    forgotten = {
        name: "" if state else session.tables.elsewhere(name)
        for name, state in states
        if folded and name not in known and remembered(session, name)
    }
    landing_state = folded.state if folded else fold((), (), session.landing.window.completion_timeout)
    if every is None and folded is not None:
        threshold = plan_threshold(session, folded)
    else:
        threshold = threshold_of(session.landing.window.completion_timeout, every)
    headroom = headroom_now(session, landing_state, source, threshold, HEADROOM_SECONDS)
    left = {h.partition: h for h in headroom}
    stale = stale_transactions(session, source.partitions, at, HEADROOM_SECONDS)
    by_name = {t.table: t for t in ledgers}
    newest = max(landing_state.cycles.values(), key=lambda cycle: cycle.offset, default=None)
    reached = [passed_ends(t, landing_state.accepted[t.table], source.partitions) for t in ledgers]
    safe = [_safe_ends(t, landing_state.accepted[t.table], source.partitions) for t in ledgers]
    tables = tuple(
        replace(
            _table(name, state, by_name.get(name), landing_state, source.partitions, forgotten.get(name)),
            **_of_metadata(session, name),
        )
        for name, state in states
    )
    # Readers of main lack what waits on a branch, and the log does not say since when.
    whole = len(ledgers) == len(states) and not any(t.unpublished for t in tables)
    return Status(
        landing=session.landing.name,
        at=at,
        tables=tables,
        partitions=tuple(
            partition_status(p, w, reached, safe, left.get(p), p in stale) for p, w in sorted(source.partitions.items())
        ),
        cycles=tuple(landing_state.open_cycles()),
        blocked=tuple(map(str, landing_state.blocked)),
        valid_through=_valid_through(landing_state, reached) if whole else None,
        missing_topics=source.missing_topics,
        shortest=next(iter(headroom), None),
        warnings=warnings(headroom, threshold),
        quarantined=tuple(q.describe(folded.partition) for q in landing_state.quarantined) if folded else (),
        quarantined_count=landing_state.quarantined_count,
        signed=session.signed,
        crowded=(
            *(f"{name}: {state.crowding}" for name, state in states if state and state.crowding),
            *(
                f"{t.table}: handed back to connector {s.connector}"
                for t in ledgers
                if (s := t.section.sink) and s.lands
            ),
        ),
        stalled=_stalled(landing_state, ledgers, session.landing.backpressure.stalled_cycles),
        redundant=sum(len(c.redundant) for c in landing_state.cycles.values()),
        lanes=tuple(next(lane.lines()) for lane in lanes_in(session.landing.name, dict(states))),
        suspended=ledgers[0].section.suspended if ledgers else "",
        stopped="" if newest is None else newest.plan.stopped,
        diverged=diverged_logs(session, landing_state, source)[1],
    )


def _stalled(landing_state: LandingState, ledgers: Sequence[TableLedger], most: int) -> str:
    row = min((landing_state.failed_in_a_row(t.table) for t in ledgers), key=len, default=())
    return f"commits failed in {len(row)} cycles in a row; the last one: {row[-1].reason}" if len(row) >= most else ""


def _read_log(session: LandingSession, ledgers: Sequence[TableLedger]) -> FoldedLog | None:
    """Return the folded control topic; before the first cycle it may be missing, afterwards that is an error."""
    try:
        return session.read_state(ledgers)
    except ControlTopicError:
        if ledgers:
            raise
        return None


def _of_metadata(session: LandingSession, name: str) -> dict[str, Any]:
    """Return the fields of a table that come only from its metadata."""
    table, landing = session.tables.find(name), session.landing
    if table is None:
        return {}
    audited = landing.checks and landing.branch in table.metadata.refs
    waits = unpublished(table.metadata, landing.branch).rows if audited else 0
    return {"debt": debt_of(table.metadata, landing.branch, landing.maintain), "unpublished": waits}


def _table(
    name: str,
    state: LedgerState | None,
    ledger: TableLedger | None,
    landing_state: LandingState,
    partitions: Iterable[SourcePartition],
    forgotten: str | None,
) -> TableStatus:
    if state is None or ledger is None:
        condition, reason = _without_ledger(state, forgotten)
        head_id = None if state is None else state.head_id
        return TableStatus(table=name, condition=condition, reason=reason, head_id=head_id)
    staged: tuple[AcceptedSlice, ...] = tuple(a for a in landing_state.accepted[name] if a.file_count(name))
    return TableStatus(
        table=name,
        condition=str(state.condition),
        reason=state.reason,
        snapshot_id=state.snapshot_id,
        head_id=state.head_id,
        foreign_since=state.foreign_since,
        ends={p: ledger.end(p) for p in sorted(partitions)},
        pending_slices=len(staged),
        pending_files=sum(a.file_count(name) for a in staged),
        pending_bytes=sum(a.report.bytes for a in staged),
        waiting=tuple(why for _, why in settle(staged, ledger.section, ledger.others).waiting),
    )


def _without_ledger(state: LedgerState | None, forgotten: str | None) -> tuple[str, str]:
    """Return the condition of a table without a ledger of this landing, and why: if it had one, no plan continues.

    :param forgotten: set if it had one, to where the catalog's database has the table
    """
    if state is not None and state.condition not in (Condition.PRESENT, Condition.ABSENT):
        return str(state.condition), state.reason
    if forgotten is not None:
        why = forgotten or (
            "it was dropped, recreated, or rolled back to before this landing" if state else "it was dropped or renamed"
        )
        return str(Condition.LOST), f"{why}; run `{LAND}` to see how to continue"
    if state is None:
        return "missing", "the table does not exist yet"
    return str(Condition.ABSENT), "it has nothing of this landing yet"


def _safe_ends(
    ledger: TableLedger, accepted: Iterable[AcceptedSlice], partitions: Iterable[SourcePartition]
) -> dict[SourcePartition, int]:
    """Return the offsets up to which nothing must be read for a table: landed, or reported."""
    through = Coverage.union(a.coverage for a in accepted)
    return {p: (ledger.has(p) | through[p]).reach(ledger.end(p)) for p in partitions}


def _valid_through(landing_state: LandingState, reached: Sequence[Mapping[SourcePartition, int]]) -> datetime | None:
    partitions = reached[0] if reached else {}
    return valid_through(landing_state.cycles.values(), {p: min(ends[p] for ends in reached) for p in partitions})


def to_dict(status: Status) -> dict[str, Any]:
    return {
        "landing": status.landing,
        "at": status.at.isoformat(),
        "lag": status.lag,
        **lag_fields(
            read_lag=sum(p.read_lag for p in status.partitions),
            commit_lag=sum(max(0, p.lag - p.read_lag - p.removed) for p in status.partitions),
            valid_through=None if status.valid_through is None else status.valid_through.isoformat(),
        ),
        "tables": [_table_to_dict(t) for t in status.tables],
        "partitions": [
            {
                **partition_fields(
                    partition=str(p.partition), landed=p.landed, reported=p.safe, stable=p.stable, lag=p.lag
                ),
                "topic_id": p.partition.topic_id,
                "start": p.start,
                "high": p.high,
                "held_up": p.open_transactions,
                "stale_transaction": p.stale_transaction,
                "kept": p.kept,
                "headroom": None if p.headroom is None else _headroom_to_dict(p.headroom),
            }
            for p in status.partitions
        ],
        "cycles": [_cycle_to_dict(c, status.at) for c in status.cycles],
        "blocked": list(status.blocked),
        "missing_topics": list(status.missing_topics),
        "warnings": [*status.warnings, *status.crowded],
        "signed": status.signed,
        "stalled": status.stalled or None,
        "redundant": status.redundant,
        "suspended": status.suspended or None,
        "lanes": list(status.lanes),
        "stopped": status.stopped or None,
        "diverged": status.diverged or None,
        "quarantined": {"count": status.quarantined_count, "newest": list(status.quarantined)},
    }


def _headroom_to_dict(h: Headroom) -> dict[str, Any]:
    kept = h.retention
    return {
        "oldest_unread": h.offset,
        "known": kept is not None and (kept.time is None or h.due is not None),
        "expires_at": None if h.expires_at is None else h.expires_at.isoformat(),
        "seconds": None if h.left is None else h.left.total_seconds(),
        "retention_seconds": None if kept is None or kept.time is None else kept.time.total_seconds(),
        "retention_bytes": None if kept is None else kept.bytes,
        "text": str(h),
    }


def _table_to_dict(t: TableStatus) -> dict[str, Any]:
    return {
        "table": t.table,
        "condition": t.condition,
        "reason": t.reason,
        "snapshot_id": t.snapshot_id,
        "head_id": t.head_id,
        "foreign_since": t.foreign_since,
        "ends": {str(p): end for p, end in t.ends.items()},
        "debt": None if t.debt is None else t.debt.to_dict(),
        "unpublished": t.unpublished,
        "pending": pending_fields(slices=t.pending_slices, files=t.pending_files, bytes=t.pending_bytes),
        "waiting": list(t.waiting),
    }


def _cycle_to_dict(state: CycleState, now: datetime) -> dict[str, Any]:
    return {
        **cycle_fields(commit_id=str(state.cycle.commit_id), dag=state.cycle.dag, run=state.cycle.run),
        "began": state.at.isoformat(),
        "deadline": state.ends(now).isoformat(),
        "live": state.live(now),
        "released": state.released,
        "claim": str(state.claim),
        "unfinished": len(state.unfinished),
        "failed_attempts": dict(state.failed),
    }
