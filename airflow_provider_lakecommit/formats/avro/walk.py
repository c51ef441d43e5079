# SPDX-License-Identifier: Apache-2.0
"""Find the items of an array or map by a walk over its bytes.

An item that cannot be walked over stands for the rest of its array: its reader finds the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

SMALL = 1024
"""Most items of a block that is walked over together with the previous one."""
Walk = Callable[[memoryview, int, int], int]
"""From the position of a value to the next one, within an end."""
_FIXED = {"boolean": 1, "float": 4, "double": 8, "null": 0}


class _WrongError(Exception):
    """There is no valid value."""


def item_starts(walk: Walk, octets: memoryview, at: int, end: int, many: int, starts: list[int]) -> int:
    """Add the positions of so many items, and those of small blocks after them.

    :return: the position of the next count, which the caller checks
    """
    due = len(starts)
    try:
        while many:
            due += many
            while len(starts) < due:
                starts.append(at)
                at = walk(octets, at, end)
            many, items = _next_block(octets, at, end)
            at = items if many else at
    except _WrongError:
        starts += starts[-1:] * (due - len(starts))
    return at


def _next_block(octets: memoryview, at: int, end: int) -> tuple[int, int]:
    """Return a block's number of items and their begin; zero at the end, or if it is not small, or invalid."""
    try:
        many, at = _value(octets, at, end)
        if many < 0:
            many, (size, at) = -many, _value(octets, at, end)
            many = many if size >= 0 else 0
    except _WrongError:
        return 0, at
    return (many if many <= min(SMALL, end - at) else 0), at


def walk_over(kind: str, size: int, parts: Sequence[Walk | None]) -> Walk | None:
    """Return how to walk over values of a type, by Avro's word for it; ``None`` if impossible.

    :param size: size of a fixed
    :param parts: its fields, branches or items
    """
    walks = tuple(part for part in parts if part is not None)
    if len(walks) < len(parts):
        return None
    match kind:
        case "int" | "long" | "enum":
            return _number
        case "bytes" | "string":
            return _octets
        case "record":
            return partial(_all, walks)
        case "union":
            return partial(_one, walks)
        case "array":
            return partial(_blocks, walks[0])
        case "map":
            return partial(_blocks, entry_walk(walks[0]))
    return partial(_fixed, size or _FIXED.get(kind, 0))


def entry_walk(value: Walk) -> Walk:
    return partial(_all, (_octets, value))


def _value(octets: memoryview, at: int, end: int) -> tuple[int, int]:
    raw = shift = 0
    while at < end:
        octet = octets[at]
        at += 1
        raw |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
    raise _WrongError


def _number(octets: memoryview, at: int, end: int) -> int:
    while at < end:
        at += 1
        if octets[at - 1] < 0x80:
            return at
    raise _WrongError


def _octets(octets: memoryview, at: int, end: int) -> int:
    length, at = _value(octets, at, end)
    if not 0 <= length <= end - at:
        raise _WrongError
    return at + length


def _fixed(size: int, _octets: memoryview, at: int, end: int) -> int:
    if at + size > end:
        raise _WrongError
    return at + size


def _all(walks: tuple[Walk, ...], octets: memoryview, at: int, end: int) -> int:
    for walk in walks:
        at = walk(octets, at, end)
    return at


def _one(walks: tuple[Walk, ...], octets: memoryview, at: int, end: int) -> int:
    which, at = _value(octets, at, end)
    if not 0 <= which < len(walks):
        raise _WrongError
    return walks[which](octets, at, end)


def _blocks(walk: Walk, octets: memoryview, at: int, end: int) -> int:
    while True:
        many, at = _value(octets, at, end)
        if many == 0:
            return at
        if many < 0:
            many, at = -many, _number(octets, at, end)
        for _ in range(many):
            at = walk(octets, at, end)
