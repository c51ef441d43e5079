# SPDX-License-Identifier: Apache-2.0
"""The write task: runs the Spark job of one partition group, mapped over the entries of the plan.

Contract: succeeds when everything of its group is reported, by any task; a reported slice is never read again, so a
retry does the rest. On an engine whose jobs outlive their task, it first waits for jobs of an earlier attempt. The
catalog is not requested, unless it vended storage credentials when the window was planned: then each job gets fresh
ones. A group whose cycle is closed does no work and ends skipped: later runs plan the rest of it. If a landing has
replicas, each is a task of its own, and all read the same slices; a replica that is not needed any more succeeds.

Failure story: if the task ends early (a failed job, a timeout, a kill), the log reports what is saved and what will be
read again. If there is time, tasks stop at the current record and report what they have. A window that a user wants
published now is left as it is, and this task succeeds.

Of a landing set it writes one bundle of groups (:mod:`~airflow_provider_lakecommit.operators.bundle`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import XComArg
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecommit.exceptions import LakecommitError, SparkJobError, SpecError
from airflow_provider_lakecommit.hooks import Settings
from airflow_provider_lakecommit.landing import Landing, LandingSet
from airflow_provider_lakecommit.operators.base import SparkTask, check_planned, leave_failure, no_retry_in_vain
from airflow_provider_lakecommit.operators.links import ErrorLink, SparkLink
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.targets import set_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import GroupResult, GroupWrite
    from airflow_provider_lakecommit.operators.tasks.write_jobs import WriteJobs
    from airflow_provider_lakecommit.spark import WindowJob

__all__ = ["MAP_INDEX_TEMPLATE", "WriteWindowOperator"]

MAP_INDEX_TEMPLATE = "{{ task.group.label or 'group %s' % task.group.group }}"
"""Names the mapped tasks by their partitions and records; give it to ``partial`` as ``map_index_template``."""


class WriteWindowOperator(SparkTask):
    """Read, decode, write and report the slices of one partition group, of a set those of one bundle, by a Spark job.

    :param landing: the landing or the landing set, or the path of its YAML spec
    :param group: an entry of the result of :class:`~airflow_provider_lakecommit.operators.plan.PlanWindowOperator`
        (templated)
    :param spark_conn_id: connection of type `spark` (spark-submit) or `spark_connect` (a warm server): its type decides
        the engine (templated)
    :param spark_conf: Spark settings for this job; not for a server that is already running (templated)
    :param replica: number of this replica among the landing's `replicas`; 0 is the original

    .. seealso:: :ref:`howto/operator:WriteWindowOperator`
    """

    takes_sets: ClassVar[bool] = True
    template_fields: Sequence[str] = ("group", "spark_conn_id", "spark_conf")
    template_fields_renderers: ClassVar[dict[str, str]] = {"group": "json", "spark_conf": "json"}
    operator_extra_links = (SparkLink(), ErrorLink())
    ui_color = "#fdf0dd"

    def __init__(
        self,
        *,
        landing: Landing | LandingSet | str | Path,
        group: Mapping[str, Any],
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, Any] | None = None,
        replica: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, spark_conn_id=spark_conn_id, spark_conf=spark_conf, **kwargs)
        if isinstance(group, XComArg) and any(isinstance(o, PlanWindowOperator) for o, _ in group.iter_references()):
            raise _no_group("the complete list of the plan")
        if replica and self.landing_set is not None:
            raise SpecError(
                "LC8357", f"WriteWindowOperator {self.task_id!r}: `replica` is for a landing, not for a set"
            )
        self.group = group
        self.replica = replica
        self._jobs: WriteJobs | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Read and report what of the group is not reported yet."""
        try:
            return self._execute() if self.landing_set is None else self._execute_bundle(self.landing_set)
        except AirflowSkipException:
            raise
        except Exception as e:
            leave_failure(context, e)
            raise

    def _execute(self) -> dict[str, Any]:
        from airflow_provider_lakecommit.control import ControlTopic
        from airflow_provider_lakecommit.cycle import GroupTicket, GroupWrite
        from airflow_provider_lakecommit.hooks import catalog_properties, source_settings
        from airflow_provider_lakecommit.iceberg import Tables
        from airflow_provider_lakecommit.operators.tasks.write_jobs import WriteJobs

        landing = Settings.read().complete(self.landing)
        with no_retry_in_vain(self):
            if not (isinstance(self.group, Mapping) and {"cycle", "group"} <= self.group.keys()):
                raise _no_group(f"a {type(self.group).__name__}")
            ticket = GroupTicket.from_dict(self.group)
            check_planned(ticket.cycle.landing, landing)
        with no_retry_in_vain(self):
            # Before anything else, so that a kill finds it at any time.
            self._engine = engine = self.engine(ticket.cycle.lane)
            kafka = source_settings(landing)
            tables = Tables(catalog_properties(landing.connections.iceberg, reach=False))
            with ControlTopic(landing.control_topic_name, kafka, groups=[landing.group_id]) as control:
                group = GroupWrite(
                    landing=landing,
                    control=control,
                    catalog=tables.name,
                    load=tables.load,
                    ticket=ticket,
                    log=self.log.info,
                    replica=self.replica,
                )
                job = group.left()
                if job is None:
                    return self._nothing_to_do(group).to_dict()
                self._jobs = jobs = WriteJobs(engine, tables, kafka, self.log)
                try:
                    with jobs.until_deadline(self.execution_timeout):
                        return self._write(group, job, jobs).to_dict()
                finally:
                    engine.close()
                    tables.close()

    def _execute_bundle(self, declared: LandingSet) -> dict[str, Any]:
        from airflow_provider_lakecommit.cycle import BundledGroup, Expansion
        from airflow_provider_lakecommit.operators.bundle import Bundle, landings_in
        from airflow_provider_lakecommit.operators.tasks.write_jobs import WriteJobs

        with no_retry_in_vain(self), set_target(declared, reach=False) as at:
            if not (isinstance(self.group, Mapping) and "groups" in self.group):
                raise _no_group(f"a {type(self.group).__name__}")
            groups = [BundledGroup.from_dict(each) for each in self.group["groups"]]
            # Before anything else, so that a kill finds it at any time.
            self._engine = engine = self.engine()
            self._jobs = jobs = WriteJobs(engine, at.tables, at.kafka, self.log)
            try:
                with (
                    at.connect(Expansion(landings=landings_in(groups))) as connections,
                    jobs.until_deadline(self.execution_timeout),
                ):
                    return Bundle(groups, at, connections, self.log).write(jobs)
            finally:
                engine.close()

    def on_kill(self) -> None:
        """Stop the tasks of the Spark job at the current record, and report what they have read."""
        if self._engine is None:
            return
        self.log.info("%s: stopped; requested the end of its Spark jobs", self.group.get("label") or "the group")
        if self._jobs is None:
            self._engine.stop()
        else:
            self._jobs.end_for_kill()

    def _write(self, group: GroupWrite, job: WindowJob, jobs: WriteJobs) -> GroupResult:
        from airflow_provider_lakecommit.cycle import report_progress
        from airflow_provider_lakecommit.operators.tasks.write_jobs import left_undone
        from airflow_provider_lakecommit.spark import SliceStatus

        ticket, control = group.ticket, group.control
        done = ticket.slices - len(job.plan.slices)
        self.log.info("group %d: %d slices to do, %d are already reported", ticket.group, len(job.plan.slices), done)
        log_progress = partial(self.log.info, "group %d: %s", ticket.group)
        with self._interruption_logged(group), report_progress(control, [job], log_progress):
            _, outcome = group.run(job, partial(jobs.run, control=control))
        died = outcome if isinstance(outcome, SparkJobError) else None
        # Finished slices are logged by their workers if these write to this log, and by the progress everywhere.
        for each in () if isinstance(outcome, SparkJobError) else outcome:
            if each.status is not SliceStatus.DONE:
                self.log.info("%s", each)
        result = group.result()
        self.log.info("group %d: %s", ticket.group, result)
        share = f"group {ticket.group} of cycle {ticket.cycle.commit_id}"
        if (undone := left_undone(result, share, died)) is not None:
            raise undone from died
        if died is not None:
            self.log.warning("the job failed (%s), but all slices of the group are reported", died)
        return result

    @contextmanager
    def _interruption_logged(self, group: GroupWrite) -> Iterator[None]:
        """Log a timeout or a kill, which does not pass through the ordinary end."""
        number = group.ticket.group
        try:
            yield
        except BaseException:
            try:
                self.log.info("group %d was interrupted: %s", number, group.result())
            except LakecommitError as e:
                self.log.info("group %d was interrupted; its saved slices cannot be read now: %s", number, e)
            raise

    def _nothing_to_do(self, group: GroupWrite) -> GroupResult:
        ticket, result = group.ticket, group.result()
        if result.left and not result.ended_early:
            raise AirflowSkipException(
                f"cycle {ticket.cycle.commit_id} is closed, no further work is done for it; later runs plan what group "
                f"{ticket.group} lacks: {result}"
            )
        self.log.info("group %d is already reported: %s", ticket.group, result)
        return result


def _no_group(what: str) -> SpecError:
    return SpecError(
        "LC8358",
        f"`group` is {what}, not an entry of the plan's result: map this task over the entries with "
        "WriteWindowOperator.partial(task_id=…, landing=…).expand(group=plan.output)",
    )
