# SPDX-License-Identifier: Apache-2.0
"""Where a landing goes on after a sink: by its consumer group and its events, which must agree."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.operations.kafka_connect.sink_offsets import By, SinkProgress, sink_offsets

P0 = SourcePartition("orders", 0, "id")
MARK = Watermark(start=5, stable=100, high=100)
PLACE = ("orders", 0)


def progress(offset: int | None, announced: int | None, least: int | None = None) -> SinkProgress:
    def at(n: int | None) -> dict[tuple[str, int], int]:
        return {} if n is None else {PLACE: n}

    return SinkProgress(offsets=at(offset), announced=at(announced), least=at(announced if least is None else least))


def problems(*arguments: Any, **options: Any) -> tuple[str, ...]:
    return sink_offsets(*arguments, **options)[1]


@pytest.mark.parametrize(
    ("offset", "announced", "least", "end"),
    [
        (40, 40, None, 40),
        (40, None, None, 40),
        (None, None, None, 5),
        (40, 50, 30, 40),
        (50, 50, 40, 50),
        (3, 3, None, 3),
    ],
    ids=[
        "both agree",
        "the log has forgotten",
        "it read nothing",
        "between two looks",
        "at the newer",
        "below the log",
    ],
)
def test_where_it_goes_on(offset: int | None, announced: int | None, least: int | None, end: int) -> None:
    found = sink_offsets(progress(offset, announced, least), {P0: MARK})
    assert found == ({P0: end}, ())


@pytest.mark.parametrize(
    ("offset", "announced", "message"),
    [
        (30, 40, "its offsets were reset; 10 offsets from 30 on are in the table"),
        (50, 40, "its offsets were reset; 10 offsets from 40 on are unread"),
        (None, 40, "has no offset"),
        (101, 101, "the partition ends at 100: the topic was recreated"),
    ],
)
def test_what_cannot_be_known_is_a_problem(offset: int | None, announced: int, message: str) -> None:
    (problem,) = problems(progress(offset, announced), {P0: MARK})
    assert message in problem
    assert problem.startswith("orders[0]: ")


@pytest.mark.parametrize(("by", "end"), [(By.OFFSETS, 30), (By.ANNOUNCED, 40)])
def test_a_user_states_whose_decision_holds(by: By, end: int) -> None:
    found = sink_offsets(progress(30, 40), {P0: MARK}, by=by)
    assert found == ({P0: end}, ())


def test_an_offset_at_which_a_landings_turn_ended_is_no_reset() -> None:
    assert not problems(progress(60, 40), {P0: MARK}, known={PLACE: 60})
    assert problems(progress(61, 40), {P0: MARK}, known={PLACE: 60})


def test_a_partition_of_a_topic_before_the_turn_is_of_no_concern() -> None:
    assert not problems(progress(40, 40), {}, known={("orders", 1): 5})
    assert problems(progress(40, 40), {}, known={PLACE: 5})


def test_a_partition_that_is_missing_is_named() -> None:
    (problem,) = problems(progress(40, 40), {})
    assert "recreated" in problem


def test_a_sink_that_begins_at_the_end_reports_nothing_of_a_partition_it_never_read() -> None:
    assert problems(progress(None, None), {P0: MARK}, earliest=False)
    empty = Watermark(start=7, stable=7, high=7)
    assert not problems(progress(None, None), {P0: empty}, earliest=False)


def test_where_it_has_read() -> None:
    assert progress(2, None).read == progress(2, 7).read == {PLACE: 2}
    assert progress(None, 7).read == {PLACE: 7}
    assert not progress(None, None).read
