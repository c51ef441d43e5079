# SPDX-License-Identifier: Apache-2.0
"""Sends metrics the way Airflow sends its own: StatsD, DogStatsD or OpenTelemetry, as configured in `[metrics]`.

Contract: :func:`send` returns at once and raises nothing, whatever the receiver does; without metrics it reads one
option and imports nothing. A backend without tags (StatsD without `statsd_influxdb_enabled`) gets their values in the
name. Outside Airflow metrics are sent only after :func:`start_for_commands`, which does nothing unless the environment
turns them on (`AIRFLOW__METRICS__STATSD_ON=True` and so on).

Failure story: an exception of a backend is logged at level debug, once per call, and the remaining samples are dropped.
StatsD's packets are lost if there is no receiver. OpenTelemetry's are sent by a thread of Airflow; Airflow waits for
the last of them when the task has ended.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable

from airflow_provider_lakecommit.telemetry.metrics import Sample, name_without_tags

ON = ("statsd_datadog_enabled", "statsd_on", "otel_on")
"""Options that turn a backend on; Airflow uses the first."""
TRUE = frozenset({"t", "true", "1"})

log = logging.getLogger(__name__)


def send(samples: Iterable[Sample]) -> None:
    """Send samples."""
    try:
        if (tagged := _has_tags()) is None:
            return
        from airflow.sdk.observability import stats

        for sample in samples:
            name = sample.metric.name if tagged else name_without_tags(sample)
            tags = dict(zip(sample.metric.tags, sample.tags, strict=True)) if tagged else None
            if sample.metric.kind == "counter":
                stats.incr(name, int(sample.value), tags=tags)
            else:
                stats.gauge(name, sample.value, tags=tags)
    except Exception as e:
        log.debug("metrics were not sent: %s: %s", type(e).__name__, e)


def start_for_commands() -> Callable[[Iterable[Sample]], None]:
    """Return :func:`send`, set up as Airflow does for a task, or a function that sends nothing."""
    if not any(os.environ.get(f"AIRFLOW__METRICS__{option.upper()}", "").lower() in TRUE for option in ON):
        return lambda _: None
    try:
        from airflow.sdk.observability import stats
        from airflow.sdk.observability.metrics import stats_utils

        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
    except Exception as e:
        log.warning("no metrics are sent: %s: %s", type(e).__name__, e)
        return lambda _: None
    return send


def _has_tags() -> bool | None:
    """Return whether the active backend has tags; ``None`` without a backend."""
    from airflow.sdk.configuration import conf

    on = next((option for option in ON if conf.getboolean("metrics", option, fallback=False)), None)
    if on is None:
        return None
    return on != "statsd_on" or bool(conf.getboolean("metrics", "statsd_influxdb_enabled", fallback=False))
