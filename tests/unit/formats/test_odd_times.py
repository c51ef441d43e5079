# SPDX-License-Identifier: Apache-2.0
"""Times whose unit is declared finer than it is, which no rule can refuse: 1970 is a year that there was."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import TimestamptzType

from airflow_provider_lakecommit.formats.time_values import Suspects, odd_times, time_reading

NOW = 1_760_000_000
FACTOR = {"epoch_seconds": 1, "epoch_millis": 1_000, "epoch_micros": 1_000_000, "epoch_nanos": 1_000_000_000}
ZONED = pa.timestamp("us", "UTC")


def read(rule: str, numbers: list[int | None], target: pa.DataType = ZONED) -> pa.Table:
    reading = time_reading(TimestamptzType(), rule)
    return pa.table({"at": reading.convert(pa.array(numbers, reading.wire), target)})


@pytest.mark.parametrize("declared", ["epoch_millis", "epoch_micros", "epoch_nanos"])
@pytest.mark.parametrize("written", FACTOR)
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_unit_that_is_taken_for_a_finer_one_is_reported_and_no_other(declared: str, written: str, unit: str) -> None:
    if FACTOR[written] > FACTOR[declared]:
        return
    rows = read(declared, [NOW * FACTOR[written] // 1000 * 1000, 0, None], pa.timestamp(unit, "UTC"))
    odd, better = (0, "") if written == declared else (1, written)
    assert odd_times(rows, {"at": declared}) == {"at": Suspects(odd, 2, better)}


def test_rules_that_cannot_be_finer_and_columns_that_are_elsewhere_are_left_alone() -> None:
    rows = read("epoch_seconds", [1_000])
    assert odd_times(rows, {"at": "epoch_seconds", "box.at": "epoch_millis", "day": "iso8601"}) == {}
    assert odd_times(read("epoch_millis", []), {"at": "epoch_millis"}) == {"at": Suspects(0, 0, "")}
