# SPDX-License-Identifier: Apache-2.0
"""Commit the files that a connector announced and never committed, once it is stopped or gone.

Contract: by default nothing is written: the log has the list, the result the counts. With ``commit`` what surely was
never committed is appended, and may be so by two tasks at once, or again: no row twice. The rules are those of
:mod:`~airflow_provider_lakecommit.connector.judge`. Its snapshots say which run did it, who triggered that, and why.

Failure story: a connector that is at work, a table that refuses, files that are gone: the task fails and is not tried
again, after all other tables are done. What is away is left to the task's retries.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_lakecommit.connector.judge import Fate
from airflow_provider_lakecommit.connector.sink import CONTROL_TOPIC
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.operators.base import no_retry_in_vain
from airflow_provider_lakecommit.tasks.arguments import refuse_unknown

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.connector.rescue import RescueReport

__all__ = ["RescueOperator"]


class RescueOperator(BaseOperator):
    """Say what became of a connector's announced files, and commit those that wait.

    :param connector: its name (templated)
    :param control_topic: its control topic (templated)
    :param tables: only these; by default all that files were announced for (templated)
    :param commit: commit them; else nothing is written
    :param kafka_connect_conn_id: connection of type `http` to its Kafka Connect, which must say that it is stopped or
        not there. ``None``: you state that it is gone (templated)
    :param group: the group in its events, if it is not `connect-NAME` (templated)
    :param branch: of the tables, to which it commits
    :param reason: kept in the snapshots, with who and where (templated)

    .. seealso:: :ref:`howto/operator:RescueOperator`
    """

    template_fields: Sequence[str] = (
        "connector",
        "control_topic",
        "tables",
        "kafka_connect_conn_id",
        "group",
        "reason",
    )
    ui_color = "#e6edf0"

    def __init__(
        self,
        *,
        connector: str,
        control_topic: str = CONTROL_TOPIC,
        tables: Sequence[str] | None = None,
        commit: bool = False,
        kafka_connect_conn_id: str | None = "kafka_connect_default",
        kafka_config_id: str = "kafka_default",
        iceberg_conn_id: str = "iceberg_default",
        group: str | None = None,
        branch: str = "main",
        reason: str = "",
        **kwargs: Any,
    ) -> None:
        refuse_unknown(type(self), kwargs, kwargs.get("task_id", ""))
        super().__init__(**kwargs)
        self.connector = connector
        self.control_topic = control_topic
        self.tables = tables
        self.commit = commit
        self.kafka_connect_conn_id = kafka_connect_conn_id
        self.kafka_config_id = kafka_config_id
        self.iceberg_conn_id = iceberg_conn_id
        self.group = group
        self.branch = branch
        self.reason = reason

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Look, and commit if that is asked for."""
        with no_retry_in_vain():
            reports = self._reports(self._decision(context))
            for report in reports:
                self._tell(report)
            if refused := [r.refusal for r in reports if r.refusal]:
                raise TableError("; ".join(refused))
            if missing := [r.table for r in reports if r.missing]:
                raise TableError(f"files were announced for {', '.join(missing)}, which the catalog does not have")
            if out := [j for r in reports for j in r.left_out]:
                raise TableError(
                    f"{len(out)} files are gone, or are not what was announced, and are left out: {out[0].file.path} "
                    f"({out[0].reason}), …"
                )
        return [report.to_dict() for report in reports]

    def _decision(self, context: Context) -> Decision:
        """Whose word this run is: of the user who triggered it, else of nobody."""
        task, run = context.get("ti"), context.get("dag_run")
        user = getattr(run, "triggering_user_name", None) or "nobody"
        where = f"DAG {task.dag_id}, run {run.run_id}, task {task.task_id}" if task and run else f"task {self.task_id}"
        return Decision(
            command="rescue --commit",
            actor=f"{user} by {where}",
            host=socket.gethostname(),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            reason=self.reason.strip(),
        )

    def _reports(self, decision: Decision) -> Sequence[RescueReport]:
        from airflow_provider_lakecommit.connector.rescue import rescue
        from airflow_provider_lakecommit.connector.stopped import check_stopped
        from airflow_provider_lakecommit.hooks.connections import catalog_properties, kafka_settings
        from airflow_provider_lakecommit.hooks.kafka_connect import KafkaConnectHook

        kafka = kafka_settings(self.kafka_config_id)
        if self.commit:
            conn_id = self.kafka_connect_conn_id
            rest = None if conn_id is None else KafkaConnectHook(conn_id).rest
            check_stopped(kafka, self.connector, rest, group=self.group, stated_gone=conn_id is None)
        return rescue(
            kafka,
            catalog_properties(self.iceberg_conn_id),
            control_topic=self.control_topic,
            connector=self.connector,
            group=self.group,
            branch=self.branch,
            names=self.tables,
            commit=self.commit,
            by=decision.by,
        )

    def _tell(self, report: RescueReport) -> None:
        for j in report.judged:
            if j.fate is not Fate.COMMITTED:
                self.log.info("%s: %s %s (%s rows): %s", report.table, j.fate, j.file.path, j.file.rows, j.reason)
        self.log.info("%s: %s", report.table, report.to_dict())
