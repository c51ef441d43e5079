# SPDX-License-Identifier: Apache-2.0
"""Open a cycle: read, decide what is missing, claim it with a START_COMMIT, read back what was granted.

Contract: one START_COMMIT per cycle, even if there is nothing to do (its plan then has the reason). If two planners
race, the log orders them, and the later one keeps what the earlier did not claim. A retry of the same run continues its
open cycle with the same plan; a run whose cycle is over opens none, and gets the ranges of its window that no table
has.

:mod:`~airflow_provider_lakecommit.core.planning.decide` decides what is planned; this module reads its inputs and sends
    its result. If the window's records need other columns of the data table, these are changed first
    (:mod:`~airflow_provider_lakecommit.cycle.plan.evolving`), and everything is read again. A refused window opens with
    an empty plan, so that its commit can drain pending slices.

Failure story: without the catalog the cycle still opens, with an empty plan, so that the failure is counted. If the
landing has never reached its tables, it raises and opens nothing, as the address is probably wrong; so it does if the
source is unavailable or has lost offsets, or the storage is not writable. A fenced planner retries with the next slot.
If two planners race, the one that is later in the log is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.committer import debt_of
from airflow_provider_lakecommit.core import (
    LIVE,
    RESET_OFFSETS,
    Coverage,
    Cycle,
    Directives,
    LandingState,
    Plan,
    PlanInputs,
    Raised,
    Refuse,
    TableDebt,
    Terms,
    abandoned,
    catalog_away,
    decide_plan,
    free_slot,
    lifted,
    lopsided,
    needs_size_check,
    own_budget,
    rules_of,
    schemas_of,
    source_notes,
    spec_waits,
)
from airflow_provider_lakecommit.core import empty_plan as nothing_planned
from airflow_provider_lakecommit.core.blocked_slices import without
from airflow_provider_lakecommit.core.retry import outdated
from airflow_provider_lakecommit.cycle.plan.epochs import SpecWaits
from airflow_provider_lakecommit.cycle.plan.evolving import ColumnStep
from airflow_provider_lakecommit.cycle.plan.fates import check_agreement, check_fates, given_up
from airflow_provider_lakecommit.cycle.plan.headroom import PLAN_SECONDS, ask, plan_lines, plan_threshold
from airflow_provider_lakecommit.cycle.plan.limits import window_limits
from airflow_provider_lakecommit.cycle.plan.resume import FoundCycle, look_back, seen, ticket_of
from airflow_provider_lakecommit.cycle.plan.source_look import as_new_as_tables
from airflow_provider_lakecommit.cycle.plan.stated import upsert_lines, warnings_of, without_line
from airflow_provider_lakecommit.cycle.plan.tables import Prepared, prepare
from airflow_provider_lakecommit.cycle.plan.truncation import check_logs
from airflow_provider_lakecommit.cycle.plan.unbelieved import missing_or_told
from airflow_provider_lakecommit.cycle.results import CycleTicket, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import (
    FoldedLog,
    LandingSession,
    RunIdentity,
    cycle_id_of,
)
from airflow_provider_lakecommit.cycle.session.secrets import vended_of
from airflow_provider_lakecommit.cycle.session.targets import check_unless_filled, contradiction
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    CommitUnknownError,
    ControlTopicError,
    FencedError,
    StorageError,
)
from airflow_provider_lakecommit.formats import check_registry
from airflow_provider_lakecommit.kafka import SourceState, sizes

MAX_RACES = 8
"""How often a fenced planner retries before it gives up."""

Release = Callable[[Cycle], bool]


def open_cycle(
    session: LandingSession,
    run: RunIdentity,
    *,
    retry: bool = False,
    release: Release = lambda _: False,
    told: Collection[str] = (),
) -> Opened:
    """Open, or continue, the cycle of a run.

    :param retry: search the whole log for this run's cycle first; otherwise a finished cycle that no ledger needs is
        not found, and is opened again under its id
    :param release: decides which open cycles are of dead processes, so that their claims end
    :param told: tables whose problems are already logged
    :raises SourceError: offsets are lost, or the topic or its log was replaced
    :raises SourceUnavailableError: the source brokers do not answer
    :raises TableError: a table is missing or cannot take the rows
    :raises StorageError: a table could not be made, or its ledger not be written
    :raises CatalogError: it does not answer, and the landing has never read its tables
    :raises LedgerError: a ledger needs an operator, or a range cannot be read for one table alone
    :raises ControlTopicError: the control topic cannot be read or written
    """
    commit_id = cycle_id_of(session, run)
    session.source.request_retention()
    source = session.source.watermarks()
    session.control.ensure()
    past = look_back(session, commit_id) if retry else None
    foreign, columns = set[UUID](), ColumnStep(session)
    for _ in range(MAX_RACES):
        try:
            columns.change()
            prepared = prepare(session, source)
        except StorageError:
            # The catalog is available, so an empty commit would succeed: the plan has to fail.
            raise
        except (CatalogError, CommitUnknownError, SpecWaits) as e:
            if isinstance(e, CatalogError) and past is None and not _was_reached(session):
                # The catalog's address is probably wrong, and the plan is the first to report it.
                raise
            return _opened_without_tables(session, run, e, past, release)
        folded = session.read_state(prepared.ledgers)
        source = as_new_as_tables(session, folded.state, source)
        if (before := seen(session, folded, commit_id) or past) is not None:
            if not _is_foreign(session, prepared, before):
                return before.opened(session, folded.state)
            foreign.add(commit_id)
            run, past = replace(run, number=run.number + 1), None
            commit_id = cycle_id_of(session, run)
            continue
        released = abandoned(folded.state, _dead(folded.state, release) | foreign)
        planned, raised = _tried_again(session, prepared, folded)
        voided = given_up(session, prepared, planned.state, source.partitions)
        plan, explain = _decide(session, prepared, planned, source, released, voided, columns, told)
        if columns.due:
            continue
        headroom = ask(session, folded.state, source, plan_threshold(session, folded))
        for reason in voided.values():
            session.log(f"voided {reason}")
        said = Directives(released=released, voided=tuple(voided), raised=raised)
        after = _start(session, run, folded, plan, said)
        # The next read evaluates a plan that came between this read and the START.
        if after is not None and after.just_opened(commit_id).plan == plan:
            explain = (*explain, *_lines(session, prepared, told), *plan_lines(session, headroom))
            return replace(_just_opened(session, after, commit_id), explain=explain)
    raise _fenced(session)


def _is_foreign(session: LandingSession, prepared: Prepared, found: FoundCycle) -> bool:
    """Return True if the tables contradict the plan of an open cycle. Then another program sent it, or a table was
    recreated since. Nothing is written by it, and the run continues as a further cycle.
    """
    tables = {t.name: t.table for t in prepared.tables}
    if found.state.over or (what := contradiction(found.state.plan, tables, prepared.failures)) is None:
        return False
    where = f"offset {found.state.offset} of {session.control.name}[{found.ticket.partition}]"
    session.log(
        f"ignored the plan of cycle {found.state.cycle.commit_id} at {where}: {what}; the ranges it claimed are free. "
        "Check which other programs write to that topic"
    )
    return True


def _not_held(opened: Opened) -> Opened:
    """Return a plan found while no table was readable: writers check it against the tables first."""
    return replace(opened, ticket=replace(opened.ticket, plan=""), state=None)


def preview(session: LandingSession) -> Opened:
    """Return the plan that a cycle would make now. Writes no control record, but creates a missing control topic."""
    session.source.request_retention()
    source = session.source.watermarks()
    session.control.ensure()
    prepared = prepare(session, source, dry=True)
    folded = session.read_state(prepared.ledgers)
    source = as_new_as_tables(session, folded.state, source)
    headroom = ask(session, folded.state, source, plan_threshold(session, folded))
    planned, _ = _tried_again(session, prepared, folded)
    voided = given_up(session, prepared, planned.state, source.partitions)
    plan, lines = _decide(session, prepared, planned, source, abandoned(folded.state, ()), voided, ColumnStep(session))
    explain = (*lines, *_lines(session, prepared), *plan_lines(session, headroom))
    ticket = CycleTicket(
        landing=session.landing.name,
        lane=session.lane,
        commit_id=UUID(int=0),
        slot=0,
        partition=folded.partition,
        read_from=folded.read_from,
    )
    return Opened(ticket=ticket, plan=plan, slices=plan.slices, explain=explain)


def start_without_tables(
    session: LandingSession, run: RunIdentity, why: str | Refuse, release: Release = lambda _: False
) -> Opened:
    """Open a cycle with an empty plan if no ledger can be read.

    :param release: as for :func:`open_cycle`
    """
    commit_id = cycle_id_of(session, run)
    for _ in range(MAX_RACES):
        folded = session.read_state(())
        if (before := seen(session, folded, commit_id)) is not None:
            return _not_held(before.opened(session, None))
        released = abandoned(folded.state, _dead(folded.state, release))
        after = _start(session, run, folded, empty_plan(session, why), Directives(released=released))
        if after is not None:
            return _just_opened(session, after, commit_id)
    raise _fenced(session)


def _opened_without_tables(
    session: LandingSession, run: RunIdentity, error: Exception, past: FoundCycle | None, release: Release
) -> Opened:
    """Return a cycle of a landing whose tables cannot be planned for now; the run's own, if it has one."""
    waits = isinstance(error, SpecWaits)
    if past is not None:
        if not waits:
            session.log(f"the catalog is unreachable, only the earlier plan of this run is known: {error}")
        return _not_held(past.opened(session, None))
    session.log(f"{'' if waits else 'WARNING: catalog unreachable, '}opened the cycle with an empty plan: {error}")
    why = spec_waits(error.table, str(error)) if isinstance(error, SpecWaits) else catalog_away(error)
    return start_without_tables(session, run, why, release)


