# SPDX-License-Identifier: Apache-2.0
"""Times and headers of records: whatever a record holds is a value, and no exception."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.kafka.record import bounded_time, headers_of, time_of
from tests.support.story import STEADY

LONGS = st.integers(-(2**63), 2**63 - 1)


@dataclass
class Record:
    """A record whose headers the client has, or does not have."""

    found: Any
    troubles: int = 0

    def headers(self) -> Any:
        if self.troubles:
            self.troubles -= 1
            raise SystemError("returned a result with an exception set")
        return self.found


@STEADY
@given(LONGS)
def test_any_number_is_a_time_or_none_and_can_be_compared(milliseconds: int) -> None:
    found = time_of(milliseconds)
    assert found is None or (found - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == milliseconds
    assert bounded_time(milliseconds) + timedelta(days=100_000)
    assert bounded_time(milliseconds).timestamp() >= 0


@pytest.mark.parametrize(
    ("milliseconds", "year"),
    [(-62_135_596_800_000, 1), (-62_135_596_800_001, None), (253_402_300_799_999, 9999), (253_402_300_800_000, None)],
)
def test_a_time_is_of_the_years_that_a_table_can_hold(milliseconds: int, year: int | None) -> None:
    found = time_of(milliseconds)
    assert (found and found.year) == year


def test_no_time_is_none() -> None:
    assert time_of(-1) is None
    assert time_of(0) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, ()),
        ([], ()),
        ([("a", b"1"), ("a", None)], (("a", b"1"), ("a", None))),
        ({"a": b"1", "b": "text"}, (("a", b"1"), ("b", b"text"))),
    ],
)
def test_headers_keep_order_and_repetition(found: Any, expected: Any) -> None:
    assert headers_of(Record(found)) == expected


def test_headers_of_which_the_client_reports_only_when_requested_again_are_reported() -> None:
    assert headers_of(Record([("a", b"1")], troubles=1)) == (("a", b"1"),)
    assert headers_of(Record([("a", b"1")], troubles=9)) is None
