# SPDX-License-Identifier: Apache-2.0
"""Control events: what writers and committers of a commit cycle tell each other, in the bytes of iceberg-kafka-connect.

Contract: :func:`encode` writes what the connector's own classes write for the same content (1.12, or the form that 1.10
reads), and :func:`decode` reads what any connector since 1.9 writes, by the writer schema that each record carries.
Events hold no extension: one unknown field stops every connector that shares the topic; what is ours travels in record
headers. :func:`head` reads only who, what and which cycle, without touching the schema, for readers that pass over most
records.

A record is ``C2 01``, the length of the schema (two bytes), the schema, the Avro body. ``data_files=None`` and
``data_files=()`` both occur and are kept apart. Timestamps are aware and exact to the microsecond.

Failure: a record that is foreign, cut off or damaged raises :class:`ControlEventError` whatever its bytes are; nothing
is read half.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any
from uuid import UUID

from fastavro import schemaless_reader, schemaless_writer

from airflow_provider_lakecommit.wire.avro_schemas import Form, schema_text
from airflow_provider_lakecommit.wire.avro_shapes import Shape, shape_of
from airflow_provider_lakecommit.wire.data_file import DataFile
from airflow_provider_lakecommit.wire.errors import ControlEventError
from airflow_provider_lakecommit.wire.partition import PartitionField, PartitionValue
from airflow_provider_lakecommit.wire.payloads import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Payload,
    PayloadType,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
    from_micros,
    payload_from_body,
    payload_to_body,
    to_micros,
)

__all__ = [
    "CommitComplete",
    "CommitToTable",
    "ControlEventError",
    "DataComplete",
    "DataFile",
    "DataWritten",
    "Event",
    "EventHead",
    "Form",
    "PartitionField",
    "PartitionValue",
    "Payload",
    "PayloadType",
    "StartCommit",
    "TableReference",
    "TopicPartitionOffset",
    "decode",
    "encode",
    "glance",
    "head",
]

_MAGIC = b"\xc2\x01"
_GOES_ON = sum(0x80 << 7 * place for place in range(7))
"""The marks of the first seven of eight bytes of a number, in it."""
_CLASSES: dict[PayloadType, type[Payload]] = {
    kind.TYPE: kind for kind in (StartCommit, DataWritten, DataComplete, CommitToTable, CommitComplete)
}
_PACKAGE = "org.apache.iceberg.connect.events."


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One record of the control topic."""

    id: UUID
    timestamp: datetime
    group_id: str
    payload: Payload

    @property
    def type(self) -> PayloadType:
        """Which of the five payloads this is."""
        return self.payload.TYPE


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHead:
    """Who says what about which commit cycle."""

    id: UUID
    type: PayloadType
    timestamp: datetime
    group_id: str
    commit_id: UUID


def encode(event: Event, *, form: Form = "1.12") -> bytes:
    """The bytes of *event*. Form ``1.10`` leaves out table uuids, which connectors up to 1.10 cannot read."""
    payload = event.payload
    fields = payload.partition_fields if isinstance(payload, DataWritten) else ()
    text = schema_text(type(payload).__name__, form=form, partition_fields=fields)
    body = {
        "f10500": event.id.bytes,
        "f10501": int(payload.TYPE),
        "f10502": to_micros(event.timestamp),
        "f10503": event.group_id,
        "f10504": payload_to_body(payload),
    }
    out = BytesIO()
    out.write(_MAGIC + len(text).to_bytes(2, "big") + text)
    try:
        schemaless_writer(out, shape_of(text).schema, body)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ControlEventError(f"a {payload.TYPE.name} event cannot be written: {error}") from error
    return out.getvalue()


def decode(data: bytes) -> Event:
    """The event in *data*."""
    start = _body_start(data)
    shape = shape_of(data[4:start])
    stream = BytesIO(data)
    stream.seek(start)
    try:
        body: Any = schemaless_reader(stream, shape.schema, None)
        event = _event(body, shape)
    except ControlEventError:
        raise
    except Exception as error:  # whatever a reader may say about bytes from anybody
        raise ControlEventError(f"a control event of {len(data)} bytes is damaged: {error!r}") from error
    if stream.tell() != len(data):
        raise ControlEventError(f"a control event is followed by {len(data) - stream.tell()} foreign bytes")
    return event


