# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the arguments of a :class:`StalledCommitSensor`: all of it at once, when the DAG is parsed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.core.guard import MOST_CYCLES
from airflow_provider_lakecommit.core.stall import Verdict
from airflow_provider_lakecommit.landing import Landing

if TYPE_CHECKING:
    from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor

__all__ = ["wrong_with"]

ON_STALL = ("skip", "wait", "fail")
ON_UNKNOWN = ("pass", "stall")
SPANS = ("max_valid_through_age", "fail_after", "look_back")


def wrong_with(sensor: StalledCommitSensor) -> list[str]:
    """One text for each mistake."""
    return [*_target(sensor), *_values(sensor)]


def _target(sensor: StalledCommitSensor) -> Iterator[str]:
    told = [name for name in ("landing", "connector", "control_group_id") if getattr(sensor, name) is not None]
    if len(told) != 1:
        yield f"one of landing, connector and control_group_id is needed, not {' and '.join(told) or 'none'}"
    if sensor.control_group_id is not None and sensor.control_topic is None:
        yield "control_group_id needs its control_topic"
    if sensor.control_topic is not None and (sensor.connector is not None or isinstance(sensor.landing, Landing)):
        yield "control_topic is known from the landing or the connector: leave it out"


def _values(sensor: StalledCommitSensor) -> Iterator[str]:
    if sensor.on_stall not in ON_STALL:
        yield f"on_stall={sensor.on_stall!r} is not one of {', '.join(ON_STALL)}"
    if sensor.on_unknown not in ON_UNKNOWN:
        yield f"on_unknown={sensor.on_unknown!r} is not one of {', '.join(ON_UNKNOWN)}"
    if not 1 <= sensor.stalled_cycles <= MOST_CYCLES:
        yield f"stalled_cycles={sensor.stalled_cycles!r}: a number from 1 to {MOST_CYCLES}"
    unknown = sorted(
        set(sensor.hold_on or ()) - {v.value for v in Verdict} | {Verdict.HEALTHY} & set(sensor.hold_on or ())
    )
    if unknown:
        yield f"hold_on: {', '.join(unknown)} is no verdict that could hold"
    for name in SPANS:
        span = getattr(sensor, name)
        if span is not None and span <= timedelta(0):
            yield f"{name}={span}: a positive duration"
    if sensor.release_jitter < timedelta(0):
        yield f"release_jitter={sensor.release_jitter}: a duration"
    if sensor.fail_after is not None and sensor.soft_fail:
        yield "fail_after fails, soft_fail skips instead: one of them"
