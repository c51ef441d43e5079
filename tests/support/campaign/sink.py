# SPDX-License-Identifier: Apache-2.0
"""A Kafka Connect sink in whose table the landing goes on, and to which it is handed back.

Contract: this is what a landing can see of a sink whose Kafka Connect is missing: its snapshots, its events, and the
committed offsets of its consumer group. It lands every record, and no row says which record it is of.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

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
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.iceberg.data_files import partition_fields, to_wire
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.iceberg.ledger.other_rows import was_handed
from airflow_provider_lakecommit.iceberg.schemas import METADATA_TYPES
from tests.fakes.broker import MemoryBroker
from tests.support.campaign.reader import ROWS

__all__ = ["ADOPT", "CONTROL", "GROUP", "RESCUE", "is_sinks", "land_by_sink", "make_table"]

NAME, GROUP, CONTROL = "sink", "connect-sink", "control-iceberg"
ADOPT = ("connect", "adopt", "SPEC", "--connector", NAME, "--connector-is-gone", "--yes")
RESCUE = ("connect", "rescue", "--connector", NAME, "--connector-is-gone", "--catalog", "SPEC", "--bootstrap", "x:1")
WORKER, COORDINATOR = "worker", "coordinator"


def is_sinks(table: Table) -> bool:
    """Return True if a sink has its turn."""
    return any(was_handed(s) for s in read_ledger(table.metadata, "main").sections if s.lane == LIVE)


def make_table(catalog: Catalog) -> None:
    """The table of the sink, before any landing."""
    columns = [pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())]
    kinds = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    fields = [pa.field(n, kinds.get(str(k), pa.timestamp("us", "UTC"))) for n, k in METADATA_TYPES.items()]
    catalog.create_namespace("shop")
    catalog.create_table(ROWS, pa.schema([*columns, *fields]))


def land_by_sink(
    catalog: Catalog, logs: MemoryBroker, topic: str, *, partitions: Collection[int] = range(99), commits: bool = True
) -> int:
    """Land what the group has not read of a topic in one cycle; returns how many rows that are. A log that lost its end
    before the group's offset is not read.

    :param partitions: those that it reads in this cycle
    :param commits: otherwise it announces the files, and is stopped before it commits them
    """
    table, group = catalog.load_table(ROWS), logs.groups.setdefault(GROUP, {})
    values: list[dict[str, object]] = []
    read: list[TopicPartitionOffset] = []
    for n, log in enumerate(logs.topics[topic].partitions):
        start = max(group.get((topic, n), log.start), log.start)
        if start >= log.end or n not in partitions:
            continue
        records = log.between(start, log.end)
        values += [json.loads(r.value() or b"") for r in records]
        newest = datetime.fromtimestamp(records[-1].timestamp()[1] / 1000, UTC) if records else None
        read.append(TopicPartitionOffset(topic=topic, partition=n, offset=log.end, timestamp=newest))
    if read:
        _cycle(table, logs, values, read, commits=commits)
        group.update({(topic, r.partition): r.offset for r in read if r.offset is not None})
    return len(values)


def _cycle(
    table: Table,
    logs: MemoryBroker,
    values: Sequence[dict[str, object]],
    read: Sequence[TopicPartitionOffset],
    *,
    commits: bool,
) -> None:
    """One cycle as its events tell it."""
    cycle = uuid4()
    namespace, _, name = ROWS.rpartition(".")
    reference = TableReference(catalog="lake", namespace=(namespace,), name=name, table_uuid=table.metadata.table_uuid)
    files = _written(table, values)
    wire = to_wire(files, spec=table.spec(), schema=table.schema())
    fields = partition_fields(table.spec(), table.schema())
    _send(logs, COORDINATOR, StartCommit(commit_id=cycle))
    end = _send(
        logs,
        WORKER,
        DataWritten(commit_id=cycle, table=reference, partition_fields=fields, data_files=tuple(wire)),
        DataComplete(commit_id=cycle, assignments=tuple(read)),
    )
    if not commits:
        return
    snapshot_id = _committed(table, files, cycle, end) if files else None
    done = (CommitToTable(commit_id=cycle, table=reference, snapshot_id=snapshot_id),) if files else ()
    _send(logs, COORDINATOR, *done, CommitComplete(commit_id=cycle))


def _written(table: Table, values: Sequence[dict[str, object]]) -> list[DataFile]:
    if not values:
        return []
    schema = table.schema().as_arrow()
    columns = {f.name: pa.array([v.get(f.name) for v in values], f.type) for f in schema}
    return list(_dataframe_to_data_files(table.metadata, pa.table(columns, schema=schema), table.io))


def _committed(table: Table, files: Sequence[DataFile], cycle: UUID, end: int) -> int:
    """Commit as the coordinator does; returns the snapshot."""
    summary = {
        f"kafka.connect.offsets.{CONTROL}.{GROUP}": json.dumps({"0": end}),
        "kafka.connect.commit-id": str(cycle),
    }
    with table.transaction() as transaction:
        append = transaction.update_snapshot(snapshot_properties=summary).fast_append()
        for file in files:
            append.append_data_file(file)
        append.commit()
    head = table.current_snapshot()
    assert head is not None
    return head.snapshot_id


def _send(logs: MemoryBroker, sender: str, *payloads: Payload) -> int:
    """Events of one transaction; returns the offset behind them."""
    now = logs.clock()
    events = [Event(id=uuid4(), timestamp=now, group_id=GROUP, payload=p) for p in payloads]
    writer = logs.control(CONTROL).writer(sender, 0)
    return writer.send([(sender.encode(), encode(event), ()) for event in events])[-1] + 1
