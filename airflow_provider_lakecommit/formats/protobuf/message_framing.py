# SPDX-License-Identifier: Apache-2.0
"""The message of a framed record: the path of indexes between the schema's id and the payload, and its full name.

After the id come the number of indexes and the indexes, from the outermost message to the innermost, as zigzag varints;
a single byte 0 means the first message. (Confluent's clients up to 2020 wrote plain varints, which cannot be told
apart.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from google.protobuf.descriptor import FileDescriptor

from airflow_provider_lakecommit.formats.decoder import Decoder, Refusal
from airflow_provider_lakecommit.formats.protobuf.compiler import DescriptorError
from airflow_provider_lakecommit.formats.protobuf.descriptors import message_at, registered_file
from airflow_provider_lakecommit.formats.registry.framing import Framed
from airflow_provider_lakecommit.formats.registry.schema_source import PROTOBUF, SchemaSource, key_text
from airflow_provider_lakecommit.formats.schema_names import SchemaNames

FIRST = (0,)
DEEPEST = 32
Message = tuple[tuple[int, ...], int]
"""The path of a message, and where its payload begins."""
_LONGEST = 5
"""Most bytes of a varint: an index has 32 bits."""
_SAMPLED = 4
"""Messages of a block whose records are found together."""


def paths_of(values: Sequence[bytes], start: int) -> tuple[Mapping[Message, Sequence[int]], dict[int, str]]:
    """Return the positions of values by message and payload start, and what is wrong with the others.

    :param start: end of the schema id in each value
    """
    found: dict[Message, list[int]] = {}
    wrong: dict[int, str] = {}
    left: Sequence[int] = range(len(values))
    # Nearly all topics have records of few messages: one is read, and those that begin alike are the same.
    while left and len(found) + len(wrong) < _SAMPLED:
        first = values[left[0]]
        try:
            key = message_path(first, start)
        except ValueError as e:
            wrong[left[0]] = str(e)
            left = left[1:]
            continue
        head = first[start : key[1]]
        alike = [i for i in left if values[i][start : key[1]] == head]
        found.setdefault(key, []).extend(alike)
        left = [] if len(alike) == len(left) else [i for i in left if values[i][start : key[1]] != head]
    for i in left:
        try:
            found.setdefault(message_path(values[i], start), []).append(i)
        except ValueError as e:
            wrong[i] = str(e)
    return {key: sorted(at) for key, at in found.items()}, dict(sorted(wrong.items()))


def message_path(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the path of a value's message, and where its payload begins."""
    count, at = _varint(value, start)
    if not 0 <= count <= DEEPEST:
        raise ValueError(f"the value names its message by {count} indexes, which is not the path of a message")
    path = []
    for _ in range(count):
        index, at = _varint(value, at)
        if index < 0:
            raise ValueError(f"the value names its message by the index {index}")
        path.append(index)
    return tuple(path) or FIRST, at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = 0
    for n, octet in enumerate(value[at : at + _LONGEST]):
        number |= (octet & 0x7F) << 7 * n
        if octet < 0x80:
            return (number >> 1) ^ -(number & 1), at + n + 1
    raise ValueError("the value ends within the indexes of its message")


def message_names(registry: SchemaSource | None) -> Decoder:
    """Return the reader of Protobuf's message names."""
    return SchemaNames(registry, PROTOBUF, registered_file, _names)


def _names(
    values: Sequence[bytes], group: Framed, file: FileDescriptor
) -> Iterator[tuple[str | Refusal | None, Sequence[int]]]:
    found, wrong = paths_of([values[i] for i in group.positions], group.start)
    for i, why in wrong.items():
        yield Refusal("not_framed", None, why), [group.positions[i]]
    for (path, _), positions in found.items():
        at = [group.positions[i] for i in positions]
        try:
            yield message_at(file, path).full_name, at
        except DescriptorError as e:
            yield Refusal("wrong_schema", None, f"{key_text(group.key)}: {e}"), at
