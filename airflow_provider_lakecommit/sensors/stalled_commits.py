# SPDX-License-Identifier: Apache-2.0
"""A guard before work that adds to a stall, or that needs the data that a stall holds back.

The first check runs in the worker and decides `skip` and `fail`; only `wait` defers, and the triggerer ends it as soon
as commits get through. The verdict is that of :mod:`airflow_provider_lakecommit.stall.verdict`, from the control topic
alone. The task's callbacks get the observation as ``reason`` in their context. Unreachable brokers are an error of the
task, not a stall. If too little was observed for a verdict, `on_unknown` decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout, AirflowSkipException

from airflow_provider_lakecommit.core import group_id
from airflow_provider_lakecommit.hooks import Settings
from airflow_provider_lakecommit.landing import CHECKS, Landing
from airflow_provider_lakecommit.operators import landing_of, no_retry_in_vain, refuse_unknown
from airflow_provider_lakecommit.stall import CALM, POLICY_FIELDS, Guard, GuardAnswer, Ruling, StallPolicy, Verdict
from airflow_provider_lakecommit.telemetry import STALLED, Sample
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.stall import WatchedTopic

__all__ = ["RULING", "StalledCommitSensor"]

RULING = "commits"
"""XCom key: the result of the first check."""
COMPLETION = timedelta(hours=1)
BACKSTOP = timedelta(minutes=2)
"""How long after its deadline the scheduler ends a wait, if no triggerer does."""
ON_STALL = ("skip", "wait", "fail")
SPECS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The watched group, its location, and the guard."""

    watched_topic: WatchedTopic
    group: str
    kafka_config_id: str
    guard: Guard


