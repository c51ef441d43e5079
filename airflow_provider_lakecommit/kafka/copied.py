# SPDX-License-Identifier: Apache-2.0
"""Find where a copy of a partition continues, by the records themselves: a copy keeps their order and times, not their
offsets.

Contract: reads committed records only, and writes nothing. The last records before an offset are searched in the copy,
from the first record of their time. Records are equal if timestamp, key and value are; several in a row are compared,
so that their neighbours distinguish equal ones.

Failure story: records that are not found, or found at several places, give no offset but a reason. Unreachable brokers
raise the error of the caller that opened the sources.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Message

from airflow_provider_lakecommit.core import SourcePartition, Watermark
from airflow_provider_lakecommit.exceptions import SourceUnavailableError
from airflow_provider_lakecommit.kafka.partition_tail import CorruptBatch, PartitionTail
from airflow_provider_lakecommit.kafka.source_topic import SourceTopics

IN_A_ROW = 5
"""Records that are compared."""
BACK = 1_000
"""Offsets before the place in which they are looked for: markers and compaction leave gaps."""
MOST_SCANNED = 500_000
"""Records of the copy that are looked at."""
TIMEOUT_SECONDS = 30.0

_Print = tuple[int, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """A partition with its borders, on one cluster."""

    kafka: Mapping[str, Any]
    topics: SourceTopics
    partition: SourcePartition
    mark: Watermark

    def records(self, start: int, end: int) -> Iterator[Message]:
        """Its committed records, those of damaged batches left out."""
        p, timeout, away = self.partition, TIMEOUT_SECONDS, SourceUnavailableError
        with closing(PartitionTail(self.kafka, p.topic, p.partition, timeout=timeout, away=away)) as tail:
            first, last = max(start, self.mark.start), min(end, self.mark.stable)
            if first < last:
                yield from (m for m in tail.read(first, last) if not isinstance(m, CorruptBatch))

    def first_since(self, millis: int) -> int:
        """The first offset of a record that is not older; the end if there is none."""
        at = datetime.fromtimestamp(millis / 1000, UTC)
        answers = self.topics.request_first_since([(self.partition, at)])(TIMEOUT_SECONDS)
        if not answers:
            raise SourceUnavailableError("LC2004", f"{self.partition}: no answer which record is the first since {at}")
        found = answers[0][2]
        return self.mark.stable if found is None else found[0]


def position_in_copy(original: PartitionLog, offset: int, copy: PartitionLog) -> int | str:
    """Return where the copy has the records at and after an offset of the original, or why this is unknown.

    :raises SourceUnavailableError: brokers do not answer
    """
    before = deque(original.records(offset - BACK, offset), IN_A_ROW)
    if not before:
        return _by_the_next(original, offset, copy)
    expected = [_print_of(m) for m in before]
    found: list[int] = []
    observed: deque[_Print] = deque(maxlen=len(expected))
    start = copy.first_since(min(at for at, _, _ in expected))
    for n, message in enumerate(copy.records(start, copy.mark.stable)):
        observed.append(_print_of(message))
        if list(observed) == expected:
            found.append((message.offset() or 0) + 1)
        if n >= MOST_SCANNED:
            break
    return _only(found, f"the {len(expected)} records before offset {offset}")


def _by_the_next(original: PartitionLog, offset: int, copy: PartitionLog) -> int | str:
    """No record before it is left: use the next record."""
    first = next(original.records(offset, original.mark.stable), None)
    if first is None:
        if copy.mark.start == copy.mark.stable:
            return copy.mark.start
        return "the original has no record left to compare"
    expected = _print_of(first)
    start = copy.first_since(expected[0])
    records = copy.records(start, start + MOST_SCANNED)
    return _only(
        [m.offset() or 0 for m in records if _print_of(m) == expected], f"the record at offset {first.offset()}"
    )


def _only(found: list[int], what: str) -> int | str:
    if len(found) == 1:
        return found[0]
    if not found:
        return f"{what} of the original are not in the copy"
    return f"{what} of the original are in the copy {len(found)} times"


def _print_of(message: Message) -> _Print:
    return message.timestamp()[1], message.key(), message.value()
