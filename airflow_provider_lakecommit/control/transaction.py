# SPDX-License-Identifier: Apache-2.0
"""The records of one transaction on the control topic: their size limit, and their delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, Message

from airflow_provider_lakecommit.exceptions import WireError

Record = tuple[bytes, bytes, Sequence[tuple[str, bytes]]]
"""Key, value and headers of one record."""

DEFAULT_MAX_BYTES = 1_000_000
# What a record has around key, value and headers on the wire, generously.
RECORD_OVERHEAD = 96
HEADER_OVERHEAD = 10
SIGNATURE_BYTES = 128


def check_sizes(records: Sequence[Record], where: str, limit: int, *, signed: bool) -> None:
    """Raise if a record is larger than the client accepts; generous, so that sizes never end an open transaction."""
    for key, value, headers in records:
        around = sum(len(name) + len(content) + HEADER_OVERHEAD for name, content in headers) + RECORD_OVERHEAD
        size = len(key) + len(value) + around + (SIGNATURE_BYTES if signed else 0)
        if size > limit:
            raise WireError(
                "LC2364",
                f"a record for {where} has {size} bytes, the limit is {limit}: raise message.max.bytes of the "
                "connection and max.message.bytes of the topic",
            )


class Deliveries:
    """The broker's answer to each record of a transaction; the first failure is kept."""

    def __init__(self, count: int) -> None:
        self._offsets: list[int | None] = [None] * count
        self.failure: KafkaError | None = None

    def note(self, index: int) -> Callable[[KafkaError | None, Message], None]:
        def noted(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._offsets[index] = message.offset()
            elif self.failure is None:
                self.failure = error

        return noted

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(offset for offset in self._offsets if offset is not None)

    @property
    def complete(self) -> bool:
        return None not in self._offsets
