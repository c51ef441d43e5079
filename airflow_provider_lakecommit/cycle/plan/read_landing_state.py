# SPDX-License-Identifier: Apache-2.0
"""Read what a window of a landing's state depends on.

Contract: nothing is written. The state is that of :func:`~airflow_provider_lakecommit.cycle.plan.ready_tables.read`.

Failure story: errors are those of the reads; lost offsets, replaced logs and tables that writers cannot fill are errors
too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from uuid import UUID

from airflow_provider_lakecommit.control import MAX_SLICES
from airflow_provider_lakecommit.core import (
    LIVE,
    MEASURED,
    RESET_OFFSETS,
    Coverage,
    LandingState,
    Missing,
    Plan,
    PlanInputs,
    Raised,
    Terms,
    WindowCost,
    WindowLimits,
    lifted,
    needs_size_check,
    newest,
    own_budget,
    sized,
    source_notes,
)
from airflow_provider_lakecommit.core.blocks import outdated, without
from airflow_provider_lakecommit.cycle.plan.column_check import ColumnCheck, check_sql, column_check, is_due, stops
from airflow_provider_lakecommit.cycle.plan.dispositions import given_up, rules_now
from airflow_provider_lakecommit.cycle.plan.facts import Facts, planned
from airflow_provider_lakecommit.cycle.plan.headroom_watch import PLAN_SECONDS
from airflow_provider_lakecommit.cycle.plan.ready_tables import Prepared, Reading
from airflow_provider_lakecommit.cycle.plan.reports import missing_ranges
from airflow_provider_lakecommit.cycle.plan.truncation_check import check_logs
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.secrets import vended_of
from airflow_provider_lakecommit.cycle.session.tables import check_unless_filled
from airflow_provider_lakecommit.formats import check_registry
from airflow_provider_lakecommit.iceberg import SnapshotKind, debt_of, landing_snapshots
from airflow_provider_lakecommit.kafka import SourceState, sizes
from airflow_provider_lakecommit.landing import Landing, Window

HISTORY = 50
"""Most appends to read for the duration of windows."""


def observe(
    session: LandingSession,
    reading: Reading,
    *,
    released: Collection[UUID],
    logged: Collection[str] = (),
    columns: ColumnCheck | None = None,
) -> Facts:
    """Read what a plan of this state depends on.

    :param released: cycles whose claims end with the plan
    :param logged: tables whose problems are already logged
    :param columns: an earlier result, whose records are reused for the same window
    :raises SourceError: offsets are lost, the log was replaced, or the records cannot be read
    :raises SourceUnavailableError: the brokers do not answer
    :raises TableError: a table cannot be filled
    :raises LedgerError: a record could end in two tables of the landing, or in none
    """
    landing, prepared, source, now = session.landing, reading.prepared, reading.source, session.now()
    state, raised, lines = _retried(landing, reading)
    for line in lines:
        session.log(line)
    voided = given_up(landing, prepared, state, source.partitions)
    check_registry(landing, session.kafka)
    check_unless_filled(landing, prepared.targets, state)
    diverged, why_diverged = check_logs(session, state, source)
    state = without(state, voided)
    missing = missing_ranges(session, state, source, state.claims(now, released), diverged)
    _report_removed(session, missing)
    limits, notes = _window_limits(landing, session.lane, prepared, missing.coverage)
    if needs_size_check(missing.coverage, limits):
        # Earlier windows say little about a large backlog.
        limits = replace(limits, sizes=sizes(session.kafka, missing.coverage))
    debts = ((t.name, debt_of(t.table.metadata, landing.branch, landing.maintain)) for t in prepared.tables)
    given = PlanInputs(
        landing=landing.name,
        lane=session.lane,
        spec_version=landing.spec_version,
        source=source.partitions,
        requested_at=source.requested_at,
        now=now,
        targets=prepared.targets,
        vended=vended_of(session.tables, prepared.epochs),
        limits=limits,
        terms=Terms(
            budget=landing.pending_budget,
            stalled_cycles=landing.backpressure.stalled_cycles,
            slow_down=landing.backpressure.slow_down,
            suspended=prepared.suspended,
            logged=frozenset(logged),
        ),
        released=released,
        debts={name: debt for name, debt in debts if debt is not None},
        diverged=why_diverged,
    )
    of_source = _source_notes(session, state, source) if session.lane == LIVE else ()
    plan, explain = planned(landing, prepared, state, missing, given)
    # A blocked range may wait for a column that its report names.
    evolves = landing.evolve != "none" and (plan.slices or (state.blocked and not prepared.suspended))
    return Facts(
        landing=landing,
        reading=reading,
        retried=raised,
        voided=voided,
        given=given,
        plan=plan,
        explain=explain,
        notes=notes,
        of_source=of_source,
        columns=_columns(session, reading, plan, missing, columns) if evolves else None,
    )


def _retried(landing: Landing, reading: Reading) -> tuple[LandingState, tuple[Raised, ...], tuple[str, ...]]:
    """Return the state without blocks of an older spec or older columns, the START's notes on them, and log lines."""
    state = reading.log.state
    blocks = outdated(state, landing.spec_version, rules_now(landing, reading.prepared))
    lines = (f"retrying {b.coverage}: the spec or the table changed since it was blocked" for b in blocks)
    state, raised = lifted(state, blocks, own_budget(landing.budget, landing.dead_letter_table))
    return state, tuple(raised), tuple(lines)


