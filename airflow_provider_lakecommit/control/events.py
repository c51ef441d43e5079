# SPDX-License-Identifier: Apache-2.0
"""Control events, the messages between writers and committers of a commit cycle, in the bytes of iceberg-kafka-connect.

:func:`encode` writes what the connector's classes write for the same content (1.12, or the form for 1.10), and
:func:`decode` reads what any connector since 1.9 writes, by the writer schema in each record. Events have no extension:
an unknown field stops every connector on the topic; our data is in record headers. :func:`head` reads only sender, type
and cycle, without the schema, for readers that skip most records.

A record is ``C2 01``, the length of the schema (two bytes), the schema, the Avro body. ``data_files=None`` and
``data_files=()`` both occur and differ. Timestamps are aware and exact to the microsecond. A foreign, truncated or
damaged record raises :class:`ControlEventError`, at a cost bounded by its length: see :mod:`.avro_bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any
from uuid import UUID

from fastavro import schemaless_reader, schemaless_writer

from airflow_provider_lakecommit.control.avro_bounds import EVENT_LIMIT, Body
from airflow_provider_lakecommit.control.avro_schemas import Form, schema_text
from airflow_provider_lakecommit.control.avro_shapes import Shape, shape_of
from airflow_provider_lakecommit.control.errors import ControlEventError
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Payload,
    PayloadType,
    StartCommit,
    from_micros,
    payload_from_body,
    payload_to_body,
    to_micros,
)

_MAGIC = b"\xc2\x01"
_GOES_ON = sum(0x80 << 7 * place for place in range(7))
"""The marks of the first seven of eight bytes of a number, in it."""
_WALKED_FROM = 1 << 20
"""Bytes from which on a body is walked before it is read; smaller ones of a schema that we know cannot hold much."""
_COMMIT_IDS = frozenset({"f10000", "f10100", "f10200", "f10300", "f10400"})
_CLASSES: dict[PayloadType, type[Payload]] = {
    kind.TYPE: kind for kind in (StartCommit, DataWritten, DataComplete, CommitToTable, CommitComplete)
}
_PACKAGE = "org.apache.iceberg.connect.events."


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    id: UUID
    timestamp: datetime
    group_id: str
    payload: Payload

    @property
    def type(self) -> PayloadType:
        return self.payload.TYPE


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHead:
    id: UUID
    type: PayloadType
    timestamp: datetime
    group_id: str
    commit_id: UUID


def encode(event: Event, *, form: Form = "1.12") -> bytes:
    """Return the bytes of an event. Form ``1.10`` omits table uuids, which connectors up to 1.10 cannot read."""
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
        raise ControlEventError("LC2346", f"a {payload.TYPE.name} event cannot be written: {error}") from error
    if out.tell() > EVENT_LIMIT:
        raise ControlEventError(
            "LC2347", f"a {payload.TYPE.name} event has {out.tell()} bytes, {EVENT_LIMIT} are read at most"
        )
    return out.getvalue()


def decode(data: bytes) -> Event:
    start = _body_start(data)
    shape = shape_of(data[4:start])
    if not shape.plain or len(data) - start >= _WALKED_FROM:
        Body(data, start, shape.names).skip(shape.tree)
    stream = BytesIO(data)
    stream.seek(start)
    try:
        body: Any = schemaless_reader(stream, shape.schema, None)
        event = _event(body, shape)
    except ControlEventError:
        raise
    except Exception as error:  # whatever a reader may say about bytes from anybody
        raise ControlEventError("LC2348", f"a control event of {len(data)} bytes is corrupt: {error!r:.500}") from error
    if stream.tell() != len(data):
        raise ControlEventError("LC2349", f"a control event is followed by {len(data) - stream.tell()} foreign bytes")
    return event


def head(data: bytes) -> EventHead:
    """Return the first fields of an event; its rest is not read, and may be damaged."""
    return _head_and_end(data)[0]


def only_head(data: bytes) -> bytes:
    """Return the bytes of an event that :func:`head` reads."""
    return data[: _head_and_end(data)[1]]


def _head_and_end(data: bytes) -> tuple[EventHead, int]:
    start = _body_start(data)
    known = next((kind for kind, schema in _HEADS.items() if data.startswith(schema, 4)), None)
    try:
        if known is None:
            return _walked_head(data, start)
        body = Body(data, start, {})
        event_id, number, micros = body.take(16), body.long(), body.long()
        group, commit_id = body.take(body.long()), body.take(16)
        kind = _kind(number, _CLASSES[PayloadType(known)].__name__)
        return _head(event_id, kind, micros, group, commit_id), body.at
    except (LookupError, ValueError, OverflowError) as error:
        if isinstance(error, ControlEventError):
            raise
        raise ControlEventError(
            "LC2350", f"a control event of {len(data)} bytes is cut off or corrupt: {error!r:.500}"
        ) from error


def _walked_head(data: bytes, start: int) -> tuple[EventHead, int]:
    """Return the head by a schema that no release writes, with its fields in any order."""
    shape = shape_of(data[4:start])
    body, found = Body(data, start, shape.names), dict[str, Any]()
    fields = list(reversed(shape.tree["fields"]))
    while fields and len(found) < 5:
        field = fields.pop()
        name = field["name"]
        if name == "f10504":
            fields += reversed(body.resolved(field["type"])["fields"])
        elif name in ("f10500", *_COMMIT_IDS):
            found["commit_id" if name in _COMMIT_IDS else name] = body.take(16)
        elif name in ("f10501", "f10502"):
            found[name] = body.long()
        elif name == "f10503":
            found[name] = body.take(body.long())
        else:
            body.skip(field["type"])
    kind = _kind(found["f10501"], (shape.payload or "").removeprefix(_PACKAGE))
    return _head(found["f10500"], kind, found["f10502"], found["f10503"], found["commit_id"]), body.at


def _head(event_id: bytes, kind: PayloadType, micros: int, group: bytes, commit_id: bytes) -> EventHead:
    return EventHead(
        id=UUID(bytes=event_id),
        type=kind,
        timestamp=from_micros(micros),
        group_id=group.decode(),
        commit_id=UUID(bytes=commit_id),
    )


def glance(data: bytes) -> tuple[int, int, bytes, bytes]:
    """Return type, microseconds of the epoch, group id and commit id: :func:`head` for readers of very many records."""
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


def _head_schema(kind: type[Payload]) -> bytes:
    """Return the beginning of every known schema of an event with that payload, which fixes the places of the head's
    fields.
    """
    written = schema_text(kind.__name__)
    first = b'{"name":"commit_id","type":"uuid_fixed"'
    return written[: written.index(first) + len(first)]


_HEADS: dict[int, bytes] = {int(number): _head_schema(kind) for number, kind in _CLASSES.items()}


def _body_start(data: bytes) -> int:
    if data[:2] != _MAGIC:
        raise ControlEventError(
            "LC2351", f"a record is not a control event: it begins with {data[:8].hex(' ') or 'nothing'}"
        )
    if len(data) > EVENT_LIMIT:
        raise ControlEventError("LC2352", f"a control event has {len(data)} bytes, {EVENT_LIMIT} are read at most")
    start = 4 + int.from_bytes(data[2:4], "big")
    if len(data) < 4 or len(data) <= start:
        raise ControlEventError(
            "LC2353", f"a control event is cut off: its body begins at byte {start}, it has {len(data)}"
        )
    return start


def _kind(number: int, payload: str) -> PayloadType:
    if number not in _CLASSES:
        raise ControlEventError(
            "LC2354", f"a control event has the unknown type {number}: is it from a newer connector?"
        )
    kind = PayloadType(number)
    if payload != _CLASSES[kind].__name__:
        raise ControlEventError("LC2355", f"a control event of type {kind.name} carries a {payload:.200}")
    return kind


def _event(body: dict[str, Any], shape: Shape) -> Event:
    kind = _kind(body["f10501"], (shape.payload or "").removeprefix(_PACKAGE))
    return Event(
        id=UUID(bytes=body["f10500"]),
        timestamp=from_micros(body["f10502"]),
        group_id=body["f10503"],
        payload=payload_from_body(kind, body["f10504"], shape.partition_fields),
    )
