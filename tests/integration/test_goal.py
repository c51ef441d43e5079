# SPDX-License-Identifier: Apache-2.0
"""Windows by a target on real parts: what the reports tell is in the table, and the next plan goes by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_lakecommit.core.planning.measure import newest
from tests.support.world import World, records

pytestmark = pytest.mark.integration


def test_windows_follow_their_target_and_a_hot_partition_is_read_by_all_groups(
    make_world: Callable[..., World], produce: Callable[..., Any]
) -> None:
    world = make_world(2, slice_records=250, groups=2, group_by="load", target_window=0.02, target_file_size=1 << 20)
    produce(world.landing.topics, records(0, 2_400), 0)
    produce(world.landing.topics, records(2_400, 600), 1)

    trial = world.open("trial")
    assert trial.explain[0] == "window.target 0.02 s: no window measured yet (trial): at most 1000 records"
    assert [(g.group, g.records) for g in trial.groups] == [(0, 500), (1, 500)]
    world.write(trial)
    world.close("trial", trial)
    with world.session() as session:
        summary = session.tables.load(world.landing.table).current_snapshot().summary["lakecommit.measured"]
    (measured,) = newest([summary])
    assert (measured.records, measured.slices, measured.files, measured.full) == (1_000, 4, 8, True)
    assert measured.task_ms >= measured.busy_ms > 0
    assert measured.bytes > 0

    second = world.open("second")
    assert second.explain[0].startswith("window.target 0.02 s: 1 window measured, ")
    assert second.explain[1].endswith("none of 10000 records was measured, slices of 250")
    assert {s.spans[0].partition.partition for s in second.slices if s.group} >= {0}
    world.write(second)
    world.close("second", second)
    world.settle()
    world.check(Counter(range(3_000)))
