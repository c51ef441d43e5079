# SPDX-License-Identifier: Apache-2.0
"""The Spark jobs of one bundle of partition groups of a landing set, together.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.write` for each group of the bundle: reported slices are
never read again, so a retry does the rest. With spark-submit the bundle is one job; on a warm server its groups are
concurrent jobs.

Failure story: the task fails at the end and names each incomplete group; the other groups are reported by then, and the
commit publishes them. If processes of a job died, the rest is read again, each slice in a separate process, so a record
that kills the process costs only its own slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import BlockedRangeError, LakecommitError, SparkJobError
from airflow_provider_lakecommit.operators.places import SetPlaces, log_set_line, named_failures
from airflow_provider_lakecommit.operators.tasks.write_jobs import left_undone

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle import BundledGroup, GroupResult, JobOutcome, SetConnections
    from airflow_provider_lakecommit.hooks import SparkSubmit
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.operators.tasks.write_jobs import WriteJobs
    from airflow_provider_lakecommit.spark import SliceResult, WindowJob

__all__ = ["Bundle", "landings_in"]

AT_ONCE = 8
"""Concurrent jobs of a bundle on a warm server."""


class Bundle:
    """The groups of one task, on the connections that all landings share.

    :param log: the task's log
    """

    def __init__(self, groups: Sequence[BundledGroup], at: SetPlaces, connections: SetConnections, log: Any) -> None:
        self.saved = 0
        """Reported records."""
        self._log = log
        self._groups = [_Group(each, at, connections, log) for each in groups]

    def write(self, jobs: WriteJobs) -> dict[str, Any]:
        """Read everything that is not reported yet.

        :raises LakecommitError: naming the incomplete groups
        """
        groups = self._groups
        died = self._run(groups, jobs)
        undone, saved = dict[str, LakecommitError](), 0
        for each in groups:
            result = each.result()
            saved += result.saved_records
            if (error := left_undone(result, f"group {each.ticket.group}", died.get(each.name))) is not None:
                undone[each.name] = error
                self._log.error("%s: %s", each.name, error)
            elif died.get(each.name) is not None:
                self._log.warning("everything of %s is reported, despite: %s", each.name, died[each.name])
        self.saved = saved
        self._log.info("%d groups: %d records are reported, %d groups are incomplete", len(groups), saved, len(undone))
        if undone:
            # A user must fix a blocked range; only errors that another attempt may fix are worth a retry.
            kind = (
                BlockedRangeError if all(isinstance(e, BlockedRangeError) for e in undone.values()) else SparkJobError
            )
            raise kind("LC8361", f"{saved} records are reported, some groups are incomplete: {named_failures(undone)}")
        return {"groups": len(groups), "records": saved}

    def _run(self, groups: Sequence[_Group], jobs: WriteJobs) -> Mapping[str, SparkJobError]:
        """Return the errors that ended jobs early, by group name."""
        from airflow_provider_lakecommit.cycle import run_groups
        from airflow_provider_lakecommit.hooks import SparkSubmit

        engine = jobs.engine
        if isinstance(engine, SparkSubmit):
            submit = partial(_run_together, jobs, engine, groups)
            _, outcome = run_groups(_jobs_left(groups), submit, partial(_jobs_left, groups), self._log.info)
            return {g.name: outcome for g in groups} if isinstance(outcome, SparkJobError) else {}
        if any(each.left() for each in groups):
            engine.start()
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="group")
        try:
            running = {each.name: pool.submit(each.run, jobs, self._log.info) for each in groups}
            ended = {name: each.result() for name, each in running.items()}
        except BaseException:
            jobs.stop()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return {name: outcome for name, outcome in ended.items() if isinstance(outcome, SparkJobError)}


class _Group:
    """One group of the bundle, on the shared connections."""

    def __init__(self, bundled: BundledGroup, at: SetPlaces, connections: SetConnections, log: Any) -> None:
        self.landing, self.ticket = bundled.landing, bundled.ticket
        self.name = f"{self.landing.name}, group {self.ticket.group}"
        self.control = connections.session(self.landing, lambda line: log_set_line(log, line)).control
        self._tables = at.tables

    def left(self) -> WindowJob | None:
        """Return its job for unreported slices, if any."""
        from airflow_provider_lakecommit.cycle import group_job

        return group_job(self.landing, self.control, self.ticket, self._tables.name, self._tables.load)

    def result(self) -> GroupResult:
        """Return its reported slices."""
        from airflow_provider_lakecommit.cycle import group_result

        return group_result(self.landing, self.control, self.ticket)

    def run(self, jobs: WriteJobs, log: Callable[[str], None]) -> JobOutcome:
        """Run all of its jobs on a warm server."""
        from airflow_provider_lakecommit.cycle import run_group, slow_slices_of
        from airflow_provider_lakecommit.spark import run_replicas

        def run(job: WindowJob) -> Sequence[SliceResult]:
            one = partial(jobs.run, control=self.control)
            return run_replicas(job, one, log, slow_slices_of(job, self.control))

        return run_group(self.left(), run, self.left, log)[1]


def _jobs_left(groups: Sequence[_Group]) -> list[WindowJob]:
    return [job for each in groups if (job := each.left()) is not None]


def _run_together(
    jobs: WriteJobs, engine: SparkSubmit, groups: Sequence[_Group], asked: Sequence[WindowJob]
) -> Sequence[SliceResult]:
    controls = {each.landing.name: each.control for each in groups}
    jobs.run_together(engine, [(job, controls[job.landing.name]) for job in asked])
    return ()


def landings_in(groups: Sequence[BundledGroup]) -> tuple[Landing, ...]:
    """Return the distinct landings of the groups."""
    return tuple({each.landing.name: each.landing for each in groups}.values())
