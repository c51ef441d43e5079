# SPDX-License-Identifier: Apache-2.0
"""The connector whose table is taken over or handed back: request its state, stop it, wait for it, resume it.

Contract: its state is requested from Kafka Connect each time, and never remembered. :func:`settled` returns only when
no process works for it and everything it has begun is decided: its groups have no members, and its offsets and its
control topic have no open transaction. :func:`check_stopped` checks once, neither waits nor stops: neither Connect, as
far as it answers, nor, whatever Connect reports, a member of the connector's consumer groups may work for it. A paused
connector is active: its coordinator continues to commit.

Failure story: a worker that was cut off from Kafka for longer than its session, and still hangs in a commit, cannot be
detected. A killed worker remains a member until its session ends, and its transaction stays open until its
timeout: both are waited for. If it takes longer, a :class:`ConnectorError` names the cause.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_lakecommit.core import source_group
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import ConnectorError
from airflow_provider_lakecommit.kafka import check_no_members, offsets_of_group, set_group_offsets
from airflow_provider_lakecommit.operations.kafka_connect.rescue import Rescue
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest
from airflow_provider_lakecommit.operations.kafka_connect.sink import CONTROL_TOPIC, commits_of_sink
from airflow_provider_lakecommit.operations.kafka_connect.sink_offsets import By, SinkProgress

POLL_SECONDS = 1.0
WAIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownConnector:
    """What is known of a connector.

    :param rest: its Kafka Connect; ``None``: the user states that it does not exist
    :param config: its configuration, if Kafka Connect still has it
    :param by: which statement of its offsets is valid
    :param runs: Kafka Connect has it, and has not stopped it
    :param wait: seconds for it to stop, and for everything it has begun to be decided
    """

    name: str
    rest: ConnectRest | None
    kafka: Mapping[str, Any] = field(repr=False)
    control_topic: str
    group: str
    config: Mapping[str, str] | None = field(default=None, repr=False)
    by: By = By.BOTH
    wait: float = WAIT_SECONDS
    state: str = "deleted, as you stated"
    runs: bool = False

    def offsets(self, *, decided: bool = False) -> dict[tuple[str, int], int]:
        """Return the next offsets that its tasks read."""
        return offsets_of_group(self.kafka, source_group(self.name), decided=decided)

    def move(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set the next offsets that its tasks read."""
        set_group_offsets(self.kafka, source_group(self.name), offsets)

    def check_stopped(self) -> None:
        """:raises ConnectorError: a process works for it"""
        check_stopped(self.kafka, self.name, self.rest, group=self.group, stated_gone=self.rest is None)


def known_connector(
    kafka: Mapping[str, Any],
    name: str,
    rest: ConnectRest | None,
    *,
    control_topic: str | None = None,
    group: str | None = None,
    by: By = By.BOTH,
    wait: float = WAIT_SECONDS,
) -> KnownConnector:
    """Request its state. The state of a deleted connector, or of one without Kafka Connect, is what the user states.

    :raises ConnectError: Kafka Connect does not answer
    :raises SpecError: it is no Iceberg sink
    """
    known = KnownConnector(
        name=name,
        rest=rest,
        kafka=kafka,
        control_topic=control_topic or CONTROL_TOPIC,
        group=group or source_group(name),
        by=by,
        wait=wait,
    )
    if rest is None:
        return known
    if name not in rest.connectors():
        return replace(known, state="not in that Kafka Connect")
    config, status = rest.config(name), rest.status(name)
    topic, its_group, _ = commits_of_sink(name, config)
    runs = not status.is_stopped
    return replace(known, control_topic=topic, group=its_group, config=config, state=str(status), runs=runs)


def rescue_of(session: LandingSession, connector: KnownConnector, by: str = "") -> Rescue:
    """Return the rescue of its control topic's present content and its tables."""
    return Rescue(
        connector.kafka,
        session.tables,
        control_topic=connector.control_topic,
        connector=connector.name,
        group=connector.group,
        branch=session.landing.branch,
        by=by,
        taken_over=True,
    )


def progress_of(session: LandingSession, connector: KnownConnector, log: Rescue) -> SinkProgress:
    """Return how far it has read. While it runs, its log is read before and after its offsets.

    :param log: read before
    """
    least = log.log.ends
    offsets = connector.offsets(decided=not connector.runs)
    announced = rescue_of(session, connector).log.ends if connector.runs else least
    return SinkProgress(offsets=offsets, announced=announced, least=least)


def stop(connector: KnownConnector) -> None:
    """End its tasks; returns when Kafka Connect confirms it.

    :raises ConnectError: Kafka Connect does not answer
    :raises ConnectorError: it does not exist, or Kafka Connect does not support this
    """
    if connector.rest is not None and connector.config is not None:
        try:
            connector.rest.stop(connector.name)
        except ConnectorError:
            raise ConnectorError(
                "LC7501",
                f"connector {connector.name} no longer exists, or its Kafka Connect is older than 3.5 and cannot stop "
                f"it: save its configuration, delete it, and pass --connector-is-gone --control-topic "
                f"{connector.control_topic} --group {connector.group}",
            ) from None
        connector.rest.wait_for(connector.name, lambda s: s.is_stopped, connector.wait, "stopped")


def settled(session: LandingSession, connector: KnownConnector) -> None:
    """Wait until no process works for it, and everything it has begun is decided."""
    end, is_logged = time.monotonic() + connector.wait, False
    while what := _unsettled(session, connector):
        if time.monotonic() >= end:
            raise ConnectorError("LC7502", f"still waiting after {connector.wait:.0f} s: {what}")
        if not is_logged:
            session.log(f"waiting, because {what}")
        is_logged = True
        time.sleep(POLL_SECONDS)


def _unsettled(session: LandingSession, connector: KnownConnector) -> str:
    """Return what is not decided yet; empty if everything is."""
    try:
        connector.check_stopped()
    except ConnectorError as e:
        return str(e)
    with closing(session.source.of((connector.control_topic,))) as control:
        marks = control.watermarks().partitions
    return "; ".join(
        f"{p} has an open transaction at {m.stable}" for p, m in sorted(marks.items()) if m.stable < m.high
    )


def check_stopped(
    kafka: Mapping[str, Any],
    connector: str,
    rest: ConnectRest | None,
    *,
    group: str | None = None,
    stated_gone: bool = False,
) -> None:
    """Check that no process works for the connector: neither Connect nor a member of its groups, whatever Connect
    reports.

    :param rest: Connect, if it is reachable
    :param group: the group in the connector's events, if its tasks read in another one
    :param stated_gone: without Connect, the user states that the connector does not exist
    :raises ConnectorError: a process works for it, or it is unknown whether one does
    """
    if rest is not None:
        if connector in rest.connectors() and not (status := rest.status(connector)).is_stopped:
            raise ConnectorError(
                "LC7525",
                f"{status}: its coordinator commits even while it is paused, and failed tasks may be restarted. Stop "
                "it (PUT /connectors/NAME/stop) or delete it",
            )
    elif not stated_gone:
        raise ConnectorError(
            "LC7523",
            f"it is unknown if connector {connector} is stopped: name its Kafka Connect, or state that it was deleted",
        )
    check_no_members(kafka, connector, group)
