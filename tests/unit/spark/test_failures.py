# SPDX-License-Identifier: Apache-2.0
"""A failure of a slice: is it of its records, where is it, and how is the slice cut until it stands alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import (
    AccountingError,
    CatalogError,
    FencedError,
    RecordsError,
    SourceCorruptError,
    SourceError,
    SourceUnavailableError,
    TableError,
)
from airflow_provider_lakecommit.spark.failures import MOST_FAILED, MOST_TRIES, cut, in_parts, passes
from tests.support.story import STEADY

Spans = tuple[Span, ...]


def span(start: int, end: int, partition: int = 0) -> Span:
    return Span(SourcePartition("orders", partition), OffsetRange(start, end))


def covered(spans: Spans) -> Coverage:
    return Coverage.of((s.partition, s.range) for s in spans)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SourceUnavailableError("LC9999", "away"), True),
        (CatalogError("LC9999", "away"), True),
        (FencedError("LC9999", "taken over"), True),
        (ConnectionResetError("storage"), True),
        (PermissionError("storage"), True),
        (TimeoutError("storage"), True),
        (KafkaException("broker"), True),
        (type("ClientError", (Exception,), {"__module__": "botocore.exceptions"})("slow down"), True),
        (SourceCorruptError("LC9999", "crc"), False),
        (SourceError("LC9999", "gone"), False),
        (TableError("LC9999", "schema"), False),
        (AccountingError("LC9999", "sum"), False),
        (OverflowError("date value out of range"), False),
        (ValueError("decoder"), False),
        (MemoryError("decoder"), False),
        (pa.ArrowInvalid("value"), False),
        (type("Boom", (Exception,), {"__module__": "shop.decoder"})("boom"), False),
    ],
)
def test_brokers_and_storage_that_are_away_pass_and_all_else_counts(error: Exception, expected: bool) -> None:
    assert passes(error) == expected


def test_a_position_that_is_known_is_taken_out_at_once() -> None:
    whole = (span(0, 100), span(5, 20, 1), span(0, 7, 2))
    parts = cut(whole, SourceCorruptError("LC9999", "crc", (span(40, 60),)))
    assert parts == [
        ((span(0, 40), span(5, 20, 1), span(0, 7, 2)), False),
        ((span(40, 60),), True),
        ((span(60, 100),), False),
    ]


def test_records_that_were_handled_together_are_tried_again() -> None:
    parts = cut((span(0, 100),), RecordsError("LC9999", "boom", (span(40, 60),)))
    assert [bad for _, bad in parts] == [False, False, False]
    assert [bad for _, bad in cut((span(0, 100),), RecordsError("LC9999", "boom", (span(40, 41),)))] == [
        False,
        True,
        False,
    ]


def test_what_is_no_records_doing_is_cut_by_partition_only() -> None:
    assert cut((span(0, 100),), SourceError("LC9999", "the topic was made anew")) == []
    assert [spans for spans, _ in cut((span(0, 9), span(0, 9, 1)), SourceError("LC9999", "x"))] == [
        (span(0, 9),),
        (span(0, 9, 1),),
    ]
    assert cut((span(40, 60),), SourceCorruptError("LC9999", "crc", (span(40, 60),))) == []


@STEADY
@given(st.sets(st.integers(0, 399), max_size=6), st.sampled_from(["nothing", "chunk", "record"]))
def test_all_but_the_bad_records_is_done_and_each_of_these_is_alone(bad: set[int], message: str) -> None:
    """400 records in four partitions; a failure tells its record, the ten it was handled with, or nothing."""
    # Where nothing is reported, each takes so many attempts that more than three are left for the next cycle.
    bad = set(sorted(bad)[:3]) if message == "nothing" else bad
    whole = tuple(span(0, 100, p) for p in range(4))
    done: list[Spans] = []

    def attempt(spans: Spans) -> None:
        for s in spans:
            for offset in range(s.range.start, s.range.end):
                if s.partition.partition * 100 + offset in bad:
                    first = offset // 10 * 10
                    places = {
                        "nothing": (),
                        "record": (span(offset, offset + 1, s.partition.partition),),
                        "chunk": (span(first, first + 10, s.partition.partition),),
                    }
                    raise RecordsError("LC9999", "boom", places[message])
        done.append(spans)

    try:
        attempt(whole)
        failed: Spans = ()
    except RecordsError as e:
        failed = tuple(s for spans, _ in in_parts(whole, e, attempt) for s in spans)
    assert all(len({s.partition for s in spans}) == len(spans) for spans in done)
    assert sum(len(covered(spans)) for spans in done) == len(covered(tuple(s for spans in done for s in spans)))
    assert sorted(s.partition.partition * 100 + s.range.start for s in failed) == sorted(bad)
    assert all(len(s) == 1 for s in failed)
    assert len(covered(tuple(s for spans in done for s in spans))) == 400 - len(bad)


def test_the_work_is_bounded_and_a_failure_of_everything_is_one() -> None:
    tries: list[Spans] = []

    def fail(spans: Spans) -> None:
        tries.append(spans)
        raise RecordsError("LC9999", "boom")

    whole = (span(0, 250_000),)
    (failed,) = in_parts(whole, RecordsError("LC9999", "boom"), fail)
    assert failed[0] == whole
    assert len(tries) < MOST_TRIES / 2

    def every_other(spans: Spans) -> None:
        tries.append(spans)
        if any(r.range.start % 2 or len(r) > 1 for r in spans):
            raise RecordsError("LC9999", "boom")

    tries.clear()
    assert len(in_parts(whole, RecordsError("LC9999", "boom"), every_other)) <= MOST_FAILED
    assert len(tries) <= MOST_TRIES


def test_what_may_pass_ends_the_attempt() -> None:
    def away(spans: Spans) -> None:
        raise SourceUnavailableError("LC9999", "away")

    with pytest.raises(SourceUnavailableError):
        in_parts((span(0, 9),), RecordsError("LC9999", "boom"), away)
