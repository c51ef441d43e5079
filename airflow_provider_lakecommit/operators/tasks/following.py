# SPDX-License-Identifier: Apache-2.0
"""What a continuous task takes from its operator and from Airflow.

Contract: :func:`following` runs when the DAG is parsed. The lifetime must end well before ``execution_timeout``, so
that open windows can be finished.

Failure story: if Airflow does not report whether a DAG is paused, it counts as running.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import span_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import EarlierCycles, FollowOptions, LandingSession, RunIdentity

CLOCKS = timedelta(hours=1)
"""Largest difference between the clock of Airflow and that of the writer of a control record."""
SPARE = timedelta(minutes=1)
"""Least time between the end of a lifetime and the timeout of its task."""

log = logging.getLogger(__name__)


def following(
    lifetime: timedelta | str | float | None,
    window_age: timedelta | str | float,
    keep_snapshots: timedelta | str | float | None,
    timeout: timedelta | None,
) -> FollowOptions | None:
    """Return the options of continuous mode, ``None`` without it."""
    if lifetime is None:
        return None
    from airflow_provider_lakecommit.cycle import FollowOptions

    span = span_of(lifetime, "follow_for")
    options = FollowOptions(
        lifetime=span,
        window_age=span_of(window_age, "window_age"),
        keep_snapshots=None if keep_snapshots is None else span_of(keep_snapshots, "keep_snapshots"),
    )
    if timeout is not None and span + SPARE > timeout:
        raise SpecError(
            "LC8353",
            f"follow_for {span} must end a minute before execution_timeout {timeout}, so that open windows can be "
            "finished: shorten it, or increase the timeout",
        )
    return options


def goes_on(session: LandingSession, run: RunIdentity, earlier: EarlierCycles) -> bool:
    """Return True if a retried or cleared run without an open cycle must continue. It must, unless another run of its
    DAG has taken over: otherwise nothing would land until the next run.
    """
    from airflow_provider_lakecommit.cycle import cycles_since, successor_of

    newest = earlier.newest
    since, _ = cycles_since(session, earlier.partition, newest.offset)
    return successor_of(since, replace(run, turn=newest.cycle.turn)) is None


def is_paused(context: Context) -> bool:
    """Return True if the task's DAG is paused by now."""
    ti = context["ti"]
    try:
        return bool(ti.get_dag(ti.dag_id).is_paused)
    except Exception as e:
        log.debug("cannot find out whether DAG %s is paused: %s", ti.dag_id, e)
        return False


def began(context: Context) -> datetime | None:
    """Return the time of the first control record that this run may have written; ``None``: unknown. Continuous mode
    writes thousands of cycles in a day, and a retry must find those of its run.
    """
    start = getattr(context.get("dag_run"), "start_date", None)
    return start - CLOCKS if isinstance(start, datetime) else None
