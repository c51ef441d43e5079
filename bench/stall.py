# SPDX-License-Identifier: Apache-2.0
"""How many control events a second one core judges, reading their heads only, and reading them whole.

Contract: `python -m bench.stall` prints events a second: the best of several rounds, which is the one that other work
on the machine held up least. The events are those of a connector with 20 tasks and 60 cycles, a fifth of them in an
outage; both the reading of the record and the fold of the state are in the time, the verdict once a cycle.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from airflow_provider_lakecommit.control.data_file import DataFile
from airflow_provider_lakecommit.control.events import Event, encode
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Payload,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from airflow_provider_lakecommit.stall.group_state import EventKind, StallRules, State
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.observed_events import observed_record
from airflow_provider_lakecommit.stall.verdict import evaluate

GROUP = "connect-orders"
TASKS, CYCLES, ROUNDS, PASSES = 20, 60, 7, 10
TABLE = TableReference(catalog="lake", namespace=("shop",), name="orders", table_uuid=uuid4())
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def main() -> None:
    """Measure and print."""
    values = [
        encode(Event(id=uuid4(), timestamp=BEGIN + timedelta(seconds=n), group_id=GROUP, payload=payload))
        for n, payload in enumerate(_story())
    ]
    for what, bodies, passes in (("heads", False, PASSES), ("whole events", True, 1)):
        best = max(_rate(values * passes, bodies=bodies) for _ in range(ROUNDS))
        print(f"{what}: {best:,.0f} events/s", flush=True)


def _story() -> Iterator[Payload]:
    for cycle in range(CYCLES):
        commit_id = uuid4()
        yield StartCommit(commit_id=commit_id)
        for task in range(TASKS):
            path = f"s3://lake/shop/orders/data/{commit_id}-{task}.parquet"
            file = DataFile(
                file_path=path, file_format="PARQUET", partition=(), record_count=1000, file_size_in_bytes=100_000
            )
            yield DataWritten(commit_id=commit_id, table=TABLE, data_files=(file,), delete_files=None)
            place = TopicPartitionOffset(topic="orders", partition=task, offset=1000 * cycle, timestamp=BEGIN)
            yield DataComplete(commit_id=commit_id, assignments=(place,))
        if cycle % 5:
            yield CommitToTable(commit_id=commit_id, table=TABLE, snapshot_id=cycle, valid_through=BEGIN)
            yield CommitComplete(commit_id=commit_id, valid_through=BEGIN)


def _rate(values: list[bytes], *, bodies: bool) -> float:
    state, rules = State(), StallRules()
    began = time.perf_counter()
    for value in values:
        found = observed_record(value, key=b"key", headers=(), group=GROUP, bodies=bodies)
        if found is not None:
            state = observe(state, found[1], rules)
            if found[1].kind is EventKind.START:
                evaluate(state, found[1].at, rules)
    return len(values) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
