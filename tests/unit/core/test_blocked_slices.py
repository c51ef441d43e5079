# SPDX-License-Identifier: Apache-2.0
"""Slices of several partitions behind a block: what can be read again is given up, the rest is kept and waits."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.blocks import blocked_slices, partitions_of_blocked_slices, without
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark, WindowLimits, choose, find_missing
from airflow_provider_lakecommit.core.planning.slicing import cut
from airflow_provider_lakecommit.core.planning.voiding import voidable_slices
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.core.state import LandingState
from tests.support.story import DEAD, ORDERS, P0, P1, P2, Ranges, Story, coverage, ledger

TANGLED: Ranges = ((P0, 0, 3), (P1, 10, 13))
STUCK: Ranges = ((P1, 0, 10),)
BEHIND: Ranges = ((P0, 3, 6), (P2, 0, 5))
BOTH = (ledger(ORDERS), ledger(DEAD))
BUDGET = Budget(max_records=9, max_ratio=1.0)


def marks(**starts: int) -> Mapping[SourcePartition, Watermark]:
    return {p: Watermark(start=starts.get(f"p{p.partition}", 0), stable=50, high=50) for p in (P0, P1, P2)}


def story(problem: str = "blocked", *reported: Ranges) -> Story:
    made = Story()
    made.opens("a", [TANGLED, STUCK, BEHIND], tables=(ORDERS, DEAD))
    made.reports("a", STUCK, **{problem: "boom"})
    for ranges in reported or (TANGLED,):
        made.reports("a", ranges)
    return made


def voided(landing_state: LandingState, **starts: int) -> set[str]:
    return set(voidable_slices(landing_state, marks(**starts)).values())


@pytest.mark.parametrize("problem", ["blocked", "failed"])
def test_what_can_be_read_again_is_given_up_so_that_its_other_partitions_go_on(problem: str) -> None:
    landing_state = story(problem).landing_state(*BOTH)
    assert voided(landing_state) == {f"{coverage(TANGLED)} waits for a blocked or failing range of {P1}"}
    after = without(landing_state, voidable_slices(landing_state, marks()))
    missing = find_missing(after, marks(), coverage([]))
    assert not coverage([(P0, 0, 3)]) - missing.coverage
    assert after.accepted == {ORDERS: (), DEAD: ()}


@pytest.mark.parametrize("starts", [{"p0": 1}, {"p1": 11}, {"p0": 50, "p1": 50}])
def test_what_the_source_has_no_more_is_kept(starts: dict[str, int]) -> None:
    landing_state = story().landing_state(*BOTH)
    assert voided(landing_state, **starts) == set()
    assert len(landing_state.accepted[ORDERS]) == 1


def test_of_a_partition_that_the_source_does_not_report_nothing_is_given_up() -> None:
    assert voidable_slices(story().landing_state(*BOTH), {}) == {}


def test_what_is_kept_is_published_when_the_block_is_over() -> None:
    made = story()
    made.opens("hand", log=Directives(raised=((coverage(STUCK), BUDGET),)))
    made.opens("b", [STUCK], tables=(ORDERS, DEAD))
    made.reports("b", STUCK)
    landing_state = made.landing_state(*BOTH)
    assert voided(landing_state, p0=3) == set()
    assert len(settle(landing_state.accepted[ORDERS], ledger(ORDERS).section).ready) == 2


def test_behind_what_is_kept_others_are_given_up_too() -> None:
    """Else a partition that has no trouble at all would wait with them."""
    landing_state = story("blocked", TANGLED, BEHIND).landing_state(*BOTH)
    assert voided(landing_state, p1=11) == {f"{coverage(BEHIND)} waits for a blocked or failing range of {P0}"}
    assert voided(landing_state) == {f"{coverage(TANGLED)} waits for a blocked or failing range of {P1}"}


def test_partitions_of_what_is_kept_share_no_slice_with_others() -> None:
    after = story("blocked", TANGLED).landing_state(*BOTH)
    assert partitions_of_blocked_slices(after) == {P0, P1}
    missing = find_missing(after, marks(), coverage([]))
    slices = cut(choose(missing, WindowLimits()), after, WindowLimits(), UUID(int=1))
    assert {tuple(p.partition for p in s.coverage.parts) for s in slices} == {(0,), (2,)}


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ([(P1, 10, 13)], "alone in its partition it keeps nobody waiting"),
        ([(P0, 0, 3), (P2, 0, 3)], "it has nothing of the partition"),
    ],
)
def test_other_slices_are_not_blocked_by_another(ranges: Ranges, why: str) -> None:
    made = Story()
    made.opens("a", [STUCK, ranges])
    made.reports("a", STUCK, blocked="boom")
    made.reports("a", ranges)
    assert list(blocked_slices(made.landing_state())) == [], why


def test_a_slice_before_the_block_is_not() -> None:
    made, before = Story(), [(P0, 0, 3), (P1, 0, 3)]
    made.opens("a", [before, [(P1, 3, 9)]])
    made.reports("a", [(P1, 3, 9)], blocked="boom")
    made.reports("a", before)
    assert list(blocked_slices(made.landing_state())) == []


def test_a_table_that_has_the_blocked_range_holds_nothing() -> None:
    has = ledger(ORDERS, covered=STUCK)
    assert len(list(blocked_slices(story().landing_state(*BOTH)))) == 2
    assert len(list(blocked_slices(story().landing_state(has, ledger(DEAD))))) == 1
    assert list(blocked_slices(story().landing_state(has))) == []
