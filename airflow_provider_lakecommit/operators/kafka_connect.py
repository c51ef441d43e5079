# SPDX-License-Identifier: Apache-2.0
"""Pause, resume, restart or rescue an Iceberg sink of Kafka Connect, without a change to the connector.

Contract: pause, resume and restart wait until Connect reports the new state, and return the status; repeating them
changes nothing. A paused connector's tasks stop reading and writing files, while its coordinator continues its cycles
and commits announced files as soon as the catalog accepts them. So a pause during an outage loses no time, and a
connector whose coordinator is dead needs a restart instead. This holds for running tasks: tasks that start while the
connector is paused, after a restart or a rebalance of workers, sleep until it is resumed, and so does the coordinator.
A connector that a user *stopped* is left alone: pausing it would start its tasks, maybe during a rescue.

A rescue reports what became of announced files. With ``commit`` it appends those that were certainly never committed;
concurrent or repeated tasks append no row twice. The rules are those of
:mod:`~airflow_provider_lakecommit.operations.kafka_connect.disposition`. Its snapshots name the run, the user who
triggered it, and the reason.

Failure story: the task's retries cover a worker that does not answer; a missing or stopped connector fails without
retries. If tasks fail again after a restart, the error names them and the cause. A rescue of a running connector, a
table that refuses, or missing files fail the task without retries, after all other tables are done.
"""

from __future__ import annotations

import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_lakecommit.core import CONNECT_RESCUE, PAUSE, RESUME, spoken
from airflow_provider_lakecommit.exceptions import ConnectError, ConnectorError, SpecError, TableError
from airflow_provider_lakecommit.landing import span_of
from airflow_provider_lakecommit.operations import CONTROL_TOPIC, Disposition, is_stated, texts_of
from airflow_provider_lakecommit.operators.base import no_retry_in_vain
from airflow_provider_lakecommit.operators.tasks.arguments import check_arguments, filled, one_of, refuse_unknown
from airflow_provider_lakecommit.operators.tasks.decision import decision_now

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.operations import ConnectorStatus, ConnectRest, RescueReport

__all__ = ["ACTIONS", "KafkaConnectOperator"]

RESTART = "restart"
RESCUE = spoken(CONNECT_RESCUE).rpartition(" ")[2]
_LOG = logging.getLogger(__name__)


