# SPDX-License-Identifier: Apache-2.0
"""Looks after an Iceberg sink of Kafka Connect: paused while its commits stall, restarted when its coordinator is dead.

The connector itself is not changed. Paused, its tasks write no more small files, while its coordinator goes on trying
and commits everything at once when the catalog is back; then it is resumed. It is resumed as well when its coordinator
falls silent meanwhile. Dead, it is restarted again and again until it stays alive, because nothing else ever does so.
Needs `kafka_default` and an `http` connection to Kafka Connect.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

# [START howto_guard_a_connector]
from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_provider_lakecommit.operators.kafka_connect import KafkaConnectOperator
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.stall.policy import StallPolicy
from airflow_provider_lakecommit.triggers.commit_state import CommitStateTrigger

CONNECTOR, INTERVAL = "payments-sink", timedelta(minutes=5)

commits = Asset(
    "payments-sink-commits-guarded",
    watchers=[
        AssetWatcher(
            name="payments-sink-guarded",
            trigger=CommitStateTrigger(
                control_topic="control-iceberg",
                control_group_id=f"connect-{CONNECTOR}",
                alarms=["dead", "stalled"],
                interval=INTERVAL.total_seconds(),
            ),
        )
    ],
)

with DAG(
    "example_lakecommit_guard_connector",
    schedule=[commits],
    start_date=datetime(2026, 1, 1),
    catchup=False,
    doc_md=__doc__,
    tags=["example", "lakecommit"],
    # Told is a transition, once: what Connect or the brokers do not answer to now has to be done later.
    default_args={"retries": 20, "retry_delay": timedelta(minutes=1)},
):

    @task.branch
    def what_to_do(*, triggering_asset_events: Any = None) -> str | None:
        """By what was told last."""
        events = triggering_asset_events[commits]
        if not events:
            print("Nothing was told: this run was started by hand")
            return None
        told = events[-1].extra["payload"]
        print(f"{told['group']} is {told['state']}: {told['reason']}")
        return {"stalled": "pause", "dead": "restart"}.get(told["state"])

    pause = KafkaConnectOperator(task_id="pause", connector=CONNECTOR, action="pause")
    wait = StalledCommitSensor(
        task_id="wait",
        connector=CONNECTOR,
        on_stall="wait",
        # Not on "dead": tasks that are started anew while they are paused, as when a worker goes, sleep until they are
        # resumed, and no commit would come however long it waits.
        policy=StallPolicy(hold_on=["stalled"]),
        timeout=timedelta(hours=6).total_seconds(),
    )
    resume = KafkaConnectOperator(
        task_id="resume",
        connector=CONNECTOR,
        action="resume",
        arguments={"jitter": "2m"},
        # Also when the wait has timed out: a topic's retention does not wait. Not when nothing was paused.
        trigger_rule="none_skipped",
    )
    restart = KafkaConnectOperator(
        task_id="restart",
        connector=CONNECTOR,
        action="restart",
        # A coordinator that finds the catalog still away dies with its first commit.
        arguments={"stays": (INTERVAL + timedelta(minutes=1)).total_seconds()},
        retries=100,
        retry_delay=timedelta(minutes=2),
    )
    what_to_do() >> [pause, restart]
    pause >> wait >> resume
# [END howto_guard_a_connector]
