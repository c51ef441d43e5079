# SPDX-License-Identifier: Apache-2.0
"""An Iceberg sink of Kafka Connect in as many words as a rescue reads: what its tasks announce, what its coordinator
commits. The files and the commits are real, the events in the connector's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.control.data_file import DataFile as Announced
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
from airflow_provider_lakecommit.iceberg.data_files import partition_fields, to_wire

NAME = "shop.sunk"
SCHEMA = Schema(NestedField(1, "id", LongType()))


@dataclass
class Sink:
    """One connector and its table."""

    catalog: Catalog
    produce: Callable[..., list[tuple[int, int]]]
    topic: str
    connector: str
    source: str = "source"
    name: str = NAME
    cycle: UUID = field(default_factory=uuid4)
    position: int = 0
    source_end: int = 0

    @property
    def group(self) -> str:
        return f"connect-{self.connector}"

    @property
    def table(self) -> Table:
        return self.catalog.load_table(self.name)

    def create(self) -> None:
        self.catalog.create_table(self.name, SCHEMA)

    def log(self, *payloads: Payload, sender: str = "worker") -> int:
        """One transaction; the offset of its first event."""
        now = datetime.now(UTC)
        events = [Event(id=uuid4(), timestamp=now, group_id=self.group, payload=p) for p in payloads]
        values = [(sender, encode(event)) for event in events]
        places = self.produce(self.topic, values, 0, transactional=True)
        self.position = places[-1][1] + 1
        return places[0][1]

    def begin(self) -> None:
        """A cycle opens."""
        self.cycle = uuid4()
        self.log(StartCommit(commit_id=self.cycle), sender="coordinator")

    def write(self, ids: Sequence[int]) -> DataFile:
        """A file on the storage that nobody knows of yet."""
        table = self.table
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        (file,) = _dataframe_to_data_files(table.metadata, rows, table.io)
        return file

    def announce(self, *batches: Sequence[int], **changes: Any) -> list[DataFile]:
        """Files with these ids, in one answer; with the source offsets behind them."""
        files, table = [self.write(ids) for ids in batches], self.table
        self.announce_files(to_wire(files, spec=table.spec(), schema=table.schema()), sum(map(len, batches)), **changes)
        return files

    def announce_files(self, files: Sequence[Announced], records: int = 0, **changes: Any) -> None:
        """What an answer says of some files, whatever they are."""
        table = self.table
        reference = {
            "catalog": "lake",
            "namespace": ("shop",),
            "name": self.name.rpartition(".")[2],
            "table_uuid": table.metadata.table_uuid,
            **changes,
        }
        self.source_end += records
        place = TopicPartitionOffset(
            topic=self.source, partition=0, offset=self.source_end, timestamp=datetime.now(UTC)
        )
        self.log(
            DataWritten(
                commit_id=self.cycle,
                table=TableReference(**reference),
                partition_fields=partition_fields(table.spec(), table.schema()),
                data_files=tuple(files),
            ),
            DataComplete(commit_id=self.cycle, assignments=(place,)),
        )

    def commit(self, files: Sequence[DataFile], *, announced: bool = True) -> int:
        """What the coordinator does: the table first, with its position; then it reports it."""
        table = self.table
        summary = {f"kafka.connect.offsets.{self.topic}.{self.group}": json.dumps({"0": self.position})}
        with table.transaction() as transaction:
            append = transaction.update_snapshot(snapshot_properties=summary).fast_append()
            for file in files:
                append.append_data_file(file)
            append.commit()
        head = self.table.current_snapshot()
        assert head is not None
        if announced:
            reference = TableReference(
                catalog="lake", namespace=("shop",), name="sunk", table_uuid=table.metadata.table_uuid
            )
            self.log(
                CommitToTable(commit_id=self.cycle, table=reference, snapshot_id=head.snapshot_id),
                CommitComplete(commit_id=self.cycle),
                sender="coordinator",
            )
        return head.snapshot_id

    def cycle_of(self, *batches: Sequence[int]) -> None:
        """A whole one."""
        self.begin()
        self.commit(self.announce(*batches))

    def compact(self) -> None:
        """All rows in one new file, as a maintenance job does it."""
        self.table.overwrite(self.table.scan().to_arrow())

    def expire(self) -> None:
        """Only the head is left."""
        table = self.table
        head = table.metadata.current_snapshot_id
        old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != head]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def ids(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["id"].to_pylist())

    def floor(self) -> int | None:
        """The control position in the head."""
        head = self.table.current_snapshot()
        if head is None or head.summary is None:
            return None
        text = head.summary.additional_properties.get(f"kafka.connect.offsets.{self.topic}.{self.group}")
        return None if text is None else int(json.loads(text)["0"])
