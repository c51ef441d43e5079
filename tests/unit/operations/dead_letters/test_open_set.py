# SPDX-License-Identifier: Apache-2.0
"""Which dead letters are open, by what the two ledgers have of the reading that rejected them."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import DeadLetter
from airflow_provider_lakecommit.operations.dead_letters.open_set import OpenSet, Readings, State


def has(*ranges: tuple[int, int], topic_id: str = "a") -> Coverage:
    partition = SourcePartition(topic="orders", topic_id=topic_id, partition=0)
    return Coverage({partition: RangeSet.of(*ranges)})


def letter(offset: int, generation: int | None) -> DeadLetter:
    return DeadLetter({"topic": "orders", "partition": 0, "offset": offset, "generation": generation})


NONE = Coverage()
CASES: dict[str, tuple[Readings, Readings, Coverage, DeadLetter, State]] = {
    "both have it": ({1: has((0, 9))}, {1: has((0, 9))}, NONE, letter(3, 1), State.OPEN),
    "it was replayed": ({1: has((0, 9))}, {1: has((0, 9))}, has((3, 4)), letter(3, 1), State.REPLAYED),
    "another reading landed it since": ({2: has((0, 9))}, {2: has((0, 9))}, NONE, letter(3, 1), State.REPLAYED),
    "the dead letters are in a former table": ({2: has((0, 9))}, {1: has((0, 9))}, NONE, letter(3, 1), State.REPLAYED),
    # The later reading of a topic that was made anew has not come as far as the former one.
    "neither has its reading any more": ({2: has((0, 2))}, {2: has((0, 2))}, NONE, letter(3, 1), State.REPLAYED),
    "its range was taken out": ({1: has((5, 9))}, {1: has((5, 9))}, NONE, letter(3, 1), State.WAITS),
    "the rows do not come as far yet": ({1: has((0, 2))}, {1: has((0, 9))}, NONE, letter(3, 1), State.WAITS),
    "a lane lands it anew": ({1: has((0, 9))}, {1: has((0, 9)), 2: has((0, 9))}, NONE, letter(3, 2), State.WAITS),
    "its reading is not known": ({None: has((0, 9))}, {None: has((0, 9))}, NONE, letter(3, None), State.OPEN),
    "its reading is not known, nobody has it": ({1: has((0, 2))}, {1: has((0, 2))}, NONE, letter(3, None), State.WAITS),
    "the ledger does not know its reading": ({None: has((0, 2))}, {None: has((0, 9))}, NONE, letter(3, 1), State.WAITS),
    "its reading is not known, of two topics": (
        {None: has((0, 9)) | has((0, 9), topic_id="b")},
        {None: has((0, 9)) | has((0, 9), topic_id="b")},
        NONE,
        letter(3, None),
        State.UNSURE,
    ),
}


@pytest.mark.parametrize(("data", "dead", "closed", "letter", "state"), CASES.values(), ids=CASES)
def test_the_state_of_a_dead_letter(
    data: Readings, dead: Readings, closed: Coverage, letter: DeadLetter, state: State
) -> None:
    one = OpenSet(data, dead, closed, NONE)
    assert one.state(letter) is state
    assert one.state(letter) is State.TWICE


@pytest.mark.parametrize(
    ("dead", "passed", "state"),
    [
        ({1: has((0, 9))}, has((0, 9)), State.OPEN),
        ({1: has((0, 9))}, NONE, State.REPLAYED),
        ({1: has((0, 9)), 2: has((0, 9))}, has((0, 9)), State.REPLAYED),
        ({2: has((0, 9))}, has((0, 9)), State.REPLAYED),
    ],
    ids=["no row again", "a row", "both tables read it again", "its rejects are gone"],
)
def test_a_reject_that_the_data_table_alone_has_read_again(dead: Readings, passed: Coverage, state: State) -> None:
    assert OpenSet({2: has((0, 9))}, dead, NONE, passed).state(letter(3, 1)) is state


@pytest.mark.parametrize(("passed", "state"), [(has((0, 9)), State.OPEN), (NONE, State.WAITS)], ids=["no row", "a row"])
def test_a_reject_of_a_reading_that_the_data_table_alone_lost_by_a_rollback(passed: Coverage, state: State) -> None:
    assert OpenSet({0: has((0, 9))}, {1: has((0, 9))}, NONE, passed).state(letter(3, 1)) is state