class StalledCommitSensor(BaseSensorOperator):
    """Succeed while commits get through; otherwise skip, wait or fail.

    Name the guarded group in one of three ways: ``landing``, ``connector``, or ``control_topic`` with
    ``control_group_id``.

    :param landing: a landing, the name of one, or the path of a YAML spec, which ends in `.yaml` or `.yml`
    :param connector: name of an Iceberg sink in Kafka Connect, which reports its control topic and commit interval
    :param control_topic: topic of the commit protocol; for a landing by name the one of `[lakecommit]` by default
        (templated)
    :param control_group_id: group of the events, `connect-<name>` for a connector (templated)
    :param kafka_config_id: connection of type `kafka`; that of the landing, or `kafka_default`
    :param kafka_connect_conn_id: connection of type `http` of a Kafka Connect worker
    :param on_stall: what to do while commits stall: ``skip``, ``wait`` or ``fail`` (for good, without retries)
    :param policy: what counts as a stall, and what ends a wait; see
        :class:`~airflow_provider_lakecommit.stall.policy.StallPolicy`
    :param deferrable: wait in the triggerer; otherwise in the worker, by ``mode`` and ``poke_interval``
    :param timeout: limit of a ``wait``; then the task fails, or is skipped with ``soft_fail``

    .. seealso:: :ref:`howto/operator:StalledCommitSensor`
    """

    template_fields: Sequence[str] = ("control_topic", "control_group_id", "connector")
    ui_color = "#f7ecd0"

    def __init__(
        self,
        *,
        landing: Landing | str | Path | None = None,
        connector: str | None = None,
        control_topic: str | None = None,
        control_group_id: str | None = None,
        kafka_config_id: str | None = None,
        kafka_connect_conn_id: str = "kafka_connect_default",
        on_stall: Literal["skip", "wait", "fail"] = "skip",
        policy: StallPolicy = StallPolicy(),  # noqa: B008
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        if moved := [name for name in kwargs if name in POLICY_FIELDS]:
            raise ValueError(
                f"StalledCommitSensor {kwargs.get('task_id', '')!r}: {', '.join(moved)} belongs to the policy: "
                f"policy=StallPolicy({moved[0]}=…)"
            )
        refuse_unknown(type(self), kwargs, kwargs.get("task_id", ""))
        super().__init__(**kwargs)
        self.landing = _landing_or_name(landing)
        self.connector = connector
        self.control_topic = control_topic
        self.control_group_id = control_group_id
        self.kafka_config_id = kafka_config_id
        self.kafka_connect_conn_id = kafka_connect_conn_id
        self.on_stall = on_stall
        self.policy = policy
        self.deferrable = deferrable
        self._waits_since: float | None = None
        if wrong := [*_wrong_target(self), *_wrong_values(self)]:
            raise ValueError(f"StalledCommitSensor {self.task_id!r}: {'; '.join(wrong)}")

    def execute(self, context: Context) -> None:
        if self.on_stall == "wait" and not self.deferrable:
            super().execute(context)
            return
        if self.on_stall == "wait":
            self._waits_since = time.time()
        ruling, target = self._ruling()
        watched_topic = {"control_topic": target.watched_topic.topic, "group": target.group}
        context["ti"].xcom_push(RULING, {**ruling.to_dict(), **watched_topic})
        if self._goes(context, ruling, target):
            return
        if self.on_stall == "fail":
            raise AirflowFailException(f"{target.group}: {ruling}")
        if self.on_stall == "skip":
            raise AirflowSkipException(f"{target.group}: {ruling}")
        self._report_wait(context, f"{target.group} waits until commits get through: {ruling}")
        self._defer(target)

    def poke(self, context: Context) -> bool:
        began = self._began(context)
        self._waits_since = began or time.time()
        ruling, target = self._ruling()
        if self._goes(context, ruling, target):
            return True
        if began is None:
            self._report_wait(context, f"{target.group} waits until commits get through: {ruling}")
        return False

    def execute_complete(self, context: Context, event: Any) -> None:
        """Finish a wait that did not end in the triggerer: it failed, has callbacks, or was run by `dag.test()`."""
        from airflow_provider_lakecommit.triggers import TIMED_OUT

        if event == "success":
            _log(context, "commits get through")
            return
        if event == "skipped":
            raise AirflowSkipException(_log(context, "commits did not get through in time"))
        if event["how"] == TIMED_OUT:
            late = f"commits did not get through within {timedelta(seconds=self.timeout)}: {event['reason']}"
            raise AirflowSensorTimeout(_log(context, late))
        raise AirflowFailException(_log(context, event["reason"]))

    def _goes(self, context: Context, ruling: Ruling, target: _Target) -> bool:
        """Return True if the task passes; raises AirflowFailException if it must fail, whatever ``on_stall`` is."""
        text = _log(context, f"{target.group}: {ruling}")
        cast("dict[str, Any]", context)["verdict"] = ruling.verdict
        send([Sample(STALLED, int(ruling.answer is not GuardAnswer.GO), (target.group,))])
        if ruling.answer is GuardAnswer.FAIL:
            raise AirflowFailException(text)
        if ruling.answer is GuardAnswer.GO:
            # A verdict that does not hold may still need attention, and so may a name without any event.
            calm = ruling.verdict in CALM and ruling.verdict != Verdict.UNKNOWN
            self.log.log(logging.INFO if calm else logging.WARNING, "%s", text)
        return ruling.answer is GuardAnswer.GO

    def _began(self, context: Context) -> float | None:
        if self._waits_since is None and self.reschedule:
            first = context["ti"].get_first_reschedule_date(context)
            return first.timestamp() if first else None
        return self._waits_since

    def _ruling(self) -> tuple[Ruling, _Target]:
        from airflow_provider_lakecommit.hooks import kafka_settings
        from airflow_provider_lakecommit.stall import commits_of

        with no_retry_in_vain():
            target = self._target()
            kafka = kafka_settings(target.kafka_config_id)
            # The first run of a landing creates its control topic; a connector's exists, or its name is wrong.
            commits = commits_of(kafka, target.watched_topic, target.group, missing_ok=self.landing is not None)
        return commits.ruling(target.group, target.guard), target

    def _target(self) -> _Target:
        from airflow_provider_lakecommit.stall import WatchedTopic

        topic, group, kafka, interval, completion = self.control_topic, self.control_group_id, None, None, COMPLETION
        if self.connector is not None:
            from airflow_provider_lakecommit.hooks import KafkaConnectHook
            from airflow_provider_lakecommit.operations import commits_of_sink

            config = KafkaConnectHook(self.kafka_connect_conn_id).rest.config(self.connector)
            topic, group, interval = commits_of_sink(self.connector, config)
        elif isinstance(self.landing, Landing):
            declared = Settings.read().complete(self.landing)
            topic, group, kafka = declared.control_topic_name, group_id(declared.name), declared.connections.kafka
            completion = declared.window.completion_timeout
        elif self.landing is not None:
            topic, group = topic or Settings.read().control_topic, group_id(self.landing)
        return _Target(
            watched_topic=WatchedTopic(
                topic=str(topic), completion_timeout=completion.total_seconds(), since=self.policy.history_seconds
            ),
            group=str(group),
            kafka_config_id=self.kafka_config_id or kafka or "kafka_default",
            guard=self.policy.guard(landing=self.landing is not None, interval=interval, waits_since=self._waits_since),
        )

    @property
    def _has_more_to_do(self) -> bool:
        """Return True if the end of the wait has further steps that Airflow skips when the triggerer ends it."""
        skips = self.soft_fail and self.on_skipped_callback
        return bool(self.on_success_callback or skips or self.outlets)

    def _report_wait(self, context: Context, text: str) -> None:
        """Call the callbacks; an error of a callback must not prevent the wait."""
        self.log.warning("%s", text)
        for callback in self.policy.callbacks:
            try:
                callback(context)
            except Exception:
                self.log.exception("a callback of on_wait_callback failed")

    def _defer(self, target: _Target) -> None:
        from airflow_provider_lakecommit.triggers import EndedByWorkerTrigger, StalledCommitTrigger, guard_to_json

        kind = EndedByWorkerTrigger if self._has_more_to_do else StalledCommitTrigger
        trigger = kind(
            control_topic=target.watched_topic.topic,
            kafka_config_id=target.kafka_config_id,
            completion_timeout=target.watched_topic.completion_timeout,
            since=target.watched_topic.since,
            control_group_id=target.group,
            guard=guard_to_json(target.guard),
            deadline=time.time() + self.timeout,
            jitter=self.policy.jitter_seconds,
            soft_fail=self.soft_fail,
        )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout) + BACKSTOP)


