# SPDX-License-Identifier: Apache-2.0
"""The write step of a cycle: what of a group is still to be done, doing it, and what of it is safe.

Contract: what is to be done and what is safe is answered from the control log alone; neither catalog nor table is
asked, so a catalog outage does not stop a running window. The plan is the one that the ticket names by its digest; any
other under the cycle's id is passed over. A slice that is reported is never part of a job again, so a retry does what
is left. A cycle that is closed already, or whose run was gone for a later plan, has no job.

Failure story: a job that ends early is no error here: what its slices reported counts, and the log is asked for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from pyiceberg.table import Table

from airflow_provider_lakecommit.control import plan_digest, read_decided, read_entries
from airflow_provider_lakecommit.core import CycleOpened, CycleState, Entry, LandingState, Slice, SliceReported, granted
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.cycle.results import CycleTicket, GroupResult, GroupTicket
from airflow_provider_lakecommit.cycle.session.ports import ControlPort
from airflow_provider_lakecommit.cycle.session.targets import contradiction
from airflow_provider_lakecommit.exceptions import ControlTopicError, SparkJobError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark import EarlierWorkError, SliceResult, WindowJob

__all__ = ["JobOutcome", "causes_of", "group_job", "group_result", "run_group", "run_groups"]

MOST_DEATHS = 2
"""Jobs of one attempt at a group whose processes died, after which further ones are begun."""
JobOutcome = Sequence[SliceResult] | SparkJobError
"""What an engine knows of a job's slices, or why the job ended early."""


def group_job(
    landing: Landing,
    control: ControlPort,
    ticket: GroupTicket,
    catalog_name: str,
    load: Callable[[str], Table] | None = None,
    *,
    state: CycleState | None = None,
) -> WindowJob | None:
    """The job for what a group has not reported yet, or ``None`` when nothing is left or the cycle is over.

    :param state: the cycle as a look of just now has it; by default the log is looked at
    :param load: reads a table from the catalog, where the ticket does not name the plan: then it is held against the
        tables before anything is written by it
    :raises ControlTopicError: the cycle's plan is not in the control log any more, or is not the cycle's
    """
    state = state or _look(landing, control, ticket.cycle)[0]
    if state.over or state.ended_early:
        return None
    if not ticket.cycle.plan:
        _hold_against_tables(landing, state, load)
    share = _share(state, ticket.group)
    left = [(place, rest) for place, s in enumerate(share) if (rest := state.left_of(s)) is not None]
    if not left:
        return None
    return WindowJob(
        landing=landing,
        plan=replace(state.plan, slices=tuple(s for _, s in left)),
        group=ticket.group,
        places=tuple(place for place, _ in left),
        commit_id=ticket.cycle.commit_id,
        slot=ticket.cycle.slot,
        deployment=ticket.cycle.deployment,
        read_from=ticket.cycle.read_from,
        made_at=state.offset + 1,
        replicas=landing.window.replicas if landing.window.speculation is None else 2,
        catalog=catalog_name,
        control_topic=control.name,
        control_partition=ticket.cycle.partition,
    )


def run_group(
    job: WindowJob | None,
    run: Callable[[WindowJob], Sequence[SliceResult]],
    left: Callable[[], WindowJob | None],
    log: Callable[[str], None],
) -> tuple[WindowJob | None, JobOutcome]:
    """Run a group's job, as :func:`run_groups` does. Returns the last job, if there was one, and what became of it."""

    def rest() -> list[WindowJob]:
        return [found] if (found := left()) is not None else []

    jobs, outcome = run_groups([job] if job is not None else [], lambda jobs: run(jobs[0]), rest, log)
    return (jobs[0] if jobs else None), outcome


