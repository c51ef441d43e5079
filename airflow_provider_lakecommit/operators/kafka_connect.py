# SPDX-License-Identifier: Apache-2.0
"""Pause, resume and restart an Iceberg sink of Kafka Connect that needs no change for it.

Contract: each waits until Connect says that it is so, and returns the status; done again, nothing changes. What pausing
does is not what its name says: the tasks read no further and write no more files, while the connector's coordinator
goes on with its cycles and commits what is announced as soon as the catalog takes it. So a pause in an outage loses no
time, and a connector whose coordinator is dead is not helped by it: that one needs a restart. It holds for tasks that
run: those that are started anew while the connector is paused, by a restart or because a worker came or went, sleep
until it is resumed, and the coordinator with them.

A connector that somebody *stopped* is left alone: pausing it would start its tasks, in the midst of a rescue maybe.

Failure story: a worker that does not answer is left to the task's retries; a connector that is not there, or stopped,
is not tried again. A restart after which tasks fail anew names them and why.
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_lakecommit.declared.times import span_of
from airflow_provider_lakecommit.exceptions import ConnectError, ConnectorError
from airflow_provider_lakecommit.operators.base import no_retry_in_vain
from airflow_provider_lakecommit.tasks.arguments import refuse_unknown

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.connector.rest import ConnectorStatus, ConnectRest

__all__ = ["PauseConnectorOperator", "RestartConnectorOperator", "ResumeConnectorOperator"]


class ConnectorTask(BaseOperator):
    """Base of the operators on a connector.

    :param connector: its name (templated)
    :param kafka_connect_conn_id: connection of type `http` to Kafka Connect (templated)
    :param wait: how long Connect may take to do it
    """

    template_fields: Sequence[str] = ("connector", "kafka_connect_conn_id")
    ui_color = "#e6edf0"

    def __init__(
        self,
        *,
        connector: str,
        kafka_connect_conn_id: str = "kafka_connect_default",
        wait: timedelta | str | float = timedelta(minutes=2),
        **kwargs: Any,
    ) -> None:
        refuse_unknown(type(self), kwargs, kwargs.get("task_id", ""))
        super().__init__(**kwargs)
        self.connector = connector
        self.kafka_connect_conn_id = kafka_connect_conn_id
        self.wait = span_of(wait, "wait")

    def execute(self, context: Context) -> dict[str, Any]:
        """Do it, and wait until it is done."""
        from airflow_provider_lakecommit.hooks.kafka_connect import KafkaConnectHook

        with no_retry_in_vain():
            status = self.act(KafkaConnectHook(self.kafka_connect_conn_id).rest)
        self.log.info("%s", status)
        for part in status.dead:
            self.log.warning("%s has failed: %s", part.name, part.cause)
        return status.to_dict()

    @abstractmethod
    def act(self, rest: ConnectRest) -> ConnectorStatus:
        """What the operator is for."""

    def look(self, rest: ConnectRest) -> ConnectorStatus:
        """How it is before.

        :raises ConnectorError: it is not there, or was stopped
        """
        status = rest.status(self.connector)
        if status.connector.state == "STOPPED":
            raise ConnectorError(f"{status}: somebody stopped it, so it is left alone; resume it first")
        return status


class PauseConnectorOperator(ConnectorTask):
    """Let a connector's tasks read no further, so that they write no more files; its coordinator goes on.

    Tasks that have failed stay so, and are named in the log.

    .. seealso:: :ref:`howto/operator:PauseConnectorOperator`
    """

    def act(self, rest: ConnectRest) -> ConnectorStatus:
        """Pause."""
        self.look(rest)
        rest.pause(self.connector)
        return rest.wait_for(self.connector, lambda s: s.is_paused, self.wait.total_seconds(), "paused")


class ResumeConnectorOperator(ConnectorTask):
    """Let a connector's tasks read again. They come back with all that has piled up meanwhile.

    :param jitter: wait for a random part of that time before, so that connectors of one catalog come back one by one
    :param stopped_too: also a connector that was stopped, whose tasks are started then

    .. seealso:: :ref:`howto/operator:ResumeConnectorOperator`
    """

    def __init__(
        self, *, jitter: timedelta | str | float = timedelta(0), stopped_too: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.jitter = span_of(jitter, "jitter")
        self.stopped_too = stopped_too

    def act(self, rest: ConnectRest) -> ConnectorStatus:
        """Resume."""
        pause = random.uniform(0, self.jitter.total_seconds())
        if pause:
            self.log.info("resuming %s in %.0f s", self.connector, pause)
            time.sleep(pause)
        if not self.stopped_too:
            self.look(rest)
        rest.resume(self.connector)
        return rest.wait_for(self.connector, _goes_on, self.wait.total_seconds(), "running")


class RestartConnectorOperator(ConnectorTask):
    """Start anew what has failed of a connector, and wait until all of it runs.

    :param include_tasks: the tasks too; a connector whose task has failed is `RUNNING` itself
    :param only_failed: leave alone what has not failed
    :param stays: for how long all of it must go on running: a task that dies of the same cause dies in its first
        commit. Tasks of a paused connector do not run; without this they need not

    .. seealso:: :ref:`howto/operator:RestartConnectorOperator`
    """

    def __init__(
        self,
        *,
        include_tasks: bool = True,
        only_failed: bool = True,
        stays: timedelta | str | float = timedelta(0),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.include_tasks = include_tasks
        self.only_failed = only_failed
        self.stays = span_of(stays, "stays")

    def act(self, rest: ConnectRest) -> ConnectorStatus:
        """Restart."""
        for part in self.look(rest).dead:
            self.log.info("%s has failed: %s", part.name, part.cause)
        rest.restart(self.connector, include_tasks=self.include_tasks, only_failed=self.only_failed)
        status = rest.wait_for(self.connector, _runs_or_is_paused, self.wait.total_seconds(), "running")
        if self.stays and not status.is_running:
            raise ConnectError(
                f"{status}: it was restarted while paused, so its tasks sleep, and its coordinator with them: resume it"
            )
        end = time.monotonic() + self.stays.total_seconds()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(1.0, left))
            status = rest.status(self.connector)
            if status.dead:
                causes = "; ".join(f"{part.name}: {part.cause}" for part in status.dead)
                raise ConnectError(f"{status}: it was restarted and failed again; mend the cause first: {causes}")
        return status


def _goes_on(status: ConnectorStatus) -> bool:
    """Whether all that can run by a resume does; what has failed needs a restart."""
    alive = [part for part in status.parts if not part.failed]
    return bool(status.tasks) and all(part.state == "RUNNING" for part in alive)


def _runs_or_is_paused(status: ConnectorStatus) -> bool:
    """A paused connector's tasks come back paused."""
    return status.is_running or (bool(status.tasks) and all(part.state == "PAUSED" for part in status.parts))
