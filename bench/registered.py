# SPDX-License-Identifier: Apache-2.0
"""Records framed for a registry, and that registry.

Contract: :func:`registry` answers for both schemas of a shape behind real HTTP, by the interface of Confluent's
registry and, as far as a reader needs it, by that of Apicurio's (:data:`APICURIO`). It is a thread of this process:
what it costs is two answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.shapes import Shape
from tests.fakes.registry import FakeRegistry, Spoilt

__all__ = ["APICURIO", "HEADS", "framed", "registry"]

APICURIO = "apis/registry/v2"
"""Where the interface of Apicurio's registry is."""
HEADS = {"json": b"", "avro": b"\x00" + (1).to_bytes(4), "protobuf": b"\x00" + (2).to_bytes(4) + b"\x00"}
"""What stands before a record: a registry counts its schemas from 1; of Protobuf's messages it is the first without
others in it.
"""


def framed(shape: Shape, format: str, records: int) -> Iterator[bytes]:
    """The values of all records."""
    head = HEADS[format]
    for value in shape.values[format](0, records, records):
        yield head + value


@contextmanager
def registry(shape: Shape) -> Iterator[dict[str, Any]]:
    """Settings of its client."""
    fake = FakeRegistry()
    fake.before = lambda path: _as_apicurio(fake, path)
    with fake.running() as running:
        assert running.register("avro-value", json.dumps(shape.avro)) == 1
        assert running.register("protobuf-value", shape.proto, "PROTOBUF") == 2
        yield {"url": running.url}


def _as_apicurio(fake: FakeRegistry, path: str) -> Spoilt | None:
    parts = path.partition("?")[0].strip("/").removeprefix(APICURIO).strip("/").split("/")
    match parts:
        case ["ids", _, number, *rest] if APICURIO in path:
            found = [] if rest else fake.ids[int(number)].body["schema"]
            text = json.dumps(found) if rest else str(found)
            return 200, "application/json", text.encode()
    return None