def _report_removed(session: LandingSession, missing: Missing) -> None:
    for table, behind in missing.removed.items():
        session.log(
            f"{table} lacks {behind}, which {session.landing.table} has and the source has removed: newer records wait "
            f"after it; to continue without it: `{RESET_OFFSETS} SPEC --from earliest`"
        )


def _source_notes(session: LandingSession, landing_state: LandingState, source: SourceState) -> tuple[str, ...]:
    landed = Coverage.union(t.all_covered for t in landing_state.ledgers.values())
    if {p.topic for p in source.partitions} <= {p.topic for p in landed.parts}:
        return ()
    compacted = [topic for topic, kept in session.source.retentions(PLAN_SECONDS).items() if kept.compacted]
    earliest = session.landing.window.start == "earliest"
    return tuple(source_notes(source.partitions, landed, compacted, earliest=earliest))


def _columns(
    session: LandingSession, reading: Reading, plan: Plan, missing: Missing, before: ColumnCheck | None
) -> ColumnCheck:
    """Return the columns that the records of the planned window need."""
    landing = session.landing
    check = column_check(session, reading.prepared, reading.log, plan.coverage, missing, before)
    if before is None or before.ranges != check.ranges:
        for line in check.not_made:
            session.log(line if landing.routing else f"{landing.table}: {line}")
    if not (stops(landing, check) or is_due(landing, check)):
        check_sql(landing, reading.prepared, check)
    return check


def _window_limits(
    landing: Landing, lane: str, prepared: Prepared, missing: Coverage
) -> tuple[WindowLimits, tuple[str, ...]]:
    """Return the limits of the next window, and their reason if they are derived from a declared target and the newest
    windows.
    """
    limits = WindowLimits(
        groups=landing.window.groups or 1,
        slice_records=landing.window.slice_records,
        max_records=landing.window.max_records,
        max_bytes=landing.window.max_bytes,
        max_slices=MAX_SLICES,
        record_bytes=max((t.section.record_bytes for t in prepared.ledgers), default=0),
        by_load=landing.window.group_by == "load",
    )
    if landing.window.target is None and landing.window.target_file_size is None:
        return limits, ()
    return sized(
        limits,
        _costs(landing, lane, prepared),
        missing=sorted(missing.parts),
        records=len(missing),
        window_seconds=None if landing.window.target is None else landing.window.target.total_seconds(),
        file_bytes=landing.window.target_file_size,
        slice_limit=stated if (stated := landing.window.slice_records) != Window.slice_records else None,
    )


def _costs(landing: Landing, lane: str, prepared: Prepared) -> tuple[WindowCost, ...]:
    data = next(t for t in prepared.tables if t.name == landing.table)
    found = landing_snapshots(data.table.metadata, landing.branch, landing=landing.name, lane=lane)
    appends = (r for r in found if r.kind is SnapshotKind.APPEND)
    return newest(r.extra.get(MEASURED) for r in islice(appends, HISTORY))
