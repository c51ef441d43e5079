# SPDX-License-Identifier: Apache-2.0
"""The write step of a cycle: what is left of a group, doing it, and what is safe.

Contract: the control topic alone shows what is left and what is safe; neither catalog nor table is read, so a catalog
outage does not stop a running window. The plan is the one with the ticket's digest; any other under the cycle's id is
skipped. A reported slice is never part of a job again, so a retry does the rest. A cycle that is closed, or released by
a later plan, has no job.

Failure story: a job that ends early is no error here: its reported slices count, by the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyiceberg.table import Table

from airflow_provider_lakecommit.control import plan_digest, read_decided, read_entries
from airflow_provider_lakecommit.core import CycleOpened, CycleState, Entry, LandingState, Slice, SliceReported, granted
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.cycle.results import CycleTicket, GroupResult, GroupTicket
from airflow_provider_lakecommit.cycle.session.ports import ControlPort
from airflow_provider_lakecommit.cycle.session.progress import slow_slices_of
from airflow_provider_lakecommit.cycle.session.tables import contradiction
from airflow_provider_lakecommit.exceptions import ControlTopicError, SparkJobError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark import EarlierWorkError, SliceResult, WindowJob, run_replicas

MOST_DEATHS = 2
"""Jobs of one attempt at a group whose processes died, after which no further one begins."""
JobOutcome = Sequence[SliceResult] | SparkJobError
"""The engine's results of a job's slices, or why the job ended early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWrite:
    """The write step of one group, on open connections.

    :param catalog: name of the catalog
    :param load: reads a table from it, to check a plan that the ticket does not name before anything is written
    :param log: takes lines about its jobs
    :param replica: the only replica that is run here; ``None``: all of the landing's
    """

    landing: Landing
    control: ControlPort
    catalog: str
    load: Callable[[str], Table]
    ticket: GroupTicket
    log: Callable[[str], None]
    replica: int | None = None

    def left(self, state: CycleState | None = None) -> WindowJob | None:
        """Return the job for unreported slices, or ``None`` if nothing is left or the cycle is over.

        :param state: the cycle as just read; by default the log is read
        :raises ControlTopicError: the control topic no longer has the cycle's plan, or has another one
        """
        ticket, landing = self.ticket, self.landing
        state = state or self._read_log()[0]
        if state.over or state.ended_early:
            return None
        if not ticket.cycle.plan:
            self._hold_against_tables(state)
        left = [(index, rest) for index, s in enumerate(self._share(state)) if (rest := state.left_of(s)) is not None]
        if not left:
            return None
        replicas = landing.window.replicas if landing.window.speculation is None else 2
        number = self.replica or 0
        return WindowJob(
            landing=landing,
            plan=replace(state.plan, slices=tuple(s for _, s in left)),
            group=ticket.group,
            numbers=tuple(index for index, _ in left),
            commit_id=ticket.cycle.commit_id,
            slot=ticket.cycle.slot,
            deployment=ticket.cycle.deployment,
            read_from=ticket.cycle.read_from,
            made_at=state.offset + 1,
            replica=number,
            # A replica of an original that knows no replicas must still check for it, and must not fence it.
            replicas=max(replicas, number + 1),
            catalog=self.catalog,
            control_topic=self.control.name,
            control_partition=ticket.cycle.partition,
        )

    def run(
        self,
        job: WindowJob | None,
        run: Callable[[WindowJob], Sequence[SliceResult]],
        left: Callable[[], WindowJob | None] | None = None,
    ) -> tuple[WindowJob | None, JobOutcome]:
        """Run the jobs of the group, as :func:`run_groups` does. Return the last one, if there was one, and its result.

        :param run: runs one job to its end
        :param left: the next job, by default that of :meth:`left`
        """
        # A landing's replicas may be tasks of their own; slow slices are always repeated here.
        apart = self.replica is not None and self.landing.window.speculation is None

        def run_one(jobs: Sequence[WindowJob]) -> Sequence[SliceResult]:
            (job,) = jobs
            return run(job) if apart else run_replicas(job, run, self.log, slow_slices_of(job, self.control))

        def rest() -> list[WindowJob]:
            found = (left or self.left)()
            return [] if found is None else [found]

        jobs, outcome = run_groups([] if job is None else [job], run_one, rest, self.log)
        return (jobs[0] if jobs else None), outcome

    def result(self) -> GroupResult:
        """Return the reported work, and what will be read again.

        :raises ControlTopicError: the control topic no longer has the cycle's plan
        """
        state, landing_state, entries = self._read_log()
        share = self._share(state)
        done = [s for s in share if state.left_of(s) is None]
        blocked = tuple(str(b) for b in landing_state.blocked if any(b.coverage.overlaps(s.coverage) for s in share))
        blocked_ranges = landing_state.blocked_coverage | landing_state.recut
        rest = [rest for s in share if (rest := state.left_of(s)) is not None]
        return GroupResult(
            done=len(done),
            saved_records=sum(len(s) for s in done),
            left=tuple(s for s in rest if not blocked_ranges.overlaps(s.coverage)),
            blocked=blocked,
            causes=causes_of(entries, self.ticket.cycle.commit_id, rest),
            ended_early=state.ended_early,
        )

    def _hold_against_tables(self, state: CycleState) -> None:
        tables = {name: self.load(name) for name in self.landing.tables}
        if (what := contradiction(state.plan, tables)) is not None:
            raise ControlTopicError(
                "LC6235",
                f"the plan of cycle {state.cycle.commit_id} of landing {self.landing.name} at offset {state.offset} is "
                f"not executed: {what}; run the plan task again, and check which other programs write to the control "
                "topic",
            )

    def _read_log(self) -> tuple[CycleState, LandingState, Sequence[Entry]]:
        ticket = self.ticket.cycle
        log = read_decided(self.control, ticket.partition, ticket.read_from)
        entries = _of_ticket(read_entries(log.records, ticket.landing, ticket.lane), ticket)
        landing_state = fold(entries, (), self.landing.window.completion_timeout)
        state = landing_state.cycles.get(ticket.commit_id)
        if state is None:
            raise ControlTopicError(
                "LC6236",
                f"the plan of cycle {ticket.commit_id} of landing {ticket.landing} is not in partition "
                f"{ticket.partition} of {self.control.name} from offset {ticket.read_from} on (the log begins at "
                f"{log.begin}): its retention is too short or it was recreated; run the plan task again",
            )
        return state, landing_state, entries

    def _share(self, state: CycleState) -> list[Slice]:
        return [s for s in granted(state.plan, state.claim) if s.group == self.ticket.group]


