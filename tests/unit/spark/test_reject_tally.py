# SPDX-License-Identifier: Apache-2.0
"""What rejected records have in common is reported once."""

from __future__ import annotations

from typing import Any

from airflow_provider_lakecommit.formats.decoder import Reject
from airflow_provider_lakecommit.spark.totals import RejectTally


class At:
    """A message at an offset."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return self._offset


def tally(*reasons: str) -> RejectTally:
    empty = RejectTally()
    messages: Any = [At(n) for n in range(len(reasons))]
    empty.add(messages, [Reject(index=n, reason=r, kind="wrong", column="cost") for n, r in enumerate(reasons)])
    return empty


def test_records_that_fail_alike_are_named_by_their_positions_and_the_reason_is_reported_once() -> None:
    tallied = tally(*["cost is text"] * 7)
    assert tallied.cause == "cost is text (7 of 7 rejected records)"
    assert tallied.first == ", ".join(f"orders[2]@{n}" for n in range(5))


def test_other_reasons_are_reported_with_theirs() -> None:
    tallied = tally("cost is text", "cost is a list", "cost is text", "cost is a list")
    assert tallied.first == "orders[2]@0, orders[2]@2; orders[2]@1, orders[2]@3: cost is a list"