def run_groups(
    jobs: Sequence[WindowJob],
    run: Callable[[Sequence[WindowJob]], Sequence[SliceResult]],
    left: Callable[[], Sequence[WindowJob]],
    log: Callable[[str], None],
) -> tuple[Sequence[WindowJob], JobOutcome]:
    """Run the jobs of groups that are one job of the engine. Where it has waited for an earlier attempt's job instead,
    one for what is ``left`` then takes its place, as long as there is something; so it does where a job's processes
    died, of which one record may be the cause: the next job finds it. Returns the last jobs, and what became of them.
    """
    deaths = 0
    while jobs:
        try:
            return jobs, run([replace(job, deaths=deaths) for job in jobs])
        except EarlierWorkError as e:
            log(str(e))
            jobs = left()
        except SparkJobError as e:
            deaths += 1
            rest = left() if e.workers_died and deaths <= MOST_DEATHS else ()
            if not rest:
                return jobs, e
            log(f"{e}; retrying the remaining slices, each in its own process")
            jobs = rest
    return (), ()


def group_result(landing: Landing, control: ControlPort, ticket: GroupTicket) -> GroupResult:
    """What of a group is reported by now, and what will be read again.

    :raises ControlTopicError: the cycle's plan is not in the control log any more
    """
    state, landing_state, entries = _look(landing, control, ticket.cycle)
    share = _share(state, ticket.group)
    done = [s for s in share if state.left_of(s) is None]
    blocked = tuple(str(b) for b in landing_state.blocked if any(b.coverage.overlaps(s.coverage) for s in share))
    held = landing_state.blocked_coverage | landing_state.recut
    rest = [rest for s in share if (rest := state.left_of(s)) is not None]
    left = tuple(s for s in rest if not held.overlaps(s.coverage))
    return GroupResult(
        done=len(done),
        saved_records=sum(len(s) for s in done),
        left=left,
        blocked=blocked,
        causes=causes_of(entries, ticket.cycle.commit_id, rest),
        ended_early=state.ended_early,
    )


def causes_of(entries: Iterable[Entry], commit_id: UUID, undone: Sequence[Slice]) -> tuple[str, ...]:
    """Why these slices of a cycle are not done, each cause once, in the words of its first report."""
    told: dict[str, str] = {}
    for e in entries:
        if not isinstance(e, SliceReported) or e.commit_id != commit_id:
            continue
        why = e.report.blocked or e.report.failed
        if why is not None and any(s.coverage.overlaps(e.report.coverage) for s in undone):
            told.setdefault(why.partition(": slice ")[0], why)
    return tuple(told.values())


def _hold_against_tables(landing: Landing, state: CycleState, load: Callable[[str], Table] | None) -> None:
    tables = {name: load(name) for name in landing.tables} if load else {}
    if (what := contradiction(state.plan, tables)) is not None:
        raise ControlTopicError(
            "LC6235",
            f"the plan of cycle {state.cycle.commit_id} of landing {landing.name} at offset {state.offset} is not "
            f"executed: {what}; run the plan task again, and check which other programs write to the control topic",
        )


def _of_ticket(entries: Iterable[Entry], ticket: CycleTicket) -> list[Entry]:
    """Without plans under this cycle's id that are not the one the ticket names, whoever sent them."""
    return [
        e
        for e in entries
        if not (isinstance(e, CycleOpened) and e.commit_id == ticket.commit_id and ticket.plan)
        or plan_digest(e.plan) == ticket.plan
    ]


def _look(
    landing: Landing, control: ControlPort, ticket: CycleTicket
) -> tuple[CycleState, LandingState, Sequence[Entry]]:
    log = read_decided(control, ticket.partition, ticket.read_from)
    entries = _of_ticket(read_entries(log.records, ticket.landing, ticket.lane), ticket)
    landing_state = fold(entries, (), landing.window.completion_timeout)
    state = landing_state.cycles.get(ticket.commit_id)
    if state is None:
        raise ControlTopicError(
            "LC6236",
            f"the plan of cycle {ticket.commit_id} of landing {ticket.landing} is not in partition "
            f"{ticket.partition} of {control.name} from offset {ticket.read_from} on (the log begins at {log.begin}): "
            f"its retention is too short or it was recreated; run the plan task again",
        )
    return state, landing_state, entries


def _share(state: CycleState, group: int) -> list[Slice]:
    return [s for s in granted(state.plan, state.claim) if s.group == group]