def _was_reached(session: LandingSession) -> bool:
    """Return True if the landing ever reached its tables, as far back as the control topic goes."""
    return any(c.complete or c.plan.ends for c in session.read_state(()).state.cycles.values())


def _lines(session: LandingSession, prepared: Prepared, told: Collection[str] = ()) -> tuple[str, ...]:
    """Return what the plan's explanation says of the tables; new warnings are also logged."""
    for line in (lines := warnings_of(session.landing, prepared, told)):
        session.log(f"WARNING: {line}")
    known = (without_line(name) for name in prepared.failures if name in told)
    return (*known, *lines, *upsert_lines(session.landing, prepared))


def _fenced(session: LandingSession) -> ControlTopicError:
    name = session.landing.name
    return ControlTopicError("LC6009", f"landing {name}: fenced {MAX_RACES} times while opening a cycle; try again")


def _dead(landing_state: LandingState, release: Release) -> set[UUID]:
    return {c.cycle.commit_id for c in landing_state.open_cycles() if not c.released and release(c.cycle)}


def _decide(
    session: LandingSession,
    prepared: Prepared,
    folded: FoldedLog,
    source: SourceState,
    released: Collection[UUID],
    voided: Collection[UUID],
    columns: ColumnStep,
    told: Collection[str] = (),
) -> tuple[Plan, tuple[str, ...]]:
    """Read the inputs of the decision, and decide on the state after the START has released and voided."""
    landing, now = session.landing, session.now()
    check_registry(landing, session.kafka)
    check_unless_filled(landing, prepared.targets, folded.state)
    diverged = check_logs(session, folded.state, source)
    landing_state = without(folded.state, voided)
    missing = missing_or_told(session, landing_state, source, landing_state.claims(now, released), diverged.partitions)
    for table, behind in missing.removed.items():
        session.log(
            f"{table} lacks {behind}, which {landing.table} has and the source has removed: newer records wait after "
            f"it; to continue without it: `{RESET_OFFSETS} SPEC --from earliest`"
        )
    if not prepared.suspended:
        check_agreement(session, prepared, source.partitions)
        check_fates(session, prepared, landing_state, missing, source.partitions)
    limits, sizes_told = window_limits(session, prepared, missing.coverage)
    if needs_size_check(missing.coverage, limits):
        # Earlier windows say little about a large backlog.
        limits = replace(limits, sizes=sizes(session.kafka, missing.coverage))
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
            logged=frozenset(told),
        ),
        released=released,
        debts=_debts(session, prepared),
        diverged=diverged.text,
    )
    plan, explain = decide_plan(landing_state, missing, given)
    plan, of_columns = columns.judged(prepared, folded, plan, missing)
    if plan.refused:
        session.log(f"{'WARNING: not all is planned' if plan.slices else 'no window is planned'}: {plan.reason}")
    notes = _source_notes(session, landing_state, source) if session.lane == LIVE else ()
    if not plan.slices and not plan.refused and notes:
        plan = replace(plan, reason="; ".join([str(plan.reason), *notes]))
    elif plan.slices:
        for note in notes:
            session.log(f"WARNING: {note}")
        explain = (*notes, *sizes_told, *explain, *(() if limits.by_load else lopsided(plan.slices, limits)))
    return plan, (*explain, *of_columns)


