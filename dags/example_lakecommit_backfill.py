# SPDX-License-Identifier: Apache-2.0
"""Ranges of a topic that are landed beside the live stream.

Airflow's own Backfill of the first DAG lands the days that it goes over, each in a backfill of its own; a day that is
in the table already is skipped. That of the second DAG replays the days: their rows in the table are read again and
replaced. The third DAG pauses the landing, publishes what it has read, and resumes it.
"""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from airflow_provider_lakecommit.landing import Columns, Landing
from airflow_provider_lakecommit.operators.backfill import BackfillOperator
from airflow_provider_lakecommit.operators.pause import PauseLandingOperator
from airflow_provider_lakecommit.operators.replay import ReplayOperator

START = datetime(2026, 1, 1)
TAGS = ["example", "lakecommit"]
orders = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")

# [START howto_operator_backfill]
with DAG(
    "example_lakecommit_backfill",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=START,
    catchup=False,
    max_active_runs=2,
    doc_md=__doc__,
    tags=TAGS,
):
    # The records of the run's day, by their timestamps; small windows leave room for the live stream.
    BackfillOperator(task_id="fill", landing=orders, max_records=500_000)
# [END howto_operator_backfill]

# [START howto_operator_replay]
with DAG(
    "example_lakecommit_replay",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=START,
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    doc_md=__doc__,
    tags=TAGS,
):
    # Its Backfill goes over the days that were landed by a wrong spec; paused, it does nothing by itself.
    prices = Landing(name="prices", topics="prices", table="shop.prices", columns=Columns(metadata=True))
    ReplayOperator(task_id="replay", landing=prices, reason="the spec was wrong", max_records=500_000)
# [END howto_operator_replay]

# [START howto_operator_drain]
with DAG(
    "example_lakecommit_maintain",
    schedule=None,
    start_date=START,
    doc_md=__doc__,
    tags=TAGS,
    params={"reason": Param("", type="string", description="Kept in the table's history.")},
):
    drain = PauseLandingOperator(task_id="drain", landing=orders, action="drain", reason="{{ params.reason }}")
    resume = PauseLandingOperator(task_id="resume", landing=orders, action="resume", reason="{{ params.reason }}")
    # Work that needs a landing that writes nothing goes between the two.
    drain >> resume
# [END howto_operator_drain]