def run_groups(
    jobs: Sequence[WindowJob],
    run: Callable[[Sequence[WindowJob]], Sequence[SliceResult]],
    left: Callable[[], Sequence[WindowJob]],
    log: Callable[[str], None],
) -> tuple[Sequence[WindowJob], JobOutcome]:
    """Run the jobs of groups as one job of the engine. If the engine waited for an earlier attempt's job instead, a job
    for what is ``left`` takes its place while there is something; so it does if a job's processes died, possibly of one
    record: the next job finds it. Return the last jobs, and their results.
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


def causes_of(entries: Iterable[Entry], commit_id: UUID, undone: Sequence[Slice]) -> tuple[str, ...]:
    """Return why these slices of a cycle are not done, each cause once, in the words of its first report."""
    by_cause: dict[str, str] = {}
    for e in entries:
        if not isinstance(e, SliceReported) or e.commit_id != commit_id:
            continue
        why = e.report.blocked or e.report.failed
        # What the commit took back counts as done otherwise.
        if why and (e.report.voids or any(s.coverage.overlaps(e.report.coverage) for s in undone)):
            by_cause.setdefault(why.partition(": slice ")[0], why)
    return tuple(by_cause.values())


def _of_ticket(entries: Iterable[Entry], ticket: CycleTicket) -> list[Entry]:
    """Drop plans under this cycle's id other than the ticket's, regardless of their sender."""
    return [
        e
        for e in entries
        if not (isinstance(e, CycleOpened) and e.commit_id == ticket.commit_id and ticket.plan)
        or plan_digest(e.plan) == ticket.plan
    ]