class KafkaConnectOperator(BaseOperator):
    """Pause, resume or restart an Iceberg sink of Kafka Connect, or rescue the files that it never committed.

    Returns the status of the connector; after ``rescue`` a list with a report of each table.

    ==========  =======================================================================================================
    action      arguments
    ==========  =======================================================================================================
    `pause`     ``wait``
    `resume`    ``wait``, ``jitter``: first wait for a random part of that time, so that connectors of one catalog do
                not resume at once, ``stopped_too``: also start a connector that was stopped
    `restart`   ``wait``, ``include_tasks`` (True): a connector whose task has failed is `RUNNING` itself,
                ``only_failed`` (True): leave running parts alone, ``stays``: how long all parts must keep running,
                because the same cause fails a task at its first commit; tasks of a paused connector do not run
    `rescue`    ``commit`` (False): commit them; otherwise nothing is written, ``control_topic``, ``tables``: only
                these, ``group``: the group in its events, if it is not `connect-NAME`, ``branch``,
                ``kafka_config_id``, ``iceberg_conn_id``, ``reason``: kept in the snapshots
    ==========  =======================================================================================================

    Times are timedeltas, seconds, or texts such as ``1m30s``. ``wait`` is the time that Connect has.

    :param connector: name of the connector (templated)
    :param action: ``pause``, ``resume``, ``restart`` or ``rescue``
    :param arguments: those of the action, by name (templated)
    :param kafka_connect_conn_id: connection of type `http` to Kafka Connect. ``None``, for a rescue: you state that the
        connector no longer exists; otherwise Connect must report it as stopped or missing (templated)

    .. seealso:: :ref:`howto/operator:KafkaConnectOperator`
    """

    template_fields: Sequence[str] = ("connector", "kafka_connect_conn_id", "arguments")
    template_fields_renderers: ClassVar[dict[str, str]] = {"arguments": "json"}
    ui_color = "#e6edf0"

    def __init__(
        self,
        *,
        connector: str,
        action: str,
        arguments: Mapping[str, Any] | None = None,
        kafka_connect_conn_id: str | None = "kafka_connect_default",
        **kwargs: Any,
    ) -> None:
        refuse_unknown(type(self), kwargs, kwargs.get("task_id", ""))
        super().__init__(**kwargs)
        self.connector = connector
        self.action = one_of(action, ACTIONS, f"KafkaConnectOperator {self.task_id!r}: action")
        self.arguments = arguments
        self.kafka_connect_conn_id = kafka_connect_conn_id
        kind, given = ACTIONS[self.action], {} if arguments is None else arguments
        if kafka_connect_conn_id is None and kind is not Rescue:
            raise SpecError("LC8325", f"{self._name}: kafka_connect_conn_id is needed")
        check_arguments(kind, given, self._name)
        if isinstance(given, Mapping) and issubclass(kind, _StateChange):
            kind(**given).check()

    @property
    def _name(self) -> str:
        return f"KafkaConnectOperator {self.task_id!r}: {self.action}"

    def execute(self, context: Context) -> Any:
        """Run the action, and wait until it is done."""
        from airflow_provider_lakecommit.hooks import KafkaConnectHook

        with no_retry_in_vain():
            action = filled(ACTIONS[self.action], {} if self.arguments is None else self.arguments, self._name)
            conn_id = self.kafka_connect_conn_id
            if isinstance(action, Rescue):
                rest = None if conn_id is None or not action.commit else KafkaConnectHook(conn_id).rest
                return action.rescue(self.connector, rest, self._decision(context, action))
            action.check()
            if conn_id is None:
                raise SpecError("LC8325", f"{self._name}: kafka_connect_conn_id is needed")
            status = action.act(KafkaConnectHook(conn_id).rest, self.connector)
        self.log.info("%s", status)
        for part in status.dead:
            self.log.warning("%s has failed: %s", part.name, part.cause)
        return status.to_dict()

    def _decision(self, context: Context, action: Rescue) -> Decision:
        task, run = context.get("ti"), context.get("dag_run")
        user = getattr(run, "triggering_user_name", None) or "nobody"
        where = f"DAG {task.dag_id}, run {run.run_id}, task {task.task_id}" if task and run else f"task {self.task_id}"
        return decision_now(spoken(CONNECT_RESCUE), f"{user} by {where}", action.reason)


@dataclass(frozen=True, kw_only=True)
class _StateChange(ABC):
    """An action that changes the state of a connector, with its arguments as fields."""

    wait: timedelta | str | float = timedelta(minutes=2)

    def check(self) -> None:
        """:raises SpecError: a time is invalid"""
        for name in ("wait", "jitter", "stays"):
            if is_stated(value := getattr(self, name, None)) and value is not None:
                span_of(value, name)

    @property
    def seconds(self) -> float:
        return span_of(self.wait, "wait").total_seconds()

    @abstractmethod
    def act(self, rest: ConnectRest, connector: str) -> ConnectorStatus:
        """Run the action, and return the status."""


class Pause(_StateChange):
    """Stop reading; the coordinator continues. Failed tasks stay failed, and are logged."""

    def act(self, rest: ConnectRest, connector: str) -> ConnectorStatus:
        _known(rest, connector)
        rest.pause(connector)
        return rest.wait_for(connector, lambda s: s.is_paused, self.seconds, "paused")


@dataclass(frozen=True, kw_only=True)
class Resume(_StateChange):
    """Let a connector's tasks read again, including the backlog."""

    jitter: timedelta | str | float = timedelta(0)
    stopped_too: bool = False

    def act(self, rest: ConnectRest, connector: str) -> ConnectorStatus:
        pause = random.uniform(0, span_of(self.jitter, "jitter").total_seconds())
        if pause:
            _LOG.info("resuming %s in %.0f s", connector, pause)
            time.sleep(pause)
        if not self.stopped_too:
            _known(rest, connector)
        rest.resume(connector)
        return rest.wait_for(connector, _goes_on, self.seconds, "running")


