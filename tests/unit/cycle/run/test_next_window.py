# SPDX-License-Identifier: Apache-2.0
"""When a window is opened: the rows of the table, and that no record waits longer than it may, whenever it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.cycle.run.next_window import ANYWAY, LATE, SELDOM, Pace, ahead_of, is_full

P0, P1 = (SourcePartition("orders", n, "topic-1") for n in range(2))
AGE = 2.0


@pytest.mark.parametrize(
    ("records", "now", "max_records", "max_bytes", "record_bytes", "expected"),
    [
        (0, 1.0, None, None, 0, (0.5, False)),
        (0, ANYWAY, None, None, 0, (0.0, True)),
        (5, 1.0, None, None, 0, (1.0, True)),
        (5, 2.0, None, None, 0, (0.0, True)),
        (5, 0.5, 5, None, 0, (0.0, True)),
        (5, 0.5, 6, None, 0, (0.5, False)),
        (5, 1.75, 6, None, 0, (0.25, True)),
        (5, 0.5, None, 5 * 1024, 0, (0.0, True)),
        (5, 0.5, None, 5 * 1024, 100, (0.5, False)),
    ],
)
def test_the_rows_of_the_table(
    records: int,
    now: float,
    max_records: int | None,
    max_bytes: int | None,
    record_bytes: int,
    expected: tuple[float, bool],
) -> None:
    """The first look after a plan at second 0."""
    full = is_full(records, record_bytes, max_records=max_records, max_bytes=max_bytes)
    assert Pace.after(0.0, AGE).saw(records, checked_at=now, now=now, full=full)[1:] == expected


def test_checks_an_idle_topic_become_rare_and_not_too_rare() -> None:
    pace, now, pauses = Pace.after(0.0, AGE), 0.0, []
    for _ in range(8):
        pace, seconds, _ = pace.saw(0, checked_at=now, now=now, full=None)
        pauses.append(seconds)
        now += seconds
    assert pauses == [0.5, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0]


def test_a_slow_follow_checks_now_and_then_all_the_same() -> None:
    pace = Pace.after(0.0, 3600.0)
    for n in range(5):
        pace, seconds, _ = pace.saw(0, checked_at=float(n), now=float(n), full=None)
        assert seconds <= SELDOM


@given(comes=st.floats(0.0, 200.0), age=st.floats(0.5, 60.0), answer=st.floats(0.0, 0.2))
def test_no_record_waits_longer_than_it_may_and_none_is_hurried(comes: float, age: float, answer: float) -> None:
    """One record on an idle topic, whose looks are answered after a while."""
    pace, now = Pace.after(0.0, age), 0.0
    while True:
        checked = now
        now += answer
        pace, seconds, opens = pace.saw(int(comes <= checked), checked_at=checked, now=now, full=None)
        now += seconds
        if opens:
            break
    assert comes <= now <= comes + age + LATE + 2 * answer + 1e-6
    assert now - pace.clean >= age - 1e-6


def test_what_is_ahead_counts_new_partitions_complete_and_removed_offsets_not() -> None:
    now = {P0: Watermark(start=30, stable=50, high=57), P1: Watermark(start=0, stable=4, high=4)}
    assert ahead_of({P0: 20}, now) == (20 + 4, 7)
    assert ahead_of({P0: 50, P1: 4}, now) == (0, 7)
    again = {SourcePartition("orders", 0, "topic-2"): Watermark(start=0, stable=3, high=3)}
    assert ahead_of({P0: 50}, again) == (3, 0)