def head(data: bytes) -> EventHead:
    """The first fields of the event in *data*; the rest of it is not looked at, and may be damaged."""
    start = _body_start(data)
    try:
        number, position = _varint(data, start + 16)
        if number not in _HEADS or not data.startswith(_HEADS[number], 4):
            return _head_of(decode(data))
        micros, position = _varint(data, position)
        length, position = _varint(data, position)
        end = position + length
        if length < 0:
            raise ControlEventError("a control event is damaged: its group id has a negative length")
        return EventHead(
            id=UUID(bytes=data[start : start + 16]),
            type=PayloadType(number),
            timestamp=from_micros(micros),
            group_id=data[position:end].decode(),
            commit_id=UUID(bytes=data[end : end + 16]),
        )
    except (IndexError, ValueError, OverflowError) as error:
        if isinstance(error, ControlEventError):
            raise
        raise ControlEventError(f"a control event of {len(data)} bytes is cut off or damaged: {error!r}") from error


def glance(data: bytes) -> tuple[int, int, bytes, bytes]:
    """What :func:`head` reads, for those who read very many: type, microseconds of the epoch, group id, commit id."""
    try:
        start = 4 + (data[2] << 8) + data[3]
        number = data[start + 16] >> 1
        a, b, c, d, e, f, g, last, length = data[start + 17 : start + 26]
        end = start + 26 + (length >> 1)
        # Eight bytes hold the times of this age, one the length of a group id as they are.
        usual = last < 0x80 and a & b & c & d & e & f & g & 0x80 and length < 0x80 and not (length & 1 or a & 1)
        if usual and data[:2] == _MAGIC and data.startswith(_HEADS[number], 4) and end + 16 <= len(data):
            twice = a + (b << 7) + (c << 14) + (d << 21) + (e << 28) + (f << 35) + (g << 42) + (last << 49) - _GOES_ON
            return number, twice >> 1, data[start + 26 : end], data[end : end + 16]
    except (IndexError, KeyError, ValueError):
        pass
    # Anything unusual, damage among it, is for the careful reader.
    about = head(data)
    return int(about.type), to_micros(about.timestamp), about.group_id.encode(), about.commit_id.bytes


def _head_of(event: Event) -> EventHead:
    return EventHead(
        id=event.id,
        type=event.type,
        timestamp=event.timestamp,
        group_id=event.group_id,
        commit_id=event.payload.commit_id,
    )


def _head_schema(kind: type[Payload]) -> bytes:
    """How every known schema of an event of that payload begins: it fixes where the fields of a head stand."""
    written = schema_text(kind.__name__)
    first = b'{"name":"commit_id","type":"uuid_fixed"'
    return written[: written.index(first) + len(first)]


_HEADS: dict[int, bytes] = {int(number): _head_schema(kind) for number, kind in _CLASSES.items()}


def _body_start(data: bytes) -> int:
    if data[:2] != _MAGIC:
        raise ControlEventError(f"a record is not a control event: it begins with {data[:8].hex(' ') or 'nothing'}")
    start = 4 + int.from_bytes(data[2:4], "big")
    if len(data) < 4 or len(data) <= start:
        raise ControlEventError(f"a control event is cut off: its body begins at byte {start}, it has {len(data)}")
    return start


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag number and the position after it."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _event(body: dict[str, Any], shape: Shape) -> Event:
    number = body["f10501"]
    if number not in _CLASSES:
        raise ControlEventError(f"a control event has the unknown type {number}: is it from a newer connector?")
    kind = PayloadType(number)
    if shape.payload != _PACKAGE + _CLASSES[kind].__name__:
        raise ControlEventError(f"a control event of type {kind.name} carries a {shape.payload}")
    return Event(
        id=UUID(bytes=body["f10500"]),
        timestamp=from_micros(body["f10502"]),
        group_id=body["f10503"],
        payload=payload_from_body(kind, body["f10504"], shape.partition_fields),
    )