@dataclass(frozen=True, kw_only=True)
class Restart(_StateChange):
    """Restart the failed parts of a connector, and wait until all of it runs."""

    include_tasks: bool = True
    only_failed: bool = True
    stays: timedelta | str | float = timedelta(0)

    def act(self, rest: ConnectRest, connector: str) -> ConnectorStatus:
        for part in _known(rest, connector).dead:
            _LOG.info("%s has failed: %s", part.name, part.cause)
        stays = span_of(self.stays, "stays").total_seconds()
        rest.restart(connector, include_tasks=self.include_tasks, only_failed=self.only_failed)
        status = rest.wait_for(connector, _runs_or_is_paused, self.seconds, "running")
        if stays and not status.is_running:
            raise ConnectError(
                "LC8326", f"{status}: it was restarted while paused, so its tasks and its coordinator sleep: resume it"
            )
        end = time.monotonic() + stays
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(1.0, left))
            status = rest.status(connector)
            if status.dead:
                causes = "; ".join(f"{part.name}: {part.cause}" for part in status.dead)
                raise ConnectError(
                    "LC8327", f"{status}: it failed again after the restart; fix the cause first: {causes}"
                )
        return status


@dataclass(frozen=True, kw_only=True)
class Rescue:
    """Report what became of a connector's announced files, and commit the waiting ones."""

    commit: bool = False
    control_topic: str = CONTROL_TOPIC
    tables: str | Sequence[str] | None = None
    group: str | None = None
    branch: str = "main"
    kafka_config_id: str = "kafka_default"
    iceberg_conn_id: str = "iceberg_default"
    reason: str = ""

    def rescue(self, connector: str, rest: ConnectRest | None, decision: Decision) -> list[dict[str, Any]]:
        """Scan, and commit if requested.

        :param rest: the Connect that must report the connector as stopped or missing
        """
        from airflow_provider_lakecommit.operations import unreadable

        reports = self._reports(connector, rest, decision)
        for report in reports:
            for j in filter(lambda j: j.disposition is not Disposition.COMMITTED, report.files):
                _LOG.info("%s: %s %s (%s rows): %s", report.table, j.disposition, j.file.path, j.file.rows, j.reason)
            _LOG.info("%s: %s", report.table, report.to_dict())
        if refused := [r.refusal for r in reports if r.refusal]:
            raise TableError("LC8328", "; ".join(refused))
        if missing := [r.table for r in reports if r.missing]:
            raise TableError(
                "LC8329", f"files were announced for {', '.join(missing)}, which the catalog does not have"
            )
        if out := [j for r in reports for j in r.left_out]:
            raise TableError(
                "LC8330",
                f"{len(out)} files are missing or differ from the announced ones, and are left out: {out[0].file.path} "
                f"({out[0].reason}), …",
            )
        if unread := next((r.unread for r in reports), ()):
            raise unreadable(connector, unread)
        return [report.to_dict() for report in reports]

    def _reports(self, connector: str, rest: ConnectRest | None, decision: Decision) -> Sequence[RescueReport]:
        from airflow_provider_lakecommit.hooks import catalog_properties, kafka_settings
        from airflow_provider_lakecommit.operations import check_stopped, rescue

        kafka = kafka_settings(self.kafka_config_id)
        if self.commit:
            check_stopped(kafka, connector, rest, group=self.group, stated_gone=rest is None)
        return rescue(
            kafka,
            catalog_properties(self.iceberg_conn_id),
            control_topic=self.control_topic,
            connector=connector,
            group=self.group,
            branch=self.branch,
            names=texts_of(self.tables) or None,
            commit=self.commit,
            by=decision.by,
        )


ACTIONS: Mapping[str, type[_StateChange] | type[Rescue]] = {
    spoken(PAUSE): Pause,
    spoken(RESUME): Resume,
    RESTART: Restart,
    RESCUE: Rescue,
}


def _known(rest: ConnectRest, connector: str) -> ConnectorStatus:
    """Return the status before a change; refuse one that a user stopped."""
    status = rest.status(connector)
    if status.connector.state == "STOPPED":
        raise ConnectorError("LC8331", f"{status}: a user stopped it, so it is left alone; resume it first")
    return status


def _goes_on(status: ConnectorStatus) -> bool:
    """Return True if everything that a resume can start is running; failed parts need a restart."""
    alive = [part for part in status.parts if not part.failed]
    return bool(status.tasks) and all(part.state == "RUNNING" for part in alive)


def _runs_or_is_paused(status: ConnectorStatus) -> bool:
    """Return True if it runs or is paused: a paused connector's tasks restart paused."""
    return status.is_running or (bool(status.tasks) and all(part.state == "PAUSED" for part in status.parts))
