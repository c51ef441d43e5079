# SPDX-License-Identifier: Apache-2.0
"""The cycle of a run: found in the log, or begun.

Contract: to begin, one START_COMMIT is sent in a slot of its own, and what was granted is read back. Where no ledger
can be read, the cycle begins with an empty plan. An open cycle is continued with its plan. A finished one (complete,
closed by a later cycle, or released because its run was abandoned) gets no more work; the result says what became of
its window. Finding writes nothing.

Failure story: of two planners that race, the one that is later in the log is fenced, and nothing of its START is
stored. A cycle that the log no longer has (retention) counts as nonexistent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from airflow_provider_lakecommit.control import plan_digest, read_entries
from airflow_provider_lakecommit.core import (
    Cycle,
    CycleClosed,
    CycleOpened,
    CycleState,
    Directives,
    Entry,
    LandingState,
    Plan,
    Refuse,
    Slice,
    abandoned,
    catalog_away,
    free_slot,
    granted,
    spec_waits,
)
from airflow_provider_lakecommit.core import empty_plan as nothing_planned
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.cycle.plan.known import all_entries
from airflow_provider_lakecommit.cycle.plan.ledger_upkeep import SpecWaits
from airflow_provider_lakecommit.cycle.results import CycleTicket, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import (
    FoldedLog,
    LandingSession,
    RunIdentity,
    cycle_id_of,
)
from airflow_provider_lakecommit.exceptions import CatalogError, ControlTopicError, FencedError

MAX_RACES = 8
"""How often a fenced planner retries before it gives up."""

Release = Callable[[Cycle], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCycle:
    """A cycle that was found, with its place. ``valid_through`` comes from its COMPLETE."""

    state: CycleState
    ticket: CycleTicket
    valid_through: datetime | None = None

    @property
    def granted(self) -> tuple[Slice, ...]:
        """Return its slices, without those of earlier claims."""
        return granted(self.state.plan, self.state.claim)

    def begun(self, explain: tuple[str, ...] = ()) -> Opened:
        """Return it as a cycle that was opened just now."""
        return Opened(ticket=self.ticket, plan=self.state.plan, slices=self.granted, explain=explain, state=self.state)

    def continued(self, session: LandingSession, landing_state: LandingState | None) -> Opened:
        """Return it as the plan step would; without a ``landing_state`` of the tables their gaps are unknown."""
        state = self.state
        if not state.over:
            return replace(self.begun(), note="continues the cycle that this run opened before")
        lacking = landing_state.lacking(self.granted) if landing_state else ()
        note = where_it_is(session, state, lacking if landing_state else None)
        return Opened(
            ticket=self.ticket, plan=state.plan, slices=(), explain=(), finished=True, lacking=lacking, note=note
        )


def start_without_tables(
    session: LandingSession,
    run: RunIdentity,
    why: str | Refuse,
    release: Release = lambda _: False,
    *,
    error: CatalogError | None = None,
) -> Opened:
    """Open a cycle with an empty plan if no ledger can be read.

    :param release: as for :func:`open_cycle`
    :param error: raised if the landing has never read its tables: then the catalog's address is probably wrong, and the
        plan is the first to report it
    """
    commit_id = cycle_id_of(session, run)
    for _ in range(MAX_RACES):
        folded = session.read_state(())
        if error is not None and not _was_reached(folded.state):
            raise error
        if (before := cycle_in(session, folded, commit_id)) is not None:
            return unchecked(before.continued(session, None))
        released = abandoned(folded.state, dead_cycles(folded.state, release))
        found = start(session, run, folded, empty_plan(session, why), Directives(released=released))
        if found is not None:
            return found.begun()
    raise fenced(session)


def opened_without_tables(
    session: LandingSession, run: RunIdentity, error: Exception, past: FoundCycle | None, release: Release
) -> Opened:
    """Return a cycle of a landing whose tables cannot be planned for now; the run's own, if it has one.

    :param error: why: the catalog is unavailable, the result of a change is unknown, or a spec change waits
    :raises CatalogError: it is unavailable, and the landing has never read its tables
    """
    waits = isinstance(error, SpecWaits)
    if past is not None:
        if not waits:
            session.log(f"the catalog is unreachable, only the earlier plan of this run is known: {error}")
        return unchecked(past.continued(session, None))
    why = spec_waits(error.table, str(error)) if isinstance(error, SpecWaits) else catalog_away(error)
    away = error if isinstance(error, CatalogError) else None
    opened = start_without_tables(session, run, why, release, error=away)
    session.log(f"{'' if waits else 'WARNING: catalog unreachable, '}opened the cycle with an empty plan: {error}")
    return opened


def _was_reached(landing_state: LandingState) -> bool:
    """Return True if the landing ever reached its tables, as far back as the control topic goes."""
    return any(c.complete or c.plan.ends for c in landing_state.cycles.values())


def start(
    session: LandingSession, run: RunIdentity, folded: FoldedLog, plan: Plan, directives: Directives
) -> FoundCycle | None:
    """Send the START_COMMIT, and return the cycle as the log has it then; ``None`` if another planner was faster.

    :raises ControlTopicError: the log cannot be written, or the START not be read back
    """
    cycle = new_cycle(session, run, folded.state, directives.released)
    try:
        sent = send_start(session, folded.partition, cycle, plan, directives)
    except FencedError:
        session.log("another planner of this landing was faster; planning again")
        return None
    after = session.read_state(folded.ledgers, since=folded, until=sent)
    return found_in(session, after, after.just_opened(cycle.commit_id))


def send_start(session: LandingSession, partition: int, cycle: Cycle, plan: Plan, directives: Directives) -> int:
    """Send the START_COMMIT; return its offset."""
    start = session.sender("plan", cycle.commit_id).opened(session.new_id(), session.now(), cycle, plan, directives)
    return session.send("plan", cycle, partition, [start])


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


def empty_plan(session: LandingSession, why: str | Refuse) -> Plan:
    """Return the plan of a cycle with nothing to do, with the reason."""
    name, spec_version = session.landing.name, session.landing.spec_version
    return nothing_planned(name, session.lane, spec_version, session.now(), why)


def unchecked(opened: Opened) -> Opened:
    """Return a plan found while no table was readable: writers check it against the tables first."""
    return replace(opened, ticket=replace(opened.ticket, plan=""), state=None)


def dead_cycles(landing_state: LandingState, release: Release) -> set[UUID]:
    return {c.cycle.commit_id for c in landing_state.open_cycles() if not c.released and release(c.cycle)}


def fenced(session: LandingSession) -> ControlTopicError:
    name = session.landing.name
    return ControlTopicError("LC6009", f"landing {name}: fenced {MAX_RACES} times while opening a cycle; try again")


def cycle_in(session: LandingSession, folded: FoldedLog, commit_id: UUID) -> FoundCycle | None:
    """Return a cycle in a read of the log."""
    state = folded.state.cycles.get(commit_id)
    return None if state is None else found_in(session, folded, state)


def found_in(session: LandingSession, folded: FoldedLog, state: CycleState) -> FoundCycle:
    return FoundCycle(state=state, ticket=ticket_of(session, state, folded.partition, state.since))


def cycle_of_ticket(session: LandingSession, ticket: CycleTicket) -> CycleState | None:
    """Return a cycle by its ticket, even if no ledger needs its part of the log any more."""
    log = session.control.read(ticket.partition, ticket.read_from)
    entries = read_entries(log.records, session.landing.name, session.lane)
    return fold(entries, (), session.landing.window.completion_timeout).cycles.get(ticket.commit_id)


def find_cycle(session: LandingSession, commit_id: UUID) -> FoundCycle | None:
    """Return a cycle of this landing anywhere in the log, as far as its retention goes."""
    for partition, found in all_entries(session):
        entries = _newest(found, commit_id)
        landing_state = fold(entries, (), session.landing.window.completion_timeout)
        if (state := landing_state.cycles.get(commit_id)) is not None:
            ends = (e.valid_through for e in entries if isinstance(e, CycleClosed) and e.commit_id == commit_id)
            ticket = ticket_of(session, state, partition, state.since)
            return FoundCycle(state=state, ticket=ticket, valid_through=next(ends, None))
    return None


def _newest(entries: Sequence[Entry], commit_id: UUID) -> Sequence[Entry]:
    """Return the log from where this cycle was last opened again, by a run recreated under an old id. A copy of its
    START opens nothing.
    """
    begin, ended = 0, False
    known: set[UUID | None] = {None}
    for index, e in enumerate(entries):
        if e.commit_id == commit_id and (e.event is None or e.event not in known):
            known.add(e.event)
            if ended and isinstance(e, CycleOpened):
                begin, ended = index, False
            ended = ended or isinstance(e, CycleClosed)
    return entries[begin:]


def ticket_of(session: LandingSession, state: CycleState, partition: int, read_from: int) -> CycleTicket:
    """Return the ticket by which later tasks of the run find the cycle."""
    return CycleTicket(
        landing=session.landing.name,
        lane=session.lane,
        commit_id=state.cycle.commit_id,
        slot=state.cycle.slot,
        partition=partition,
        read_from=read_from,
        plan=plan_digest(state.plan),
        deployment=state.cycle.deployment,
    )


def where_it_is(session: LandingSession, state: CycleState, lacking: tuple[Slice, ...] | None) -> str:
    """Describe a finished cycle; ``lacking`` is unknown if no table could be read."""
    ended = (
        "was released by a later plan, because its run had ended"
        if state.closed_at is None
        else f"was closed at offset {state.closed_at} of {session.control.name}"
    )
    window = f"its window was {state.plan.coverage}" if state.plan.slices else "its window was empty"
    if lacking:
        window += f"; not landed: {', '.join(map(str, lacking))}"
    elif lacking is not None and state.plan.slices:
        window += ", and all of it is landed"
    return f"this run's cycle {state.cycle.commit_id} {ended}; {window}"
