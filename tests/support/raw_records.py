# SPDX-License-Identifier: Apache-2.0
"""Records that no client library would send, and bytes altered where the broker keeps them.

Contract: :func:`send_raw` produces a batch made here, byte by byte, with a right checksum: any bytes as the name of a
header, any 64-bit number as a time. :func:`alter` changes bytes of a partition's newest segment file, and leaves its
checksum as it was.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

POLYNOMIAL = 0x82F63B78
PRODUCE, VERSION = 0, 3


def _table() -> list[int]:
    out = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (POLYNOMIAL if byte & 1 else 0)
        out.append(byte)
    return out


_TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Raw:
    """One record."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _record(at: int, raw: Raw) -> bytes:
    headers = b"".join(_sized(name) + _sized(value) for name, value in raw.headers)
    body = b"\x00" + _varint(0) + _varint(at) + _sized(raw.key) + _sized(raw.value)
    body += _varint(len(raw.headers)) + headers
    return _varint(len(body)) + body


def batch_of(records: Sequence[Raw], milliseconds: int) -> bytes:
    """A batch of format 2, not compressed, all records of one time."""
    many = len(records)
    body = struct.pack(">hiqqqhii", 0, many - 1, milliseconds, milliseconds, -1, -1, -1, many)
    body += b"".join(_record(i, raw) for i, raw in enumerate(records))
    after = struct.pack(">ib", -1, 2) + struct.pack(">I", crc32c(body)) + body
    return struct.pack(">qi", 0, len(after)) + after


def send_raw(bootstrap: str, topic: str, records: Sequence[Raw], *, partition: int = 0, milliseconds: int) -> None:
    """Produce one batch and wait for the broker's word.

    :raises RuntimeError: the broker refused it
    """
    batch, name = batch_of(records, milliseconds), topic.encode()
    request = struct.pack(">hhih", PRODUCE, VERSION, 7, -1) + struct.pack(">hhi", -1, -1, 30_000)
    request += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, partition, len(batch)) + batch
    host, _, port = bootstrap.partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        read = answer.read(size)
    (code,) = struct.unpack_from(">h", read, 4 + 4 + 2 + len(name) + 4 + 4)
    if code:
        raise RuntimeError(f"the broker refuses the batch for {topic}[{partition}]: error {code}")


def segment(directory: Path, topic: str, partition: int = 0) -> Path:
    """The newest segment file of a partition."""
    return max((directory / "data" / f"{topic}-{partition}").glob("*.log"))


def alter(directory: Path, topic: str, old: bytes, new: bytes, *, partition: int = 0) -> None:
    """Change bytes of a partition where its broker keeps them; it may be running."""
    assert len(old) == len(new)
    path = segment(directory, topic, partition)
    at = path.read_bytes().index(old)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)


def batches(directory: Path, topic: str, partition: int = 0) -> list[tuple[int, int, int]]:
    """Place in the segment file, first and last offset of each batch."""
    data, at, out = segment(directory, topic, partition).read_bytes(), 0, []
    while at + 61 <= len(data):
        base, size = struct.unpack_from(">qi", data, at)
        if size <= 0:
            break
        (last,) = struct.unpack_from(">i", data, at + 23)
        out.append((at, base, base + last))
        at += 12 + size
    return out


def flip(directory: Path, topic: str, place: int, *, partition: int = 0) -> None:
    """Flip one bit of the byte at a place of the segment file."""
    with segment(directory, topic, partition).open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
