# SPDX-License-Identifier: Apache-2.0
"""What is asked of a table, what is answered, and both as lines of JSON, which is how they pass between processes.

Contract: frozen, and bounded: whatever records hold, a sample is cut (:data:`MOST_VALUE` bytes and so on), and says how
long the whole is. A :class:`Sample` is of one rejected record. Bytes that are UTF-8 are told as text, all others as
Base64; texts may hold anything else that Unicode has, NUL and directions of writing among it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "MOST_HEADERS",
    "MOST_KEY",
    "MOST_TEXT",
    "MOST_VALUE",
    "FileCounts",
    "Part",
    "Sample",
    "TableAnswer",
    "TableQuestion",
    "part_of",
]

MOST_VALUE, MOST_KEY = 2_000, 500
"""Bytes of a value and of a key that are told."""
MOST_TEXT = 500
"""Characters of a reason, and of the name of a header."""
MOST_HEADERS = 20
MOST_TROUBLE = 500
LETTER = 4
"""Bytes that a letter of UTF-8 has at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuestion:
    """How many files a table has; or, with ``landing``, samples of the dead letters that it has of that one.

    ``connection`` names the catalog.
    """

    connection: str
    table: str
    branch: str = "main"
    landing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The beginning of some bytes: as ``text``, or as ``base64`` where they are no UTF-8. ``size`` are all of them."""

    size: int
    text: str | None = None
    base64: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A rejected record: where it is, when it was written (ISO 8601), what it holds, and why it was rejected. ``kind``
    is that of the dead-letter table, with the column that it is about.
    """

    partition: str
    offset: int
    at: str | None
    kind: str
    reason: str
    key: Part | None
    value: Part | None
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """Data files of a table, and how many of them are smaller than ``limit`` bytes; ``None``: there are too many to
    be counted.
    """

    files: int
    bytes: int
    limit: int
    small: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAnswer:
    """One of the first two, or why there is none; nothing of a table that says nothing, or has no dead letter."""

    files: FileCounts | None = None
    samples: tuple[Sample, ...] = ()
    trouble: str = ""

    def to_json(self) -> dict[str, Any]:
        """For :meth:`from_json`."""
        return {**asdict(self), "trouble": self.trouble[:MOST_TROUBLE]}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> TableAnswer:
        """:raises KeyError: or TypeError: it is none"""
        files = told["files"]
        return cls(
            files=None if files is None else FileCounts(**files),
            samples=tuple(_sample(each) for each in told["samples"]),
            trouble=str(told["trouble"]),
        )


def _sample(told: Mapping[str, Any]) -> Sample:
    parts = {name: None if told[name] is None else Part(**told[name]) for name in ("key", "value")}
    return Sample(**{**told, **parts, "headers": tuple(told["headers"])})


def part_of(value: bytes | None, most: int) -> Part | None:
    """The beginning of a key or a value.

    :param most: bytes
    """
    if value is None:
        return None
    begin = value[:most]
    for cut in range(LETTER if len(value) > most else 1):
        try:
            return Part(size=len(value), text=begin[: len(begin) - cut].decode())
        except UnicodeDecodeError:
            continue
    return Part(size=len(value), base64=b64encode(begin).decode())
