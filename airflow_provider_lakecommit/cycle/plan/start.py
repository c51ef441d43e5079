# SPDX-License-Identifier: Apache-2.0
"""Begin a cycle: send its START_COMMIT in a slot of its own, and read back what was granted.

Contract: one START per call. Where no ledger can be read, the cycle begins with an empty plan.

Failure story: of two planners that race, the one that is later in the log is fenced, and nothing of its START is
stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core import Cycle, Directives, LandingState, Plan, Refuse, abandoned, free_slot
from airflow_provider_lakecommit.core import empty_plan as nothing_planned
from airflow_provider_lakecommit.cycle.plan.resume import FoundCycle, cycle_in, found_in
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.landing_session import (
    FoldedLog,
    LandingSession,
    RunIdentity,
    cycle_id_of,
)
from airflow_provider_lakecommit.exceptions import ControlTopicError, FencedError

MAX_RACES = 8
"""How often a fenced planner retries before it gives up."""

Release = Callable[[Cycle], bool]


def start_without_tables(
    session: LandingSession, run: RunIdentity, why: str | Refuse, release: Release = lambda _: False
) -> Opened:
    """Open a cycle with an empty plan if no ledger can be read.

    :param release: as for :func:`open_cycle`
    """
    commit_id = cycle_id_of(session, run)
    for _ in range(MAX_RACES):
        folded = session.read_state(())
        if (before := cycle_in(session, folded, commit_id)) is not None:
            return unchecked(before.continued(session, None))
        released = abandoned(folded.state, dead_cycles(folded.state, release))
        found = start(session, run, folded, empty_plan(session, why), Directives(released=released))
        if found is not None:
            return found.begun()
    raise fenced(session)


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
