# SPDX-License-Identifier: Apache-2.0
"""The write task of a landing set: the Spark jobs of one bundle of partition groups, together.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.write` for each group of the bundle: what is reported is
never done again, so a retry does what is left. By spark-submit the whole bundle is one job, on a warm server its groups
are jobs side by side.

Failure story: a group that is not all reported is named, and fails the task in the end; the others are reported by
then, and the commit publishes them. Where processes of a job died, what is left is done again, each slice in a process
apart, so that a record that kills them costs its own slice alone. A task that is told to stop has its jobs report what
they have in hand, as that of a landing alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.exceptions import BlockedRangeError, LakecommitError, SparkJobError
from airflow_provider_lakecommit.hooks.secrets import hide
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.operators.base import no_retry_in_vain
from airflow_provider_lakecommit.operators.set_task import SetPlaces, SetTask, named_failures
from airflow_provider_lakecommit.tasks.arguments import mapping_of
from airflow_provider_lakecommit.tasks.write_jobs import left_undone

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle.results import GroupResult
    from airflow_provider_lakecommit.cycle.write import JobOutcome
    from airflow_provider_lakecommit.engines.base import Engine
    from airflow_provider_lakecommit.hooks.spark import SparkSubmit
    from airflow_provider_lakecommit.many.bundles import BundledGroup
    from airflow_provider_lakecommit.many.connections import SetConnections
    from airflow_provider_lakecommit.spark.job import SliceResult, WindowJob
    from airflow_provider_lakecommit.tasks.write_jobs import WriteJobs

__all__ = ["WriteLandingSetOperator"]

AT_ONCE = 8
"""Jobs of a bundle at a time on a warm server."""


class WriteLandingSetOperator(SetTask):
    """Read, decode, write and report the slices of a bundle.

    :param landing_set: the set, or the path of its YAML spec
    :param bundle: an entry of what the plan task returned (templated)
    :param spark_conn_id: connection of type `spark` or `spark_connect` (templated)
    :param spark_conf: Spark settings for this job; not for a server that runs already (templated)

    .. seealso:: :doc:`/howto/many_topics`
    """

    template_fields: Sequence[str] = ("bundle", "spark_conn_id", "spark_conf")
    template_fields_renderers: ClassVar[dict[str, str]] = {"bundle": "json", "spark_conf": "json"}
    ui_color = "#fdf0dd"

    def __init__(
        self,
        *,
        landing_set: LandingSet | str | Path,
        bundle: Mapping[str, Any],
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing_set=landing_set, **kwargs)
        self.bundle = bundle
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        hide({"conf": mapping_of(spark_conf)})
        self._engine: Engine | None = None
        self._jobs: WriteJobs | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Do what of the bundle is not reported yet."""
        from airflow_provider_lakecommit.hooks.engines import engine_of
        from airflow_provider_lakecommit.many.bundles import BundledGroup
        from airflow_provider_lakecommit.many.expansion import Expansion
        from airflow_provider_lakecommit.tasks.write_jobs import WriteJobs

        groups = [BundledGroup.from_dict(each) for each in self.bundle["groups"]]
        with no_retry_in_vain(), self.places(reach=False) as at:
            # Before anything else, so that a kill finds it however early it comes.
            self._engine = engine = engine_of(
                self.spark_conn_id,
                deployment=at.settings.deployment_id,
                landing=self.landing_set.name,
                conf=self.spark_conf,
                grace=at.settings.spark_grace,
            )
            self._jobs = jobs = WriteJobs(engine, at.tables, at.kafka, self.log)
            landings = tuple({each.landing.name: each.landing for each in groups}.values())
            try:
                with (
                    at.connect(Expansion(landings=landings)) as connections,
                    jobs.until_deadline(self.execution_timeout),
                ):
                    return self._written([_Group(each, at, connections, self) for each in groups], jobs)
            finally:
                engine.close()

    def on_kill(self) -> None:
        """Have the tasks of the Spark jobs end behind the record in hand, and report what they have read."""
        self.log.info("the bundle is told to stop; its Spark jobs are asked to end")
        if self._jobs is not None:
            self._jobs.end_for_kill()
        elif self._engine is not None:
            self._engine.stop()

    def _written(self, groups: Sequence[_Group], jobs: WriteJobs) -> dict[str, Any]:
        died = self._run(groups, jobs)
        undone, saved = dict[str, LakecommitError](), 0
        for each in groups:
            result = each.result()
            saved += result.saved_records
            if (error := left_undone(result, f"group {each.ticket.group}", died.get(each.name))) is not None:
                undone[each.name] = error
                self.log.error("%s: %s", each.name, error)
            elif died.get(each.name) is not None:
                self.log.warning("everything of %s is reported, although: %s", each.name, died[each.name])
        self.log.info("%d groups: %d records are reported, %d groups lack something", len(groups), saved, len(undone))
        if undone:
            # A blocked range is for somebody to mend; only what another attempt may do is worth one.
            kind = (
                BlockedRangeError if all(isinstance(e, BlockedRangeError) for e in undone.values()) else SparkJobError
            )
            raise kind(f"{saved} records are reported; not all of {named_failures(undone)}")
        return {"groups": len(groups), "records": saved}

    def _run(self, groups: Sequence[_Group], jobs: WriteJobs) -> Mapping[str, SparkJobError]:
        """What ended the jobs of groups early, by their names."""
        from airflow_provider_lakecommit.cycle.write import run_groups
        from airflow_provider_lakecommit.hooks.spark import SparkSubmit

        engine = jobs.engine
        if isinstance(engine, SparkSubmit):
            submit = partial(_run_together, jobs, engine, groups)
            _, outcome = run_groups(_jobs_left(groups), submit, partial(_jobs_left, groups), self.log.info)
            return {g.name: outcome for g in groups} if isinstance(outcome, SparkJobError) else {}
        if any(each.left() for each in groups):
            engine.start()
        pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="group")
        try:
            running = {each.name: pool.submit(each.run, jobs, self.log.info) for each in groups}
            ended = {name: each.result() for name, each in running.items()}
        except BaseException:
            jobs.stop()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        return {name: outcome for name, outcome in ended.items() if isinstance(outcome, SparkJobError)}


class _Group:
    """One group of the bundle, on the connections of all."""

    def __init__(self, bundled: BundledGroup, at: SetPlaces, connections: SetConnections, task: SetTask) -> None:
        self.landing, self.ticket = bundled.landing, bundled.ticket
        self.name = f"{self.landing.name}, group {self.ticket.group}"
        self.control = connections.session(self.landing, task.log_line).control
        self._tables = at.tables

    def left(self) -> WindowJob | None:
        """Its job for what nobody has reported."""
        from airflow_provider_lakecommit.cycle.write import group_job

        return group_job(self.landing, self.control, self.ticket, self._tables.name, self._tables.load)

    def result(self) -> GroupResult:
        """What of it is reported."""
        from airflow_provider_lakecommit.cycle.write import group_result

        return group_result(self.landing, self.control, self.ticket)

    def run(self, jobs: WriteJobs, log: Callable[[str], None]) -> JobOutcome:
        """All of its jobs on a warm server."""
        from airflow_provider_lakecommit.cycle.write import run_group
        from airflow_provider_lakecommit.engines.replicas import run_replicas
        from airflow_provider_lakecommit.session.slow_slices import slow_slices_of

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
