# SPDX-License-Identifier: Apache-2.0
"""Which of what was read of a log its leader has to confirm, and what a log that differs means for the tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.planning.restart import StatedOffsets, restart
from airflow_provider_lakecommit.core.planning.truncation import (
    Truncation,
    first_offsets_of,
    in_doubt,
    known_positions,
    lost_rows,
    newest_positions,
    outdated,
)
from airflow_provider_lakecommit.core.state import LandingState
from tests.support.story import ORDERS, P0, P1, Story, coverage, ledger

DEAD = "shop.dead"


def at(offset: int, epoch: int) -> ReadPosition:
    return ReadPosition(offset=offset, leader_epoch=epoch)


def mark(epoch: int | None, high: int = 100) -> Watermark:
    return Watermark(start=0, stable=high, high=high, leader_epoch=epoch)


@pytest.mark.parametrize("epoch", [3, None], ids=["the same leader", "no epochs"])
def test_what_needs_no_decision_of_the_leader(epoch: int | None) -> None:
    assert in_doubt([(P0, at(10, 3))], {P0: mark(epoch)}) == []


@pytest.mark.parametrize("epoch", [4, 2], ids=["a later leader", "an older log"])
def test_another_leader_has_to_confirm_what_was_read(epoch: int) -> None:
    assert in_doubt([(P0, at(10, 3))], {P0: mark(epoch)}) == [(P0, at(10, 3))]


def test_of_each_epoch_the_furthest_position_is_enough() -> None:
    places = [(P0, at(10, 3)), (P0, at(20, 3)), (P0, at(30, 4)), (P0, at(40, 5)), (P1, at(7, 0))]
    assert in_doubt(places, {P0: mark(5), P1: mark(1)}) == [(P0, at(20, 3)), (P0, at(30, 4)), (P1, at(7, 0))]


def test_a_partition_that_is_not_read_is_not_requested() -> None:
    removed = SourcePartition("orders", 0, "made anew since")
    assert in_doubt([(removed, at(10, 3))], {P0: mark(5)}) == []


def test_readings_under_several_epochs_may_be_of_several_logs() -> None:
    assert outdated([(P0, at(10, 3)), (P0, at(20, 3)), (P1, at(5, 0))]) == []
    places = [(P0, at(10, 3)), (P0, at(20, 3)), (P0, at(30, 4)), (P0, at(40, 5)), (P1, at(5, 0))]
    assert outdated(places) == [(P0, at(20, 3)), (P0, at(30, 4))]


def test_a_truncation_concerns_what_was_read_of_that_epoch_and_before_it_behind_its_end() -> None:
    found = Truncation(partition=P0, position=at(50, 3), end=40)
    assert [found.concerns(P0, at(o, e)) for o, e in ((50, 3), (45, 2), (40, 3), (60, 4))] == [True, True, False, False]
    assert not found.concerns(P1, at(50, 3))
    assert replace(found, end=None).concerns(P0, at(1, 1))


def known() -> LandingState:
    data = ledger(ORDERS, [(P0, 0, 50), (P1, 0, 10)])
    data = replace(data, section=replace(data.section, positions={P0: at(50, 1)}))
    dead = ledger(DEAD, [(P0, 0, 30)])
    return Story().landing_state(data, replace(dead, section=replace(dead.section, positions={P0: at(30, 0)})))


def test_positions_are_those_of_all_tables() -> None:
    assert known_positions(known()) == [(P0, at(50, 1)), (P0, at(30, 0))]


def test_the_newest_position_of_a_partition_stays() -> None:
    assert newest_positions([(P0, at(50, 1)), (P0, at(30, 0)), (P1, at(1, 1))]) == {P0: at(50, 1), P1: at(1, 1)}


def test_a_log_differs_from_its_first_truncation_on_or_from_its_start_where_it_is_unknown() -> None:
    found = [
        Truncation(partition=P0, position=at(50, 1), end=40),
        Truncation(partition=P0, position=at(30, 0), end=25),
        Truncation(partition=P1, position=at(10, 9), end=None),
    ]
    assert first_offsets_of(found) == {P0: 25, P1: 0}


def test_rows_that_the_log_no_longer_has_are_listed_by_table() -> None:
    assert lost_rows(known(), {P0: 25}) == {ORDERS: coverage([(P0, 25, 50)]), DEAD: coverage([(P0, 25, 30)])}
    assert lost_rows(known(), {P0: 40}) == {ORDERS: coverage([(P0, 40, 50)])}


@pytest.mark.parametrize(
    ("stated", "back", "differs", "goes_on", "given_up"),
    [
        (40, True, 40, 40, []),
        (45, True, 40, 45, [(P0, 40, 45)]),
        (10, True, 40, 40, []),
        (0, False, 40, 40, []),
        (50, True, 40, 50, [(P0, 40, 50)]),
        (70, True, 40, 70, [(P0, 40, 70)]),
        (None, True, 40, 50, []),
        (20, True, 0, 20, [(P0, 0, 20)]),
        (0, False, 0, 50, [(P0, 0, 50)]),
        (10, True, None, 50, []),
    ],
)
def test_a_decision_leads_back_to_where_the_log_differs_and_no_further(
    stated: int | None, back: bool, differs: int | None, goes_on: int, given_up: list[tuple[SourcePartition, int, int]]
) -> None:
    section = ledger(ORDERS, [(P0, 0, 50)], starts={P0: 0}).section
    offsets = StatedOffsets(offsets={} if stated is None else {P0: stated}, back=back)
    diverged = {} if differs is None else {P0: differs}
    found = restart(offsets, {P0: mark(4)}, section, passed=coverage([]), firsts={}, diverged=diverged)
    assert found.covered[P0].reach(0) == goes_on
    assert found.back == coverage([(P0, goes_on, 50)] if goes_on < 50 else [])
    assert found.given_up == coverage(given_up)
