# SPDX-License-Identifier: Apache-2.0
"""Check the size of catalog answers and table files before they are read into memory.

A gigabyte of JSON, or a megabyte that unpacks into one, would kill the process that reads it, for example a task with
other tables.

Contract: :func:`check_json` estimates the memory that pyiceberg needs to parse a JSON text, from its length, its widest
character and its number of parts. :func:`bounded_body` reads an HTTP response, and :class:`BoundedInput` opens a file:
a complete read must be within :data:`MEMORY_LIMIT`; reads in parts, as of Parquet, are not limited.

Failure story: a larger text is a :class:`ValueError` with both sizes, a larger file a :class:`TableError`. The limit
fits ten thousand snapshots, or fifty schemas of a thousand columns, or a thousand snapshots with full ledgers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from io import BytesIO, RawIOBase
from typing import Any

from pyiceberg.io import InputFile
from pyiceberg.serializers import Compressor, GzipCompressor

from airflow_provider_lakecommit.control import check_text
from airflow_provider_lakecommit.exceptions import TableError

MEMORY_LIMIT = 320 << 20
_COPIES = 3
"""Copies of a text in memory while it is parsed: bytes, text and values."""
_PART_BYTES = 1200
"""Memory for a parsed value, or for the error that pyiceberg keeps for it."""
LENGTH_LIMIT = MEMORY_LIMIT // _COPIES
_WIDE, _MIDDLE = bytes(range(0xF0, 0x100)), bytes(range(0xC4, 0xF0))
"""How characters of four bytes begin in UTF-8, and those of two."""
_WIDE_ESCAPE = re.compile(rb"\\u[dD][89abAB]")
_NO_JSON = (b"Obj\x01", b"PFA1", b"PAR1")
"""How Avro, Puffin and Parquet files begin."""


def check_json(raw: bytes) -> None:
    """:raises ValueError: parsing the text would take more memory than :data:`MEMORY_LIMIT`"""
    width = _width(raw)
    left = MEMORY_LIMIT - len(raw) * width * _COPIES
    if left < 0:
        raise ValueError(f"it is {len(raw) >> 20} MiB long, and at most {LENGTH_LIMIT // width >> 20} MiB are read")
    parts = left // _PART_BYTES
    check_text(raw, depth=parts, parts=parts, limit=LENGTH_LIMIT)


def _width(raw: bytes) -> int:
    """Return the bytes that Python takes for each character of a text that has this as its UTF-8."""
    escapes = b"\\u" in raw
    if _has(raw, _WIDE) or (escapes and _WIDE_ESCAPE.search(raw)):
        return 4
    return 2 if escapes or _has(raw, _MIDDLE) else 1


def _has(raw: bytes, some: bytes) -> bool:
    # Many times as fast as a regular expression.
    return not raw.isascii() and len(raw.translate(None, some)) < len(raw)


def bounded_body(chunks: Iterable[bytes]) -> bytes:
    """Return a body that is read in chunks."""
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > LENGTH_LIMIT:
            raise ValueError(f"it is longer than {LENGTH_LIMIT >> 20} MiB")
    return bytes(body)


class BoundedInput(InputFile):
    """A file of a table that cannot be read whole if it is too large."""

    def __init__(self, of: InputFile) -> None:
        super().__init__(of.location)
        self._of = of

    def __len__(self) -> int:
        return len(self._of)

    def exists(self) -> bool:
        return self._of.exists()

    def open(self, seekable: bool = True) -> Any:
        """Open the file. Compressed metadata is unpacked once to measure it."""
        stream = _BoundedStream(self._of.open(seekable), self.location)
        if not isinstance(Compressor.get_compressor(self.location), GzipCompressor):
            return stream
        with stream:
            packed = stream.read_whole()
        _check(_unpacked(packed, self.location), self.location)
        return BytesIO(packed)


class _BoundedStream(RawIOBase):
    def __init__(self, of: Any, location: str) -> None:
        self._of, self._location = of, location

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            return bytes(self._of.read(size))
        whole = self.read_whole()
        if not whole.startswith(_NO_JSON):
            _check(whole, self._location)
        return whole

    def read_whole(self) -> bytes:
        found = bytes(self._of.read(LENGTH_LIMIT + 1))
        if len(found) > LENGTH_LIMIT:
            raise TableError(
                "LC3301",
                f"file {self._location} is longer than {LENGTH_LIMIT >> 20} MiB, the limit for reading it as a whole",
            )
        return found

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        found = self._of.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._of.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._of.seek(offset, whence))

    def tell(self) -> int:
        return int(self._of.tell())

    def close(self) -> None:
        if not self.closed:
            self._of.close()
        super().close()


def _unpacked(packed: bytes, location: str) -> bytes:
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
    found = unpacking.decompress(packed, LENGTH_LIMIT + 1)
    if len(found) > LENGTH_LIMIT or unpacking.unused_data:
        raise TableError(
            "LC3302", f"file {location} unpacks into more than {LENGTH_LIMIT >> 20} MiB, or into several texts"
        )
    return found


def _check(raw: bytes, location: str) -> None:
    try:
        check_json(raw)
    except ValueError as e:
        raise TableError("LC3303", f"file {location} takes too much memory to read: {e}") from None
