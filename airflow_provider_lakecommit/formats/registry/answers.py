# SPDX-License-Identifier: Apache-2.0
"""Answers of a schema registry, measured while they are read.

Contract: :func:`limit_answers` makes a registry client read at most :data:`MOST_BYTES` of any answer, unpacked, for at
most :data:`MOST_SECONDS`, and ask for no packing but gzip, which unpacks a chunk of the network into a thousand times
its size at most. The client's own timeout is for each piece of an answer.

Failure story: a larger or slower answer, or one that is packed otherwise, is a ``ValueError``, and the rest of it is
not read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

MOST_BYTES = 8 << 20
"""Schema registries take schemas of one megabyte by default."""
MOST_SECONDS = 60.0
_PACKED = ("", "identity", "gzip")


def limit_answers(client: SchemaRegistryClient) -> SchemaRegistryClient:
    """Return the client with bounded answers."""
    session: Any = client._rest_client.session
    session.headers["Accept-Encoding"] = "gzip"
    hooks = session.event_hooks
    session.event_hooks = {**hooks, "response": [*hooks["response"], _read]}
    return client


def _read(response: Any) -> None:
    """A hook of `httpx`, which is called before the body is read, and takes it from the response if it was."""
    packed = response.headers.get("Content-Encoding", "").strip().lower()
    if packed not in _PACKED:
        raise ValueError(f"its answer is compressed by {packed[:40]!r}, but only gzip is accepted")
    body, end = bytearray(), time.monotonic() + MOST_SECONDS
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MOST_BYTES:
            raise ValueError(f"its answer is longer than {MOST_BYTES >> 20} MiB")
        if time.monotonic() > end:
            raise ValueError(f"its answer takes longer than {MOST_SECONDS:g} s")
    response._content = bytes(body)
