# SPDX-License-Identifier: Apache-2.0
"""The schema that a record's value names in its first bytes.

A byte 0 and a four-byte schema id, or a byte 1 and a sixteen-byte schema UUID, then the payload. The newer framing may
be in a header instead (:data:`VALUE_HEADER`, :data:`KEY_HEADER`); :func:`with_header` puts it before the value. For
Protobuf the path of the message follows. Unframed values are described, as a producer without a registry is the most
frequent mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from airflow_provider_lakecommit.formats.registry.schema_source import SchemaKey

VALUE_HEADER = "__value_schema_id"
KEY_HEADER = "__key_schema_id"
"""Headers in which Confluent's clients send the schema of a value or key."""
_ID, _GUID = b"\x00", b"\x01"
_ID_LENGTH, _GUID_LENGTH = 5, 17
_HIGHEST = 0x7F
"""Highest first byte of an id, which is Java's ``int``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framed:
    """Values of a block with the same schema, by position; each payload begins at ``start``."""

    key: SchemaKey
    start: int
    positions: Sequence[int]


def framed(values: Sequence[bytes]) -> tuple[list[Framed], dict[int, str]]:
    """Return a block by schema, in order of appearance, and the reasons of values without one, by position."""
    heads = [value[:_ID_LENGTH] for value in values]
    if len(set(heads)) == 1 and heads[0][:1] == _ID and _wrong(heads[0]) is None:
        return [_group(heads[0], range(len(values)))], {}
    positions: dict[bytes, list[int]] = {}
    for i, head in enumerate(heads):
        positions.setdefault(values[i][:_GUID_LENGTH] if head[:1] == _GUID else head, []).append(i)
    groups, unframed = list[Framed](), dict[int, str]()
    for head, at in positions.items():
        if (wrong := _wrong(head)) is None:
            groups.append(_group(head, at))
        else:
            unframed |= dict.fromkeys(at, wrong)
    return groups, dict(sorted(unframed.items()))


def with_header(value: bytes, headers: Iterable[tuple[str, bytes | None]] | None, header: str = VALUE_HEADER) -> bytes:
    """Return a value behind the schema from its record's headers, if there is one; the last one counts."""
    for name, content in reversed(list(headers or ())):
        if name == header and content is not None:
            return content + value
    return value


def _group(head: bytes, positions: Sequence[int]) -> Framed:
    key: SchemaKey = int.from_bytes(head[1:]) if head[:1] == _ID else UUID(bytes=head[1:])
    return Framed(key=key, start=len(head), positions=positions)


def _wrong(head: bytes) -> str | None:
    if not head:
        return "the value is empty: it names no schema"
    if head[:1] not in (_ID, _GUID):
        like = "; it looks like JSON" if head[:1] in b"{[" else ""
        like = "; it looks like an Avro file" if head.startswith(b"Obj\x01") else like
        return f"the value names no schema of a registry: it begins with byte {head[0]}, not with 0 or 1{like}"
    if len(head) < (_ID_LENGTH if head[:1] == _ID else _GUID_LENGTH):
        return f"the value ends within the schema's id, after {len(head)} bytes"
    if head[:1] == _ID and head[1] > _HIGHEST:
        # Registries answer that like an address that they do not have, of which no record is guilty.
        return f"the value names schema id {int.from_bytes(head[1:])}, but ids end at 2147483647"
    return None