def _source_notes(session: LandingSession, landing_state: LandingState, source: SourceState) -> tuple[str, ...]:
    landed = Coverage.union(t.all_covered for t in landing_state.ledgers.values())
    if {p.topic for p in source.partitions} <= {p.topic for p in landed.parts}:
        return ()
    compacted = [topic for topic, kept in session.source.retentions(PLAN_SECONDS).items() if kept.compacted]
    earliest = session.landing.window.start == "earliest"
    return tuple(source_notes(source.partitions, landed, compacted, earliest=earliest))


def _debts(session: LandingSession, prepared: Prepared) -> dict[str, TableDebt]:
    landing = session.landing
    found = ((t.name, debt_of(t.table.metadata, landing.branch, landing.maintain)) for t in prepared.tables)
    return {name: debt for name, debt in found if debt is not None}


def _tried_again(
    session: LandingSession, prepared: Prepared, folded: FoldedLog
) -> tuple[FoldedLog, tuple[Raised, ...]]:
    """Return the state without blocks of an older spec or older columns, and the START's notes on them."""
    landing = session.landing
    rules = rules_of(landing.decoding_hash, *schemas_of(landing.destinations, prepared.targets))
    blocks = outdated(folded.state, landing.spec_version, rules)
    for b in blocks:
        session.log(f"retrying {b.coverage}: the spec or the table changed since it was blocked")
    state, raised = lifted(folded.state, blocks, own_budget(landing.budget, landing.dead_letter_table))
    return replace(folded, state=state), tuple(raised)


