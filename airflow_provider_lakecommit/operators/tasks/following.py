# SPDX-License-Identifier: Apache-2.0
"""What a task that follows takes from its operator and from Airflow.

Contract: :func:`following` is done when the DAG is parsed. A lifetime has to end well before ``execution_timeout``, so
that what is under way can be finished.

Failure story: where Airflow does not say whether a DAG is paused, it is taken for running.
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

__all__ = ["began", "following", "goes_on", "is_paused"]

CLOCKS = timedelta(hours=1)
"""By which the clocks of Airflow and of who wrote a control record may differ."""
SPARE = timedelta(minutes=1)
"""Between the end of a lifetime and the timeout of its task, at least."""

log = logging.getLogger(__name__)


def following(
    lifetime: timedelta | str | float | None,
    window_age: timedelta | str | float,
    keep_snapshots: timedelta | str | float | None,
    timeout: timedelta | None,
) -> FollowOptions | None:
    """How a task follows; ``None``: it does not.

    :raises SpecError: a time is none, or the task's timeout would end it
    """
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
            f"follow_for {span} has to end a minute before execution_timeout {timeout}, so that what is under way "
            "is finished: make it shorter, or the timeout longer",
        )
    return options


def goes_on(session: LandingSession, run: RunIdentity, earlier: EarlierCycles) -> bool:
    """Return True if a run that left no cycle open must continue when it is retried or cleared. It is, unless another
    of its DAG has taken over since: else nobody would follow until the next run.

    :raises ControlTopicError: the control topic cannot be read
    """
    from airflow_provider_lakecommit.cycle import LogPlace, cycles_since, successor_of

    newest = earlier.newest
    since, _ = cycles_since(session, LogPlace(partition=earlier.partition, offset=newest.offset))
    return successor_of(since, replace(run, turn=newest.cycle.turn)) is None


def is_paused(context: Context) -> bool:
    """Return True if the task's DAG is paused by now."""
    ti = context["ti"]
    try:
        return bool(ti.get_dag(ti.dag_id).is_paused)
    except Exception as e:
        log.debug("whether DAG %s is paused is not known: %s", ti.dag_id, e)
        return False


def began(context: Context) -> datetime | None:
    """Since when the control log may tell of this run; ``None``: that is not known. A follow leaves thousands of
    cycles in a day, and a retry has to find those of its run.
    """
    start = getattr(context.get("dag_run"), "start_date", None)
    return start - CLOCKS if isinstance(start, datetime) else None
