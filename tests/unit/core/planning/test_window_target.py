# SPDX-License-Identifier: Apache-2.0
"""Windows by their target: limits hold, what was measured counts, one odd window does not; a model machine gets
there.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.measure import WindowCost
from airflow_provider_lakecommit.core.planning.missing import Missing, RangesByTables, WindowLimits, choose
from airflow_provider_lakecommit.core.planning.slicing import cut
from airflow_provider_lakecommit.core.planning.window_target import (
    ASSUMED_RATE,
    LEAST_RECORDS,
    MANY_RECORDS,
    STEP,
    lopsided,
    sized,
)
from tests.support.effort import examples
from tests.support.story import ORDERS, P0, P1, P2, STEADY, Story, coverage

DEFAULT = 250_000
BACKLOG = 100_000_000
LIMITS = WindowLimits(slice_records=DEFAULT)


def cost(records: int = 1_000_000, **changes: Any) -> WindowCost:
    """Of four slices, two at once, that wrote 200,000 records a second, half a second next to."""
    made = WindowCost(
        records=records,
        slices=4,
        task_ms=records // 100,
        busy_ms=records // 200,
        idle_ms=500,
        files=4,
        bytes=records * 10,
        full=True,
    )
    return replace(made, **changes)


def of(costs: list[WindowCost], limits: WindowLimits = LIMITS, **given: Any) -> WindowLimits:
    return sized(limits, costs, **{"missing": [P0], "records": BACKLOG, **given})[0]


def reason(costs: list[WindowCost], limits: WindowLimits = LIMITS, **given: Any) -> str:
    return "\n".join(sized(limits, costs, **{"missing": [P0], "records": BACKLOG, **given})[1])


def test_without_a_target_nothing_changes_and_nothing_is_reported() -> None:
    limits = WindowLimits(groups=3, max_records=7)
    assert sized(limits, [cost()], missing=[P0], records=BACKLOG) == (limits, ())


class TestWindow:
    def test_where_nothing_was_measured_a_trial_is_planned_with_slices_as_without_a_target(self) -> None:
        found = of([], window_seconds=10)
        assert (found.max_records, found.slice_records) == (10 * ASSUMED_RATE, DEFAULT)
        assert reason([], window_seconds=10) == (
            "window.target 10 s: no window measured yet (trial): at most 500000 records"
        )

    def test_the_time_that_is_left_for_writing_is_filled(self) -> None:
        assert of([cost()], window_seconds=8.5).max_records == 1_600_000
        assert reason([cost()], window_seconds=8.5).splitlines()[0] == (
            "window.target 8.5 s: 1 window measured, 200000 records/s with 2 in parallel, and 0.5 s overhead: at most "
            "1600000 records"
        )

    def test_a_window_grows_and_shrinks_step_by_step(self) -> None:
        assert of([cost()], window_seconds=600).max_records == STEP * 1_000_000
        assert of([cost()], window_seconds=1).max_records == 1_000_000 // STEP

    @pytest.mark.parametrize("odd", [cost(busy_ms=90_000, task_ms=180_000, idle_ms=90_000), cost(busy_ms=20)])
    def test_one_window_that_took_unusually_long_or_short_changes_nothing(self, odd: WindowCost) -> None:
        usual = [cost()] * 4
        assert of([odd, *usual], window_seconds=8.5) == of(usual, window_seconds=8.5)

    def test_clocks_that_disagree_take_half_of_the_target_at_most(self) -> None:
        assert of([cost(idle_ms=10**9)], window_seconds=8).max_records == 800_000

    def test_a_short_target_still_has_records(self) -> None:
        assert of([cost(100, busy_ms=1, task_ms=1)], window_seconds=0.001).max_records == LEAST_RECORDS

    @pytest.mark.parametrize(("task_ms", "counts"), [(400, False), (8000, True)])
    def test_a_window_that_took_all_there_was_counts_where_its_slices_took_long(
        self, task_ms: int, counts: bool
    ) -> None:
        small = cost(400_000, task_ms=task_ms, full=False)
        assert ("no window measured" in reason([small], window_seconds=8.5)) is not counts

    def test_declared_limits_are_never_passed(self) -> None:
        limits = replace(LIMITS, max_records=5_000, max_bytes=2_000_000, record_bytes=1_000)
        assert of([cost()], limits, window_seconds=8.5).window_records == 2_000
        assert "; window.max_records or window.max_bytes allow 2000" in reason([cost()], limits, window_seconds=8.5)


class TestSlices:
    def test_all_streams_are_at_work_to_the_end(self) -> None:
        three = cost(task_ms=15_000)
        assert of([three], records=1_000_000, window_seconds=60).slice_records == -(-1_000_000 // 6)

    def test_few_large_ones_where_each_is_short(self) -> None:
        found = of([cost()], records=200_000, window_seconds=60)
        assert found.slice_records == 200_000
        assert "1 slices of about 2.0 s, 2 in parallel" in reason([cost()], records=200_000, window_seconds=60)

    def test_where_no_slice_waited_more_are_tried_at_once(self) -> None:
        one = cost(slices=1, busy_ms=10_000)
        assert of([one], records=200_000, window_seconds=4).slice_records == 100_000
        assert of([one, cost(busy_ms=10_000)], records=200_000, window_seconds=4).slice_records == 200_000

    def test_slices_of_a_dear_partition_have_fewer_records(self) -> None:
        usual, dear = cost(), cost(dear={str(P0): 300})
        assert of([dear, dear, usual], missing=[P0, P1], window_seconds=60).dear == {P0: 3.0}
        assert of([dear, usual, usual], missing=[P0, P1], window_seconds=60).dear == {}

    def test_partitions_with_dear_records_are_cut_finer(self) -> None:
        limits = WindowLimits(slice_records=90, dear={P0: 3.0})
        assert (limits.per_slice(P0), limits.per_slice(P1)) == (30, 90)


class TestFiles:
    def test_slices_are_as_large_as_such_a_file_takes(self) -> None:
        assert of([cost()], file_bytes=5_000_000).slice_records == 500_000

    def test_files_of_several_table_partitions_take_more(self) -> None:
        assert of([cost(files=8)], file_bytes=5_000_000).slice_records == 1_000_000

    def test_before_anything_is_measured_they_are_as_without_a_target(self) -> None:
        assert of([], file_bytes=5_000_000).slice_records == DEFAULT
        assert reason([], file_bytes=5_000_000) == (
            "window.target_file_size 5000000: none of 10000 records was measured, slices of 250000"
        )

    @pytest.mark.parametrize(
        ("goal", "limits", "most", "why"),
        [
            ({"slice_limit": 300_000}, LIMITS, 300_000, "window.slice_records allows 300000"),
            ({"window_seconds": 4.5}, LIMITS, 400_000, "window.target allows 400000"),
            ({}, replace(LIMITS, record_bytes=1 << 10), 1 << 18, "256 MiB of records are 262144"),
        ],
    )
    def test_what_replaces_the_way_is_named(
        self, goal: dict[str, Any], limits: WindowLimits, most: int, why: str
    ) -> None:
        assert of([cost()], limits, file_bytes=5_000_000, **goal).slice_records == most
        assert reason([cost()], limits, file_bytes=5_000_000, **goal).endswith(f"now {most}; {why}")

    def test_a_landing_that_keeps_up_learns_it_too_and_nothing_of_a_trickle(self) -> None:
        quick = cost(task_ms=2_000, busy_ms=1_000, full=False)
        assert of([quick], file_bytes=5_000_000).slice_records == 500_000
        trickle = cost(40, bytes=40_000, full=False)
        assert of([trickle] * 5, file_bytes=5_000_000).slice_records == DEFAULT
        assert of([trickle, quick], file_bytes=5_000_000).slice_records == 500_000
        assert of([cost(80_000)], file_bytes=50_000_000).slice_records == DEFAULT * STEP**2

    def test_files_of_a_byte_are_no_slices_of_a_record(self) -> None:
        assert of([cost(4_000_000, slices=4)], file_bytes=1).slice_records == DEFAULT // STEP**2
        assert of([cost(4_000_000, slices=200)], file_bytes=1).slice_records == 2 * MANY_RECORDS

    def test_a_slice_is_worth_a_task_however_short_the_window_is(self) -> None:
        assert of([cost()], file_bytes=5_000_000, window_seconds=0.1).slice_records == 60_000


class TestGroups:
    def test_a_small_window_has_few(self) -> None:
        limits = replace(LIMITS, groups=4)
        assert of([cost()], limits, window_seconds=8.5).groups == 4
        assert of([cost()], limits, records=600_000, window_seconds=8.5).groups == 2
        assert of([cost()], limits, records=10, window_seconds=8.5).groups == 1

    def test_without_a_measurement_there_are_as_many_as_declared(self) -> None:
        assert of([], replace(LIMITS, groups=4), window_seconds=8.5).groups == 4


def chosen_of(**ends: int) -> RangesByTables:
    at = {"p0": P0, "p1": P1, "p2": P2}
    whole = coverage([(at[p], 0, end) for p, end in ends.items()])
    return choose(Missing(ranges={(ORDERS,): whole}), WindowLimits())


def cut_of(chosen: RangesByTables, limits: WindowLimits) -> Any:
    return cut(chosen, Story().landing_state(), limits, UUID(int=1))


class TestByLoad:
    def test_a_hot_partition_is_read_by_all_groups(self) -> None:
        chosen, limits = chosen_of(p0=80, p1=10, p2=10), WindowLimits(groups=2, slice_records=10)
        work = {g: sum(len(s) for s in cut_of(chosen, replace(limits, by_load=True)) if s.group == g) for g in (0, 1)}
        assert work == {0: 50, 1: 50}

    def test_the_slices_are_those_of_one_group(self) -> None:
        chosen, one = chosen_of(p0=35, p1=4, p2=4), WindowLimits(slice_records=10)
        dealt = cut_of(chosen, replace(one, groups=3, by_load=True))
        assert sorted(s.slice_id for s in dealt) == sorted(s.slice_id for s in cut_of(chosen, one))

    def test_a_group_with_far_too_much_is_named(self) -> None:
        chosen, limits = chosen_of(p0=80, p1=10, p2=10), WindowLimits(groups=3, slice_records=10)
        assert lopsided(cut_of(chosen, limits), limits) == (
            "group 0 has 80 of 100 records; `window.group_by: load` distributes slices by their cost",
        )
        assert lopsided(cut_of(chosen, replace(limits, by_load=True)), limits) == ()
        assert lopsided((), limits) == ()

    @given(
        ends=st.lists(st.integers(1, 60), min_size=3, max_size=3),
        groups=st.integers(1, 4),
        size=st.integers(1, 12),
        dear=st.floats(1, 5),
    )
    @settings(STEADY, max_examples=examples(150))
    def test_every_offset_is_planned_once_and_no_group_has_a_slice_more_than_it_must(
        self, ends: list[int], groups: int, size: int, dear: float
    ) -> None:
        chosen = chosen_of(p0=ends[0], p1=ends[1], p2=ends[2])
        limits = WindowLimits(groups=groups, slice_records=size, dear={P1: dear}, by_load=True)
        slices = cut_of(chosen, limits)
        spans = sorted((x.partition, x.range.start, x.range.end) for s in slices for x in s.spans)
        reach: dict[SourcePartition, int] = {}
        for p, start, end in spans:
            assert start == reach.get(p, 0)
            reach[p] = end
        assert [reach[p] for p in (P0, P1, P2)] == ends
        load = [
            sum(sum(len(x.range) / limits.per_slice(x.partition) for x in s.spans) for s in slices if s.group == g)
            for g in range(groups)
        ]
        assert max(load) - min(load) <= 1 + 1e-9
        assert cut_of(chosen, limits) == slices


COSTS = st.builds(
    WindowCost,
    records=st.integers(1, 10**8),
    slices=st.integers(1, 1000),
    task_ms=st.integers(1, 10**7),
    busy_ms=st.integers(1, 10**7),
    idle_ms=st.integers(0, 10**9),
    files=st.integers(0, 1000),
    bytes=st.integers(0, 10**12),
    full=st.booleans(),
    dear=st.dictionaries(st.just(str(P0)), st.integers(150, 10_000)),
)
LIMITS_OF = st.builds(
    WindowLimits,
    groups=st.integers(1, 8),
    slice_records=st.sampled_from([1, 10, DEFAULT]),
    max_records=st.none() | st.integers(1, 10**7),
    max_bytes=st.none() | st.integers(1, 10**9),
    record_bytes=st.integers(0, 10**6),
)


@given(
    costs=st.lists(COSTS, max_size=5),
    limits=LIMITS_OF,
    seconds=st.none() | st.floats(0.01, 10**5),
    file_bytes=st.none() | st.integers(1, 10**10),
    stated=st.booleans(),
    records=st.integers(0, 10**8),
)
@settings(STEADY, max_examples=examples(600))
def test_limits_that_are_declared_are_never_passed(
    costs: list[WindowCost],
    limits: WindowLimits,
    seconds: float | None,
    file_bytes: int | None,
    stated: bool,
    records: int,
) -> None:
    def again() -> tuple[WindowLimits, tuple[str, ...]]:
        slice_limit = limits.slice_records if stated else None
        return sized(
            limits,
            costs,
            missing=[P0],
            records=records,
            window_seconds=seconds,
            file_bytes=file_bytes,
            slice_limit=slice_limit,
        )

    found, lines = again()
    assert (found, lines) == again()
    if limits.window_records is not None:
        assert found.window_records is not None
        assert found.window_records <= limits.window_records
    if stated or file_bytes is None:
        assert found.slice_records <= limits.slice_records
    assert 1 <= found.groups <= limits.groups
    assert found.per_slice(P0) >= 1
    full = next((c for c in costs if c.full), None)
    if seconds is not None and full is not None and limits.window_records is None:
        assert found.max_records is not None
        assert full.records // STEP <= max(found.max_records, LEAST_RECORDS)
        assert found.max_records <= max(STEP * full.records, LEAST_RECORDS)


def played(
    limits: WindowLimits, lanes: int, per_record: float, idle: float, records: int, odd: float = 1
) -> WindowCost:
    """A machine that does a window: streams take slices in order, each costs 0.3 s and its records."""
    sizes = [min(limits.slice_records, records - at) for at in range(0, records, limits.slice_records)]
    ends = [0.0] * lanes
    for size in sizes:
        heapq.heappush(ends, heapq.heappop(ends) + 0.3 + size * per_record * odd)
    task = sum(0.3 + size * per_record * odd for size in sizes)
    return WindowCost(
        records=records,
        slices=len(sizes),
        task_ms=round(1000 * task),
        busy_ms=round(1000 * max(ends)),
        idle_ms=round(1000 * idle),
        files=len(sizes),
        bytes=60 * records,
        full=True,
    )


@pytest.mark.parametrize("lanes", [1, 2, 16])
@pytest.mark.parametrize("per_record", [2e-6, 1e-5, 5e-4])
@pytest.mark.parametrize(
    ("seconds", "idle"), [(2.5, 0.4), (5.0, 0.1), (5.0, 1.0), (30.0, 0.1), (30.0, 12.0), (300.0, 1.0), (300.0, 12.0)]
)
def test_windows_come_to_take_the_time_that_they_should(
    lanes: int, per_record: float, idle: float, seconds: float
) -> None:
    costs: list[WindowCost] = []
    for n in range(16):
        limits = of(costs, window_seconds=seconds)
        # Every fourth window is three times as slow as the others.
        costs = [played(limits, lanes, per_record, idle, limits.max_records or 0, 3 if n % 4 == 3 else 1), *costs][:5]
    walls = [(c.busy_ms + c.idle_ms) / 1000 for c in costs[1:4]]
    assert all(0.7 * seconds < wall < 1.3 * seconds for wall in walls), (walls, limits)


def wall(slices: Any, lanes: int, per_record: float = 1e-5) -> float:
    """Seconds of a machine whose streams take slices in order."""
    ends = [0.0] * lanes
    for s in slices:
        heapq.heappush(ends, heapq.heappop(ends) + 0.3 + len(s) * per_record)
    return max(ends)


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("goal", [None, 10.0, 20.0])
def test_a_hot_partition_takes_hardly_longer_than_an_even_spread(lanes: int, goal: float | None) -> None:
    partitions = [SourcePartition("orders", n, "topic-1") for n in range(8)]
    costs = [cost(task_ms=10_000, busy_ms=10_000 // lanes, slices=2 * lanes)] if goal else []
    walls, by_load = [], []
    for ends in ([250_000] * 8, [1_600_000, *[57_143] * 7]):
        whole = coverage([(p, 0, end) for p, end in zip(partitions, ends, strict=True)])
        limits, _ = sized(LIMITS, costs, missing=partitions, records=sum(ends), window_seconds=goal)
        chosen = choose(Missing(ranges={(ORDERS,): whole}), limits)
        walls.append(wall(cut_of(chosen, limits), lanes) / sum(map(len, cut_of(chosen, limits))))
        dealt = cut_of(chosen, replace(limits, groups=lanes, by_load=True))
        shares = [wall([s for s in dealt if s.group == g], 1) for g in range(lanes)]
        by_load.append(max(shares) / sum(map(len, dealt)))
    assert walls[1] <= 1.25 * walls[0]
    assert by_load[1] <= 1.25 * by_load[0]


def test_files_come_to_be_as_large_as_they_should() -> None:
    costs: list[WindowCost] = []
    for _ in range(4):
        limits = of(costs, file_bytes=128 << 20)
        costs = [played(limits, 2, 1e-5, 1, 10_000_000), *costs][:5]
    per_file = costs[0].records / costs[0].slices * 60
    assert 0.7 < per_file / (128 << 20) < 1.3
