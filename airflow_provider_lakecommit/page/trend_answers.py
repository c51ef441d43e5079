# SPDX-License-Identifier: Apache-2.0
"""The answer of the status API about the trend of a landing.

Contract: that of :mod:`~airflow_provider_lakecommit.page.answers`.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from airflow_provider_lakecommit.page.cycle_answers import moment
from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.page.trend import Steps


class StepsAnswer(BaseModel):
    """Buckets of ``step_seconds``, the first of which starts at ``begin``. Read and committed offsets are summed in
    each; lags, in records and in seconds, and seconds of commits are the maximum of each. The lag of the table is that
    of all that it lacks, read or not.
    """

    step_seconds: int
    begin: datetime
    read: list[float]
    committed: list[float]
    read_lag: list[float | None]
    commit_lag: list[float | None]
    read_lag_seconds: list[float | None]
    table_lag_seconds: list[float | None]
    commit_seconds: list[float | None]


class TrendAnswer(BaseModel):
    """The activity of a landing, the finest buckets first; empty without a trend."""

    steps: list[StepsAnswer]


def trend_of(row: LandingRow, now: float) -> TrendAnswer:
    rings = row.trend.shown(now) if row.trend is not None else ()
    return TrendAnswer(steps=[_steps(ring) for ring in rings])


def _steps(ring: Steps) -> StepsAnswer:
    return StepsAnswer.model_validate({"step_seconds": ring.step, "begin": moment(ring.begin), **ring.values})
