# SPDX-License-Identifier: Apache-2.0
"""Which message of its schema a framed record is: the path of indexes between the schema's id and the payload.

Contract: behind the id stand the number of indexes and the indexes, from the outermost message to the innermost, as
zigzag varints; a single byte 0 stands for the first message, ``[0]``. (Confluent's own clients up to 2020 wrote the
number of indexes and the indexes as plain varints; that they cannot be told apart is why nobody reads both.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["FIRST", "message_path", "paths_of"]

FIRST = (0,)
DEEPEST = 32
"""Indexes of a path: messages are nested nowhere near as deep."""
Message = tuple[tuple[int, ...], int]
"""The path of a message, and where its payload begins."""
_LONGEST = 5
"""Bytes of a varint here: an index has 32 bits."""


def paths_of(values: Sequence[bytes], start: int) -> tuple[Mapping[Message, Sequence[int]], dict[int, str]]:
    """The places of values by their message, with where the payload begins; and what is wrong with the others.

    :param start: where the schema's id ends in each
    """
    # Nearly all values of nearly all topics are the first message.
    if {value[start : start + 1] for value in values} == {b"\x00"}:
        return {(FIRST, start + 1): range(len(values))}, {}
    found: dict[Message, list[int]] = {}
    wrong: dict[int, str] = {}
    for i, value in enumerate(values):
        try:
            key = (FIRST, start + 1) if value[start : start + 1] == b"\x00" else message_path(value, start)
        except ValueError as e:
            wrong[i] = str(e)
        else:
            found.setdefault(key, []).append(i)
    return found, wrong


def message_path(value: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The path of a value's message, and where its payload begins.

    :raises ValueError: there is none
    """
    count, at = _varint(value, start)
    if not 0 <= count <= DEEPEST:
        raise ValueError(f"the value names its message by {count} indexes, which is no path of a message")
    path = []
    for _ in range(count):
        index, at = _varint(value, at)
        if index < 0:
            raise ValueError(f"the value names its message by the index {index}")
        path.append(index)
    return tuple(path) or FIRST, at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and where it ends."""
    number = 0
    for n, octet in enumerate(value[at : at + _LONGEST]):
        number |= (octet & 0x7F) << 7 * n
        if octet < 0x80:
            return (number >> 1) ^ -(number & 1), at + n + 1
    raise ValueError("the value ends within the indexes of its message")
