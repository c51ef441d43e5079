# SPDX-License-Identifier: Apache-2.0
"""What is kept of a log gives what the log itself would give, whatever is asked in whatever order."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control import bounded_records
from airflow_provider_lakecommit.control.bounded_records import ObservedRecords
from airflow_provider_lakecommit.control.control_log import ControlRecord

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Log:
    """A log with a hole at every third offset, as marks of transactions leave them; notes what is read of it."""

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []
        self.value = b"first"

    def fetch(self, start: int, end: int) -> list[ControlRecord]:
        self.read.append((start, end))
        return [self.record(n) for n in range(start, end) if n % 3]

    def record(self, offset: int) -> ControlRecord:
        return ControlRecord(partition=0, offset=offset, timestamp=AT, key=None, value=self.value, headers=())

    def offsets(self, start: int, end: int) -> list[int]:
        return [n for n in range(start, end) if n % 3]


def offsets(found: tuple[ControlRecord, ...]) -> list[int]:
    return [r.offset for r in found]


def test_a_check_reads_only_what_came_since() -> None:
    log = Log()
    kept = ObservedRecords(log.fetch)
    assert offsets(kept.read(0, 10)) == log.offsets(0, 10)
    first = kept.read(4, 20)
    assert offsets(first) == log.offsets(4, 20)
    assert kept.read(4, 20) == first
    assert log.read == [(0, 10), (10, 20)]
    assert all(a is b for a, b in zip(kept.read(4, 20), first, strict=True)), "the very records: who decoded them knows"


def test_what_lies_before_or_far_behind_is_read_from_the_log() -> None:
    log = Log()
    kept = ObservedRecords(log.fetch)
    kept.read(10, 20)
    assert offsets(kept.read(5, 20)) == log.offsets(5, 20)
    assert offsets(kept.read(30, 40)) == log.offsets(30, 40)
    assert log.read == [(10, 20), (5, 20), (30, 40)]


def test_a_log_that_was_cut_at_its_end_is_read_again() -> None:
    log = Log()
    kept = ObservedRecords(log.fetch)
    kept.read(0, 20)
    log.value = b"after an unclean election"
    assert {r.value for r in kept.read(0, 12)} == {log.value}
    assert {r.value for r in kept.read(0, 25)} == {log.value}


def test_a_read_that_fails_leaves_what_was_there() -> None:
    log, away = Log(), [False]

    def fetch(start: int, end: int) -> list[ControlRecord]:
        if away[0]:
            raise RuntimeError("away")
        return log.fetch(start, end)

    kept = ObservedRecords(fetch)
    kept.read(0, 10)
    away[0] = True
    with pytest.raises(RuntimeError):
        kept.read(0, 20)
    away[0] = False
    assert offsets(kept.read(0, 20)) == log.offsets(0, 20)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_records, "KEPT_RECORDS", 20)
    log = Log()
    kept = ObservedRecords(log.fetch)
    for end in range(10, 1000, 10):
        assert offsets(kept.read(max(0, end - 16), end)) == log.offsets(max(0, end - 16), end)
        assert len(kept._records) <= 20
    assert sum(end - start for start, end in log.read) == 990, "each offset once"
    monkeypatch.setattr(bounded_records, "KEPT_BYTES", 10 * len(log.value))
    kept.read(984, 1000)
    assert kept._bytes == len(log.value) * len(kept._records) <= 10 * len(log.value)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10)), max_size=20), st.integers(1, 30))
def test_any_row_of_checks_a_growing_log(looks: list[tuple[int, int]], most: int) -> None:
    log, end = Log(), 0
    kept = ObservedRecords(log.fetch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_records, "KEPT_RECORDS", most)
        for start, more in looks:
            end += more
            if start < end:
                assert offsets(kept.read(start, end)) == log.offsets(start, end)
