# SPDX-License-Identifier: Apache-2.0
"""What a task that follows takes from its operator and from Airflow.

Contract: :func:`following` is done when the DAG is parsed. A lifetime has to end well before ``execution_timeout``, so
that what is under way can be finished.

Failure story: where Airflow does not say whether a DAG is paused, it is taken for running.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.declared.times import span_of
from airflow_provider_lakecommit.exceptions import SpecError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.follow.options import FollowOptions

__all__ = ["began", "following", "is_paused"]

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
    from airflow_provider_lakecommit.follow.options import FollowOptions

    span = span_of(lifetime, "follow_for")
    options = FollowOptions(
        lifetime=span,
        window_age=span_of(window_age, "window_age"),
        keep_snapshots=None if keep_snapshots is None else span_of(keep_snapshots, "keep_snapshots"),
    )
    if timeout is not None and span + SPARE > timeout:
        raise SpecError(
            f"follow_for {span} has to end a minute before execution_timeout {timeout}, so that what is under way "
            "is finished: make it shorter, or the timeout longer"
        )
    return options


def is_paused(context: Context) -> bool:
    """Is the task's DAG paused by now?"""
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
