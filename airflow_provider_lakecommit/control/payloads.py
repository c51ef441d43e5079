# SPDX-License-Identifier: Apache-2.0
"""The five payloads of control events, as values and as bodies by field id.

Classes are named as the connector's; ``TYPE`` is the number on the wire. ``offset`` of a :class:`TopicPartitionOffset`
is the next offset to read, absent if a partition was assigned but not read. An absent ``valid_through`` promises
nothing. A :class:`DataWritten` has the partition fields of its files, because each record must be readable without its
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from typing import Any, ClassVar
from uuid import UUID

from airflow_provider_lakecommit.control.data_file import DataFile, FileCodec, PartitionField
from airflow_provider_lakecommit.control.errors import ControlEventError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class PayloadType(IntEnum):
    START_COMMIT = 0
    DATA_WRITTEN = 1
    DATA_COMPLETE = 2
    COMMIT_TO_TABLE = 3
    COMMIT_COMPLETE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReference:
    """A table: catalog name, identifier, and its uuid (which connectors up to 1.10 do not write)."""

    catalog: str
    namespace: tuple[str, ...]
    name: str
    table_uuid: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPartitionOffset:
    """The progress of a writer on one source partition in this cycle."""

    topic: str
    partition: int
    offset: int | None = None
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommit:
    """A commit cycle opens."""

    TYPE: ClassVar[PayloadType] = PayloadType.START_COMMIT
    commit_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWritten:
    """Files that were written for one table and are to be committed."""

    TYPE: ClassVar[PayloadType] = PayloadType.DATA_WRITTEN
    commit_id: UUID
    table: TableReference
    partition_fields: tuple[PartitionField, ...] = ()
    data_files: tuple[DataFile, ...] | None = None
    delete_files: tuple[DataFile, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataComplete:
    """A writer has announced all of its files for these partitions."""

    TYPE: ClassVar[PayloadType] = PayloadType.DATA_COMPLETE
    commit_id: UUID
    assignments: tuple[TopicPartitionOffset, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitToTable:
    """A table got its snapshot."""

    TYPE: ClassVar[PayloadType] = PayloadType.COMMIT_TO_TABLE
    commit_id: UUID
    table: TableReference
    snapshot_id: int | None = None
    valid_through: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitComplete:
    """A commit cycle ends."""

    TYPE: ClassVar[PayloadType] = PayloadType.COMMIT_COMPLETE
    commit_id: UUID
    valid_through: datetime | None = None


Payload = StartCommit | DataWritten | DataComplete | CommitToTable | CommitComplete


def to_micros(moment: datetime) -> int:
    """Return microseconds since the epoch. A naive time is refused: its zone would be a guess."""
    if moment.tzinfo is None:
        raise ControlEventError(
            "LC2360", f"the times of a control event need a time zone: {moment.isoformat()} has none"
        )
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def payload_to_body(payload: Payload) -> dict[str, Any]:
    match payload:
        case StartCommit():
            return {"f10200": payload.commit_id.bytes}
        case DataWritten():
            return {
                "f10300": payload.commit_id.bytes,
                "f10301": _table_to_body(payload.table),
                "f10302": _files_to_body(payload.partition_fields, payload.data_files),
                "f10304": _files_to_body(payload.partition_fields, payload.delete_files),
            }
        case DataComplete():
            assignments = payload.assignments
            body = None if assignments is None else ("array", [_assignment_to_body(each) for each in assignments])
            return {"f10100": payload.commit_id.bytes, "f10101": body}
        case CommitToTable():
            return {
                "f10400": payload.commit_id.bytes,
                "f10401": _table_to_body(payload.table),
                "f10402": _long(payload.snapshot_id),
                "f10403": _instant(payload.valid_through),
            }
        case CommitComplete():
            return {"f10000": payload.commit_id.bytes, "f10001": _instant(payload.valid_through)}


def payload_from_body(
    kind: PayloadType, body: Mapping[str, Any], partition_fields: tuple[PartitionField, ...]
) -> Payload:
    """Return the payload of a body; a missing required field raises :class:`KeyError`."""
    match kind:
        case PayloadType.START_COMMIT:
            return StartCommit(commit_id=UUID(bytes=body["f10200"]))
        case PayloadType.DATA_WRITTEN:
            return DataWritten(
                commit_id=UUID(bytes=body["f10300"]),
                table=_table_from_body(body["f10301"]),
                partition_fields=partition_fields,
                data_files=_files_from_body(partition_fields, body.get("f10302")),
                delete_files=_files_from_body(partition_fields, body.get("f10304")),
            )
        case PayloadType.DATA_COMPLETE:
            parts = body.get("f10101")
            assignments = None if parts is None else tuple(_assignment_from_body(part) for part in parts)
            return DataComplete(commit_id=UUID(bytes=body["f10100"]), assignments=assignments)
        case PayloadType.COMMIT_TO_TABLE:
            return CommitToTable(
                commit_id=UUID(bytes=body["f10400"]),
                table=_table_from_body(body["f10401"]),
                snapshot_id=body.get("f10402"),
                valid_through=_instant_or_none(body.get("f10403")),
            )
        case PayloadType.COMMIT_COMPLETE:
            return CommitComplete(
                commit_id=UUID(bytes=body["f10000"]), valid_through=_instant_or_none(body.get("f10001"))
            )


@lru_cache(maxsize=256)
def _codec(partition_fields: tuple[PartitionField, ...]) -> FileCodec:
    return FileCodec(partition_fields)


def _files_to_body(
    partition_fields: tuple[PartitionField, ...], files: tuple[DataFile, ...] | None
) -> tuple[str, list[dict[str, Any]]] | None:
    return None if files is None else ("array", [_codec(partition_fields).write(file) for file in files])


def _files_from_body(partition_fields: tuple[PartitionField, ...], bodies: Any) -> tuple[DataFile, ...] | None:
    return None if bodies is None else tuple(_codec(partition_fields).read(body) for body in bodies)


def _table_to_body(table: TableReference) -> dict[str, Any]:
    body: dict[str, Any] = {"f10600": table.catalog, "f10601": list(table.namespace), "f10603": table.name}
    if table.table_uuid is not None:
        body["f10604"] = ("uuid_fixed", table.table_uuid.bytes)
    return body


def _table_from_body(body: Mapping[str, Any]) -> TableReference:
    table_uuid = body.get("f10604")
    return TableReference(
        catalog=body["f10600"],
        namespace=tuple(body["f10601"]),
        name=body["f10603"],
        table_uuid=None if table_uuid is None else UUID(bytes=table_uuid),
    )


def _assignment_to_body(assignment: TopicPartitionOffset) -> dict[str, Any]:
    return {
        "f10700": assignment.topic,
        "f10701": assignment.partition,
        "f10702": _long(assignment.offset),
        "f10703": _instant(assignment.timestamp),
    }


def _assignment_from_body(body: Mapping[str, Any]) -> TopicPartitionOffset:
    return TopicPartitionOffset(
        topic=body["f10700"],
        partition=body["f10701"],
        offset=body.get("f10702"),
        timestamp=_instant_or_none(body.get("f10703")),
    )


def _long(number: int | None) -> tuple[str, int] | None:
    return None if number is None else ("long", number)


def _instant(moment: datetime | None) -> tuple[str, int] | None:
    return None if moment is None else ("long", to_micros(moment))


def _instant_or_none(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