def empty_plan(session: LandingSession, why: str | Refuse) -> Plan:
    """Return the plan of a cycle with nothing to do, with the reason."""
    name, spec_version = session.landing.name, session.landing.spec_version
    return nothing_planned(name, session.lane, spec_version, session.now(), why)


def new_cycle(
    session: LandingSession, run: RunIdentity, landing_state: LandingState, released: Collection[UUID] = ()
) -> Cycle:
    """Return a new cycle of a run, in its own slot."""
    return Cycle(
        commit_id=cycle_id_of(session, run),
        dag=run.dag_id,
        run=run.run_id,
        number=run.number,
        slot=free_slot(landing_state, released),
        deployment=run.deployment,
        turn=run.turn,
    )


def _start(
    session: LandingSession, run: RunIdentity, folded: FoldedLog, plan: Plan, directives: Directives
) -> FoldedLog | None:
    """Send the START_COMMIT, and read what was granted; return ``None`` if another planner was faster."""
    cycle = new_cycle(session, run, folded.state, directives.released)
    try:
        sent = send_start(session, folded.partition, cycle, plan, directives)
    except FencedError:
        session.log("another planner of this landing was faster; planning again")
        return None
    return session.read_state(folded.ledgers, since=folded, until=sent)


def send_start(session: LandingSession, partition: int, cycle: Cycle, plan: Plan, directives: Directives) -> int:
    """Send the START_COMMIT; return its offset."""
    start = session.sender("plan", cycle.commit_id).opened(session.new_id(), session.now(), cycle, plan, directives)
    return session.send("plan", cycle, partition, [start])


def _just_opened(session: LandingSession, folded: FoldedLog, commit_id: UUID) -> Opened:
    """Return the cycle as the log has it now, after the START."""
    state = folded.just_opened(commit_id)
    found = FoundCycle(state=state, ticket=ticket_of(session, state, folded.partition, state.since))
    return Opened(ticket=found.ticket, plan=state.plan, slices=found.granted, explain=(), state=state)
