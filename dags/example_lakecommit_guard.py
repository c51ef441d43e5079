# SPDX-License-Identifier: Apache-2.0
"""Guards on commits: work that waits for a fresh table, work that keeps off a connector that stalls, a page for people,
and a landing that starts when enough waits for it.

The guards read the control topic and nothing else, so they need neither a catalog nor Spark nor Java, and a connector
needs no change. They need `kafka_default`; the guard of a connector by its name also `kafka_connect_default`, an `http`
connection to Kafka Connect, from which it learns the control topic; watchers and waits also a triggerer.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.notifications.commits import CommitsRecoveredNotifier, CommitsStalledNotifier
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.stall.policy import StallPolicy
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup
from airflow_provider_lakecommit.triggers.backlog import BacklogTrigger
from airflow_provider_lakecommit.triggers.commit_state import CommitStateTrigger

START = datetime(2026, 1, 1)
orders = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")
clicks = Landing(name="clicks", topics="clicks", table="web.clicks")


def page(context: Any) -> None:
    """In place of a notifier for mail or chat, whose templates have the reason too."""
    print(f"{context['ti'].task_id}: {context['reason']}")


# [START howto_sensor_wait]
with DAG("example_lakecommit_guard_report", schedule=timedelta(hours=1), start_date=START, catchup=False):
    fresh = StalledCommitSensor(
        task_id="fresh",
        landing=orders,
        on_stall="wait",
        policy=StallPolicy(max_valid_through_age=timedelta(minutes=30)),
        timeout=timedelta(hours=2),
    )

    @task
    def report() -> None:
        """Reads a table that is valid through the last half hour."""

    fresh >> report()
# [END howto_sensor_wait]

# [START howto_sensor_connector]
with DAG("example_lakecommit_guard_load", schedule=timedelta(minutes=10), start_date=START, catchup=False):
    guard = StalledCommitSensor(
        task_id="guard",
        connector="payments-sink",
        kafka_connect_conn_id="kafka_connect_default",
        on_stall="skip",
        policy=StallPolicy(fail_after=timedelta(hours=1)),
        on_skipped_callback=CommitsStalledNotifier(page),
        on_failure_callback=CommitsStalledNotifier(page),
        on_success_callback=CommitsRecoveredNotifier(page),
    )

    @task
    def load() -> None:
        """Adds to the topic that the connector lands."""

    guard >> load()
# [END howto_sensor_connector]

# [START howto_trigger_commit_state]
stalls = Asset(
    "payments-sink-commits",
    watchers=[
        AssetWatcher(
            name="payments-sink",
            trigger=CommitStateTrigger(
                control_topic="control-iceberg", control_group_id="connect-payments-sink", interval=300.0
            ),
        )
    ],
)

with DAG("example_lakecommit_guard_page", schedule=[stalls], start_date=START, catchup=False):

    @task
    def tell(*, triggering_asset_events: Any = None) -> None:
        """One event per transition."""
        for event in triggering_asset_events[stalls]:
            told = event.extra["payload"]
            print(f"{told['group']} is {told['state']} (was {told['before']}): {told['reason']}")

    tell()
# [END howto_trigger_commit_state]

# [START howto_trigger_backlog]
waiting = Asset(
    "clicks-backlog",
    watchers=[AssetWatcher(name="clicks", trigger=BacklogTrigger(landing=clicks, rows=1_000_000, age=600.0))],
)

with DAG("example_lakecommit_guard_backlog", schedule=[waiting], start_date=START, catchup=False, max_active_runs=2):
    KafkaToIcebergTaskGroup("land", landing=clicks)
# [END howto_trigger_backlog]
