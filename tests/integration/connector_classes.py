# SPDX-License-Identifier: Apache-2.0
"""The control-event classes of iceberg-kafka-connect in a Java process of their own, driven from Python.

Contract: :class:`ConnectorClasses` builds, encodes and decodes events with the connector's classes only. Content goes
in and out by Iceberg's own JSON forms and by plain getters, so that none of the code under test stands on both sides of
a comparison. Needs a Java runtime, no compiler: py4j's gateway is the main class.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from airflow_provider_lakecommit.control.data_file import DataFile, PartitionField, PartitionValue
from airflow_provider_lakecommit.control.events import Event
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CONTENT = ("data", "position-deletes", "equality-deletes")
# py4j looks into collections of the Java library by reflection.
OPENED = "--add-opens=java.base/java.util=ALL-UNNAMED"


@contextmanager
def connector_classes(jars: Path) -> Iterator[ConnectorClasses]:
    """The connector's classes from the directory *jars*, until the block ends."""
    port, token, process = launch_gateway(
        classpath=os.path.join(jars, "*"),
        javaopts=[OPENED, "-Xmx256m"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield ConnectorClasses(gateway)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(timeout=600)


class ConnectorClasses:
    """Events as the connector sees them."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._jvm = gateway.jvm
        self._iceberg = gateway.jvm.org.apache.iceberg
        self._events = gateway.jvm.org.apache.iceberg.connect.events
        self._json = gateway.jvm.com.fasterxml.jackson.databind.ObjectMapper()

    def spec(self, schema: str, spec: str) -> Any:
        """A Java partition spec from the JSON of a schema and of a spec."""
        return self._iceberg.PartitionSpecParser.fromJson(self._iceberg.SchemaParser.fromJson(schema), spec)

    def partition_fields(self, spec: Any) -> list[PartitionField]:
        """The partition type that the connector would write for *spec*."""
        return [
            PartitionField(name=field.name(), field_id=field.fieldId(), type=field.type().toString())
            for field in spec.partitionType().fields()
        ]

    def encode(self, event: Event, spec: Any) -> bytes:
        """Bytes that the connector writes for the content of *event*."""
        made = self._events.Event(event.group_id, self._payload(event, spec))
        made.put(0, self._uuid(event.id))
        made.put(2, micros(event.timestamp))
        return bytes(self._events.AvroUtil.encode(made))

    def read(self, data: bytes, spec: Any) -> dict[str, Any]:
        """What the connector reads in *data*, in the form of :func:`described`."""
        event = self._events.AvroUtil.decode(data)
        payload = event.payload()
        kind = event.type().name()
        fields = {"commit_id": payload.commitId().toString()}
        if kind in {"DATA_WRITTEN", "COMMIT_TO_TABLE"}:
            fields["table"] = self._table(payload.tableReference())
        if kind == "DATA_WRITTEN":
            fields["data_files"] = self._read_files(payload.dataFiles(), spec)
            fields["delete_files"] = self._read_files(payload.deleteFiles(), spec)
        if kind == "DATA_COMPLETE":
            fields["assignments"] = self._assignments(payload.assignments())
        if kind == "COMMIT_TO_TABLE":
            fields["snapshot_id"] = payload.snapshotId()
        if kind in {"COMMIT_TO_TABLE", "COMMIT_COMPLETE"}:
            fields["valid_through"] = self._micros(payload.validThroughTs())
        return {
            "id": event.id().toString(),
            "type": kind,
            "timestamp": self._micros(event.timestamp()),
            "group_id": event.groupId(),
            "payload": fields,
        }

    def _payload(self, event: Event, spec: Any) -> Any:
        payload = event.payload
        commit_id = self._uuid(payload.commit_id)
        match payload:
            case StartCommit():
                return self._events.StartCommit(commit_id)
            case DataWritten(table=table, data_files=data, delete_files=deletes, partition_fields=fields):
                partition = spec.partitionType()
                return self._events.DataWritten(
                    partition,
                    commit_id,
                    self._reference(table),
                    self._files(data, fields, spec),
                    self._files(deletes, fields, spec),
                )
            case DataComplete(assignments=assignments):
                made = None if assignments is None else [self._assignment(each) for each in assignments]
                return self._events.DataComplete(commit_id, made)
            case CommitToTable(table=table, snapshot_id=snapshot_id, valid_through=moment):
                return self._events.CommitToTable(commit_id, self._reference(table), snapshot_id, self._moment(moment))
            case CommitComplete(valid_through=moment):
                return self._events.CommitComplete(commit_id, self._moment(moment))

    def _reference(self, table: TableReference) -> Any:
        levels = [*table.namespace, table.name]
        names = self._iceberg.catalog.TableIdentifier.of(self._strings(levels))
        table_uuid = None if table.table_uuid is None else self._uuid(table.table_uuid)
        return self._events.TableReference.of(table.catalog, names, table_uuid)

    def _strings(self, texts: list[str]) -> Any:
        array = self._jvm.java.lang.reflect.Array.newInstance(
            self._jvm.java.lang.Class.forName("java.lang.String"), len(texts)
        )
        for position, text in enumerate(texts):
            array[position] = text
        return array

    def _table(self, reference: Any) -> dict[str, Any]:
        identifier = reference.identifier()
        uuid = reference.uuid()
        return {
            "catalog": reference.catalog(),
            "namespace": list(identifier.namespace().levels()),
            "name": identifier.name(),
            "table_uuid": None if uuid is None else uuid.toString(),
        }

    def _files(self, files: tuple[DataFile, ...] | None, fields: tuple[PartitionField, ...], spec: Any) -> Any:
        if files is None:
            return None
        nodes = [self._json.readTree(json.dumps(file_json(file, fields))) for file in files]
        return [self._iceberg.ContentFileParser.fromJson(node, spec) for node in nodes]

    def _read_files(self, files: Any, spec: Any) -> list[dict[str, Any]] | None:
        if files is None:
            return None
        return [json.loads(self._iceberg.ContentFileParser.toJson(file, spec)) for file in files]

    def _assignment(self, assignment: TopicPartitionOffset) -> Any:
        moment = self._moment(assignment.timestamp)
        return self._events.TopicPartitionOffset(assignment.topic, assignment.partition, assignment.offset, moment)

    def _assignments(self, assignments: Any) -> list[dict[str, Any]] | None:
        if assignments is None:
            return None
        return [
            {
                "topic": each.topic(),
                "partition": each.partition(),
                "offset": each.offset(),
                "timestamp": self._micros(each.timestamp()),
            }
            for each in assignments
        ]

    def _uuid(self, value: UUID) -> Any:
        return self._jvm.java.util.UUID.fromString(str(value))

    def _moment(self, moment: datetime | None) -> Any:
        return None if moment is None else self._iceberg.util.DateTimeUtil.timestamptzFromMicros(micros(moment))

    def _micros(self, moment: Any) -> int | None:
        return None if moment is None else self._iceberg.util.DateTimeUtil.microsFromTimestamptz(moment)


def described(event: Event) -> dict[str, Any]:
    """Content of *event* as the connector's getters and Iceberg's JSON give it."""
    payload = event.payload
    fields: dict[str, Any] = {"commit_id": str(payload.commit_id)}
    if isinstance(payload, DataWritten | CommitToTable):
        table = payload.table
        fields["table"] = {
            "catalog": table.catalog,
            "namespace": list(table.namespace),
            "name": table.name,
            "table_uuid": None if table.table_uuid is None else str(table.table_uuid),
        }
    if isinstance(payload, DataWritten):
        for name, files in (("data_files", payload.data_files), ("delete_files", payload.delete_files)):
            fields[name] = None if files is None else [file_json(file, payload.partition_fields) for file in files]
    if isinstance(payload, DataComplete):
        fields["assignments"] = _assignments_of(payload)
    if isinstance(payload, CommitToTable):
        fields["snapshot_id"] = payload.snapshot_id
    if isinstance(payload, CommitToTable | CommitComplete):
        fields["valid_through"] = None if payload.valid_through is None else micros(payload.valid_through)
    return {
        "id": str(event.id),
        "type": event.type.name,
        "timestamp": micros(event.timestamp),
        "group_id": event.group_id,
        "payload": fields,
    }


def _assignments_of(payload: DataComplete) -> list[dict[str, Any]] | None:
    if payload.assignments is None:
        return None
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "timestamp": None if each.timestamp is None else micros(each.timestamp),
        }
        for each in payload.assignments
    ]


def file_json(file: DataFile, fields: tuple[PartitionField, ...]) -> dict[str, Any]:
    """*file* in the JSON form that Iceberg's specification gives to content files."""
    written: dict[str, Any] = {
        "spec-id": file.spec_id,
        "content": CONTENT[file.content],
        "file-path": file.file_path,
        "file-format": file.file_format.lower(),
        "partition": [single_value(field.type, value) for field, value in zip(fields, file.partition, strict=True)],
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
        "column-sizes": _map(file.column_sizes),
        "value-counts": _map(file.value_counts),
        "null-value-counts": _map(file.null_value_counts),
        "nan-value-counts": _map(file.nan_value_counts),
        "lower-bounds": _map(file.lower_bounds),
        "upper-bounds": _map(file.upper_bounds),
        "key-metadata": None if file.key_metadata is None else file.key_metadata.hex().upper(),
        "split-offsets": None if file.split_offsets is None else list(file.split_offsets),
        "equality-ids": None if file.equality_ids is None else list(file.equality_ids),
        "sort-order-id": file.sort_order_id,
        "first-row-id": file.first_row_id,
        "referenced-data-file": file.referenced_data_file,
        "content-offset": file.content_offset,
        "content-size-in-bytes": file.content_size_in_bytes,
    }
    return {key: value for key, value in written.items() if value is not None}


def _map(entries: Any) -> dict[str, list[Any]] | None:
    if entries is None:
        return None
    values = [value.hex().upper() if isinstance(value, bytes) else value for value in entries.values()]
    return {"keys": list(entries), "values": values}


def single_value(kind: str, value: PartitionValue) -> Any:
    """*value* of the Iceberg type *kind* in the JSON form of the specification."""
    if value is None:
        return None
    match value:
        case bytes():
            return value.hex().upper()
        case UUID() | Decimal():
            return str(value)
    if kind == "date":
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if kind == "time":
        return (EPOCH + timedelta(microseconds=value)).strftime("%H:%M:%S.%f")
    if kind.startswith("timestamp"):
        text = (EPOCH + timedelta(microseconds=value)).strftime("%Y-%m-%dT%H:%M:%S.%f")
        return text + "+00:00" if kind == "timestamptz" else text
    return value


def micros(moment: datetime) -> int:
    """Microseconds since the epoch."""
    return (moment - EPOCH) // timedelta(microseconds=1)
