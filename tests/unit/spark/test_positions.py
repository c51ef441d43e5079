# SPDX-License-Identifier: Apache-2.0
"""Where a span ends for the log that it was read from."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.core.model import ReadPosition, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.spark.chunks import position_behind

SPAN = Span(SourcePartition("orders", 0, "id"), OffsetRange(10, 20))


def at(offset: int, epoch: int) -> ReadPosition:
    return ReadPosition(offset=offset, leader_epoch=epoch)


@pytest.mark.parametrize(
    ("observed", "planned", "position"),
    [
        (at(20, 3), 3, at(20, 3)),
        (at(20, 3), 5, at(20, 3)),
        (at(20, 6), 5, at(20, 6)),
        # Aborted records lie behind the last one, or all are aborted.
        (at(14, 3), 5, at(20, 5)),
        (None, 5, at(20, 5)),
        # The log lost its end between the plan and the reading.
        (at(14, 6), 5, at(14, 6)),
        # Who planned it told no epoch.
        (at(14, 3), None, at(14, 3)),
        (None, None, None),
    ],
)
def test_what_lies_behind_the_last_record_is_of_the_leader_that_planned_it(
    observed: ReadPosition | None, planned: int | None, position: ReadPosition | None
) -> None:
    assert position_behind(SPAN, observed, planned) == position
