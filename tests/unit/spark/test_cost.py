# SPDX-License-Identifier: Apache-2.0
"""The clock of a slice: each lap goes to the work that ended it."""

from __future__ import annotations

from airflow_provider_lakecommit.core.model import SliceCost
from airflow_provider_lakecommit.spark.totals import CostClock


def test_each_lap_is_booked_to_its_work_and_the_parts_add_up() -> None:
    times = iter([100.0, 101.5, 101.75, 103.0, 103.5, 104.0004])
    clock = CostClock(lambda: next(times))
    clock.lap("read")
    clock.lap("decode")
    clock.lap("write")
    clock.lap("read")
    clock.lap("write")
    cost = clock.cost(written=77)
    assert cost == SliceCost(read_seconds=2.0, decode_seconds=0.25, write_seconds=1.75, bytes=77)


def test_a_slice_without_records_costs_nothing_but_its_end() -> None:
    times = iter([5.0, 5.25])
    clock = CostClock(lambda: next(times))
    clock.lap("write")
    assert clock.cost(written=0) == SliceCost(read_seconds=0.0, decode_seconds=0.0, write_seconds=0.25, bytes=0)
