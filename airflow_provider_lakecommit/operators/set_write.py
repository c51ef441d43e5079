# SPDX-License-Identifier: Apache-2.0
"""The write task of a landing set: the Spark jobs of one bundle of partition groups, together.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.write` for each group of the bundle: what is reported is
never done again, so a retry does what is left. By spark-submit the whole bundle is one job, on a warm server its groups
are jobs side by side.

Failure story: a group that is not all reported is named, and fails the task in the end; the others are reported by
then, and the commit publishes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.hooks.secrets import hide, told
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.operators.arguments import mapping_of
from airflow_provider_lakecommit.operators.base import no_retry_in_vain
from airflow_provider_lakecommit.operators.set_task import SetPlaces, SetTask

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_provider_lakecommit.engines.base import Engine
    from airflow_provider_lakecommit.many.bundles import BundledGroup
    from airflow_provider_lakecommit.many.connections import SetConnections
    from airflow_provider_lakecommit.spark.job import Secrets, WindowJob

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

    def execute(self, context: Context) -> dict[str, Any]:
        """Do what of the bundle is not reported yet."""
        from airflow_provider_lakecommit.hooks.engines import engine_of
        from airflow_provider_lakecommit.many.bundles import BundledGroup
        from airflow_provider_lakecommit.many.expansion import Expansion

        groups = [BundledGroup.from_dict(each) for each in self.bundle["groups"]]
        with no_retry_in_vain(), self.places() as at:
            self._engine = engine = engine_of(
                self.spark_conn_id,
                deployment=at.settings.deployment_id,
                landing=self.landing_set.name,
                conf=self.spark_conf,
                grace=at.settings.spark_grace,
            )
            landings = tuple({each.landing.name: each.landing for each in groups}.values())
            try:
                with at.connect(Expansion(landings=landings)) as connections:
                    return self._written(groups, at, connections, engine)
            finally:
                engine.close()

    def on_kill(self) -> None:
        """Ask the jobs to end; what their slices reported is safe."""
        if self._engine is not None:
            self._engine.stop()

    def _written(
        self, groups: Sequence[BundledGroup], at: SetPlaces, connections: SetConnections, engine: Engine
    ) -> dict[str, Any]:
        from airflow_provider_lakecommit.cycle.write import group_job, group_result

        def ports(each: BundledGroup) -> Any:
            return connections.session(each.landing, self.log_line).control

        jobs = {
            n: job
            for n, each in enumerate(groups)
            if (job := group_job(each.landing, ports(each), each.ticket, at.tables.name, at.tables.load)) is not None
        }
        died = self._run(list(jobs.values()), at, engine)
        found = {n: group_result(groups[n].landing, ports(groups[n]), groups[n].ticket) for n in jobs}
        undone = {groups[n].landing.name: str(each) for n, each in found.items() if each.left or each.blocked}
        for name, what in undone.items():
            self.log.error("%s: %s", name, what)
        saved = sum(each.saved_records for each in found.values())
        if undone:
            why = f" ({died})" if died else ""
            raise SparkJobError(f"{saved} records are reported; not all of {', '.join(undone)}{why}")
        self.log.info("%d groups: %d records are reported", len(groups), saved)
        return {"groups": len(groups), "records": saved}

    def _run(self, jobs: Sequence[WindowJob], at: SetPlaces, engine: Engine) -> str:
        """Why not all ended well, if so."""
        from airflow_provider_lakecommit.hooks.spark import SparkSubmit
        from airflow_provider_lakecommit.session.secrets import secrets_for

        asked: list[tuple[WindowJob, Secrets]] = [
            (job.begun(), secrets_for(at.tables, at.kafka, [job], log=self.log_line)) for job in jobs
        ]
        if not asked:
            return ""
        engine.start()
        calls = (
            [partial(engine.run_together, asked)]
            if isinstance(engine, SparkSubmit)
            else [partial(engine.run, job, secrets) for job, secrets in asked]
        )
        with ThreadPoolExecutor(min(AT_ONCE, len(calls))) as pool:
            ended = [pool.submit(call) for call in calls]
        return "; ".join(dict.fromkeys(told(e) for each in ended if (e := each.exception()) is not None))
