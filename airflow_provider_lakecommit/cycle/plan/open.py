# SPDX-License-Identifier: Apache-2.0
"""Open a cycle: observe, decide what is missing, claim it with a START_COMMIT, read back what was granted.

Contract: one START_COMMIT per cycle, even if there is nothing to do (its plan then has the reason). If two planners
race, the log orders them, and the later one keeps what the earlier did not claim. A retry of the same run continues its
open cycle with the same plan; a run whose cycle is over opens none, and gets the ranges of its window that no table
has. If the window's records need other columns of the data table, these are changed first
(:mod:`~airflow_provider_lakecommit.cycle.plan.column_check`), and everything is read again. A refused window opens with
an empty plan, so that its commit can drain pending slices.

Four steps: :func:`~airflow_provider_lakecommit.cycle.plan.ready_tables.read` makes the tables ready and reads them,
:mod:`~airflow_provider_lakecommit.cycle.plan.read_landing_state` reads what the window depends on,
:func:`~airflow_provider_lakecommit.cycle.plan.facts.decide` decides, and
:mod:`~airflow_provider_lakecommit.cycle.plan.start` sends. They are repeated after a lost race, a change of columns, or
a cycle of another program under this run's id.

Failure story: without the catalog the cycle still opens, with an empty plan, so that the failure is counted. If the
landing has never reached its tables, it raises and opens nothing, as the address is probably wrong; so it does if the
source is unavailable or has lost offsets, or the storage is not writable. A fenced planner retries with the next slot.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core import Coverage, Decision, OffsetRange, abandoned
from airflow_provider_lakecommit.cycle.plan.column_check import ColumnCheck, column_check, evolve, is_due
from airflow_provider_lakecommit.cycle.plan.facts import Facts, decide
from airflow_provider_lakecommit.cycle.plan.headroom_watch import plan_lines, plan_threshold, request
from airflow_provider_lakecommit.cycle.plan.ledger_upkeep import SpecWaits
from airflow_provider_lakecommit.cycle.plan.read_landing_state import observe
from airflow_provider_lakecommit.cycle.plan.ready_tables import Reading, read
from airflow_provider_lakecommit.cycle.plan.reports import missing_ranges
from airflow_provider_lakecommit.cycle.plan.start import (
    MAX_RACES,
    FoundCycle,
    Release,
    cycle_in,
    dead_cycles,
    fenced,
    find_cycle,
    opened_without_tables,
    start,
)
from airflow_provider_lakecommit.cycle.results import CycleTicket, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity, cycle_id_of
from airflow_provider_lakecommit.cycle.session.tables import contradiction
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError, StorageError
from airflow_provider_lakecommit.formats import Change
from airflow_provider_lakecommit.kafka import SourceState


def open_cycle(
    session: LandingSession,
    run: RunIdentity,
    *,
    retry: bool = False,
    release: Release = lambda _: False,
    logged: Collection[str] = (),
) -> Opened:
    """Open, or continue, the cycle of a run.

    :param retry: search the whole log for this run's cycle first; otherwise a finished cycle that no ledger needs is
        not found, and is opened again under its id
    :param release: decides which open cycles are of dead processes, so that their claims end
    :param logged: tables whose problems are already logged
    :raises SourceError: offsets are lost, or the topic or its log was replaced
    :raises SourceUnavailableError: the source brokers do not answer
    :raises TableError: a table is missing or cannot take the rows
    :raises StorageError: a table could not be made, or its ledger not be written
    :raises CatalogError: it does not answer, and the landing has never read its tables
    :raises LedgerError: a ledger needs an operator, or a range cannot be read for one table alone
    :raises ControlTopicError: the control topic cannot be read or written
    """
    commit_id, source = cycle_id_of(session, run), _read_source(session)
    past = find_cycle(session, commit_id) if retry else None
    foreign, columns = set[UUID](), None
    for _ in range(MAX_RACES):
        try:
            columns = _evolved(session, columns)
            reading = read(session, source)
        except StorageError:
            # The catalog is available, so an empty commit would succeed: the plan has to fail.
            raise
        except (CatalogError, CommitUnknownError, SpecWaits) as e:
            return opened_without_tables(session, run, e, past, release)
        log, source = reading.log, reading.source
        if (before := cycle_in(session, log, commit_id) or past) is not None:
            if not _is_foreign(session, reading, before):
                return before.continued(session, log.state)
            foreign.add(commit_id)
            run, past = replace(run, number=run.number + 1), None
            commit_id = cycle_id_of(session, run)
            continue
        released = abandoned(log.state, dead_cycles(log.state, release) | foreign)
        facts = observe(session, reading, released=released, logged=logged, columns=columns)
        columns = facts.columns or columns
        if is_due(session.landing, columns):
            continue
        if (opened := _started(session, run, facts)) is not None:
            return opened
    raise fenced(session)


def _started(session: LandingSession, run: RunIdentity, facts: Facts) -> Opened | None:
    """Begin the cycle as decided; return ``None`` if its plan was not taken over as it is."""
    decision, log = decide(facts), facts.reading.log
    for line in (*decision.lines, *(f"voided {why}" for why in facts.voided.values())):
        session.log(line)
    headroom = request(session, log.state, facts.reading.source, plan_threshold(session, log))
    found = start(session, run, log, decision.plan, decision.directives)
    # The next read evaluates a plan that came between this read and the START.
    if found is None or found.state.plan != decision.plan:
        return None
    for line in decision.warnings:
        session.log(f"WARNING: {line}")
    return found.begun((*decision.explain, *plan_lines(session, headroom)))


def preview(session: LandingSession) -> Opened:
    """Return the plan that a cycle would make now. Writes no control record, but creates a missing control topic."""
    reading = read(session, _read_source(session), dry=True)
    log = reading.log
    headroom = request(session, log.state, reading.source, plan_threshold(session, log))
    decision = decide(observe(session, reading, released=abandoned(log.state, ())))
    for line in (*decision.lines, *(f"WARNING: {line}" for line in decision.warnings)):
        session.log(line)
    ticket = CycleTicket(
        landing=session.landing.name,
        lane=session.lane,
        commit_id=UUID(int=0),
        slot=0,
        partition=log.partition,
        read_from=log.read_from,
    )
    explain = (*decision.explain, *plan_lines(session, headroom))
    return Opened(ticket=ticket, plan=decision.plan, slices=decision.plan.slices, explain=explain)


def evolve_now(
    session: LandingSession, decision: Decision | None
) -> tuple[tuple[str, ...], dict[str, tuple[Change, ...]]]:
    """Change the columns without a window: for the records that no table has yet, or, if there are none, all that the
    source has, whatever the landing's ``evolve`` is. Return the findings as lines, and the changes by table.

    :param session: of a landing whose ``evolve`` limits the changes
    :param decision: the operator's decision; ``None``: write nothing
    :raises LakecommitError: an error that would keep a window from being planned
    """
    source = session.source.watermarks()
    session.control.ensure()
    reading = read(session, source, dry=decision is None)
    state = reading.log.state
    missing = missing_ranges(session, state, reading.source, state.claims(session.now(), ()))
    marks = reading.source.partitions.items()
    everything = Coverage.of((p, OffsetRange(w.start, w.stable)) for p, w in marks if w.start < w.stable)
    check = column_check(session, reading.prepared, reading.log, missing.coverage or everything, missing)
    if decision is None or check.waits or not check.changes:
        return check.lines, {}
    changes = [f"{one.table}: {c}" if one.named else str(c) for one in check.tables for c in one.found.changes]
    decided = replace(decision, what="; ".join(changes))
    return check.not_made, evolve(session, check, decided)


def _read_source(session: LandingSession) -> SourceState:
    session.source.request_retention()
    source = session.source.watermarks()
    session.control.ensure()
    return source


def _evolved(session: LandingSession, columns: ColumnCheck | None) -> ColumnCheck | None:
    """Change the columns, if that is due.

    :raises CommitUnknownError: the result of a request cannot be determined in time
    :raises CatalogError: the catalog is unavailable
    """
    if columns is None or not is_due(session.landing, columns):
        return columns
    evolve(session, columns)
    return replace(columns, tried=True)


def _is_foreign(session: LandingSession, reading: Reading, found: FoundCycle) -> bool:
    """Return True if the tables contradict the plan of an open cycle. Then another program sent it, or a table was
    recreated since. Nothing is written by it, and the run continues as a further cycle.
    """
    prepared = reading.prepared
    tables = {t.name: t.table for t in prepared.tables}
    if found.state.over or (what := contradiction(found.state.plan, tables, prepared.failures)) is None:
        return False
    where = f"offset {found.state.offset} of {session.control.name}[{found.ticket.partition}]"
    session.log(
        f"ignored the plan of cycle {found.state.cycle.commit_id} at {where}: {what}; the ranges it claimed are free. "
        "Check which other programs write to that topic"
    )
    return True
