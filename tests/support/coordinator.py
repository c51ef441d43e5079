# SPDX-License-Identifier: Apache-2.0
"""A connector's coordinator, as far as a control topic reports it; and DAGs whose work a sensor guards."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka import Producer

from airflow_provider_lakecommit.control.data_file import DataFile
from airflow_provider_lakecommit.control.events import Event, encode
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    DataComplete,
    DataWritten,
    Payload,
    StartCommit,
    TopicPartitionOffset,
)
from airflow_provider_lakecommit.control.records import table_reference
from tests.support.airflow_dags import UNSCHEDULED

__all__ = ["Coordinator", "write_guard"]

GUARD = """
import datetime
from pathlib import Path

from airflow.sdk import DAG, task

from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.stall.policy import POLICY_FIELDS, StallPolicy

options = {options!r}
policy = {{name: options.pop(name) for name in POLICY_FIELDS if name in options}}

with DAG({dag!r}, **{dag_options!r}) as dag:

    @task
    def work():
        pass

    def waits(context):
        Path({waits!r}).touch()

    policy = StallPolicy(on_wait_callback=waits, **policy)
    StalledCommitSensor(task_id="guard", policy=policy, **options) >> work()
"""


class Coordinator:
    """Begins and completes cycles of one group."""

    def __init__(self, bootstrap: str, topic: str, group: str = "connect-orders") -> None:
        self.topic, self.group = topic, group
        self._producer = Producer({"bootstrap.servers": bootstrap, "max.in.flight": 1})

    def start(self, ago: float = 0.0) -> UUID:
        """A cycle begins, so many seconds ago."""
        commit = uuid4()
        self._send(StartCommit(commit_id=commit), ago)
        return commit

    def complete(self, commit: UUID, ago: float = 0.0, *, age: float | None = None) -> None:
        """A cycle gets its answer and completes; ``age`` in seconds is that of its valid-through time."""
        done = TopicPartitionOffset(topic="orders", partition=0, offset=1, timestamp=None)
        self._send(DataComplete(commit_id=commit, assignments=(done,)), ago)
        through = None if age is None else datetime.fromtimestamp(time.time() - age, UTC)
        self._send(CommitComplete(commit_id=commit, valid_through=through), ago)

    def announce(self, commit: UUID, table: str, files: int) -> None:
        """A task reports files with a record each."""
        made = tuple(
            DataFile(file_path=f"/{n}", file_format="PARQUET", partition=(), record_count=1, file_size_in_bytes=1)
            for n in range(files)
        )
        reference = table_reference("lake", table, UUID(int=1))
        self._send(DataWritten(commit_id=commit, table=reference, data_files=made, delete_files=None), 0.0)

    def healthy(self, cycles: int = 4, every: float = 60.0, *, age: float | None = None) -> None:
        """Cycles that complete, the last one now."""
        for n in reversed(range(cycles)):
            self.complete(self.start(n * every + 1), n * every, age=age)

    def stall(self, cycles: int = 3, every: float = 60.0) -> UUID:
        """One cycle that completed, and cycles after it that did not, the last one now; tells that."""
        self.complete(self.start(cycles * every + 1), cycles * every)
        return [self.start(n * every) for n in reversed(range(cycles))][-1]

    def _send(self, payload: Payload, ago: float) -> None:
        at = time.time() - ago
        event = Event(id=uuid4(), timestamp=datetime.fromtimestamp(at, UTC), group_id=self.group, payload=payload)
        self._producer.produce(self.topic, encode(event), f"{self.group}-coordinator", timestamp=int(at * 1000))
        assert self._producer.flush(30) == 0


def write_guard(folder: Path, dag: str, **options: Any) -> Path:
    """A DAG file: a sensor of these options before some work. Tells the file that is there once it waits."""
    folder.mkdir(parents=True, exist_ok=True)
    made, waits = folder / f"{dag}.new", folder / f"{dag}.waits"
    made.write_text(GUARD.format(dag=dag, dag_options=UNSCHEDULED, options=options, waits=str(waits)))
    made.replace(folder / f"{dag}.py")
    return waits
