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

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import BlockedRangeError, LakecommitError, SparkJobError
from airflow_provider_lakecommit.operators.targets import SetTarget, log_set_line, named_failures
from airflow_provider_lakecommit.operators.tasks.write_jobs import left_undone

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle import BundledGroup, GroupWrite, SetConnections
    from airflow_provider_lakecommit.hooks import SparkSubmit
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.operators.tasks.write_jobs import WriteJobs
    from airflow_provider_lakecommit.spark import SliceResult, WindowJob

AT_ONCE = 8
"""Concurrent jobs of a bundle on a warm server."""


class Bundle:
    """The groups of one task, on the connections that all landings share.

    :param log: the task's log
    """

    def __init__(self, groups: Sequence[BundledGroup], at: SetTarget, connections: SetConnections, log: Any) -> None:
        self.saved: set[str] = set()
        """Landings with reported records."""
        self._log = log
        self._groups = {f"{g.landing.name}, group {g.ticket.group}": self._group(g, at, connections) for g in groups}

    def _group(self, bundled: BundledGroup, at: SetTarget, connections: SetConnections) -> GroupWrite:
        from airflow_provider_lakecommit.cycle import GroupWrite

        control = connections.session(bundled.landing, lambda line: log_set_line(self._log, line)).control
        return GroupWrite(
            landing=bundled.landing,
            control=control,
            catalog=at.tables.name,
            load=at.tables.load,
            ticket=bundled.ticket,
            log=self._log.info,
        )

    def write(self, jobs: WriteJobs) -> dict[str, Any]:
        """Read everything that is not reported yet."""
        groups = self._groups
        died = self._run(jobs)
        undone, saved = dict[str, LakecommitError](), 0
        for name, each in groups.items():
            result = each.result()
            saved += result.saved_records
            self.saved |= {each.landing.name} if result.saved_records else set()
            if (error := left_undone(result, f"group {each.ticket.group}", died.get(name))) is not None:
                undone[name] = error
                self._log.error("%s: %s", name, error)
            elif died.get(name) is not None:
                self._log.warning("the job of %s failed, but all its slices are reported: %s", name, died[name])
        self._log.info("%d groups: %d records are reported, %d groups are incomplete", len(groups), saved, len(undone))
        if undone:
            # A user must fix a blocked range; only errors that another attempt may fix are worth a retry.
            kind = (
                BlockedRangeError if all(isinstance(e, BlockedRangeError) for e in undone.values()) else SparkJobError
            )
            raise kind("LC8361", f"{saved} records are reported, some groups are incomplete: {named_failures(undone)}")
        return {"groups": len(groups), "records": saved}

    def _run(self, jobs: WriteJobs) -> Mapping[str, SparkJobError]:
        """Return the errors that ended jobs early, by group name."""
        from airflow_provider_lakecommit.cycle import run_groups
        from airflow_provider_lakecommit.hooks import SparkSubmit

        engine, groups = jobs.engine, self._groups
        if isinstance(engine, SparkSubmit):
            submit = partial(self._run_together, jobs, engine)
            _, outcome = run_groups(self._left(), submit, self._left, self._log.info)
            return dict.fromkeys(groups, outcome) if isinstance(outcome, SparkJobError) else {}
        if any(each.left() for each in groups.values()):
            engine.start()
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="group")
        try:
            running = {
                name: pool.submit(lambda g: g.run(g.left(), partial(jobs.run, control=g.control))[1], each)
                for name, each in groups.items()
            }
            ended = {name: each.result() for name, each in running.items()}
        except BaseException:
            jobs.stop()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return {name: outcome for name, outcome in ended.items() if isinstance(outcome, SparkJobError)}

    def _left(self) -> list[WindowJob]:
        return [job for each in self._groups.values() if (job := each.left()) is not None]

    def _run_together(self, jobs: WriteJobs, engine: SparkSubmit, own: Sequence[WindowJob]) -> Sequence[SliceResult]:
        controls = {each.landing.name: each.control for each in self._groups.values()}
        jobs.run_together(engine, [(job, controls[job.landing.name]) for job in own])
        return ()


def landings_in(groups: Sequence[BundledGroup]) -> tuple[Landing, ...]:
    """Return the distinct landings of the groups."""
    return tuple({each.landing.name: each.landing for each in groups}.values())