def _log(context: Context, text: str) -> str:
    """Log the text and leave it to callbacks: Airflow gives them no exception for a skip, wait or success."""
    cast("dict[str, Any]", context)["reason"] = text
    return text


def _landing_or_name(landing: Landing | str | Path | None) -> Landing | str | None:
    """Return the landing as the operators take it, or just its name, because only the control topic is read."""
    if isinstance(landing, Path) or (isinstance(landing, str) and landing.endswith(SPECS)):
        return landing_of(landing)
    return landing


def _wrong_target(sensor: StalledCommitSensor) -> Iterator[str]:
    given = [name for name in ("landing", "connector", "control_group_id") if getattr(sensor, name) is not None]
    if len(given) != 1:
        yield f"give one of landing, connector and control_group_id, not {' and '.join(given) or 'none'}"
    if not isinstance(sensor.landing, Landing | None) and (wrong := CHECKS["name"](sensor.landing)):
        yield f"landing={wrong}"
    if sensor.control_group_id is not None and sensor.control_topic is None:
        yield "control_group_id needs its control_topic"
    if sensor.control_topic is not None and (sensor.connector is not None or isinstance(sensor.landing, Landing)):
        yield "the landing or the connector determines control_topic: leave it out"


def _wrong_values(sensor: StalledCommitSensor) -> Iterator[str]:
    if sensor.on_stall not in ON_STALL:
        yield f"on_stall={sensor.on_stall!r} is not one of {', '.join(ON_STALL)}"
    if not isinstance(sensor.policy, StallPolicy):
        yield f"policy={sensor.policy!r} is not a StallPolicy"
    elif sensor.policy.fail_after is not None and sensor.soft_fail:
        yield "fail_after fails, soft_fail skips instead: give one of them"
