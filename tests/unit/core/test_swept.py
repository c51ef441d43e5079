# SPDX-License-Identifier: Apache-2.0
"""A report of an attempt that the log calls void before it is never taken, whoever reads; one in front of that is."""

from __future__ import annotations

from uuid import UUID

from tests.support.story import ORDERS, P0, Story

NEXT = UUID(int=(1 << 64) + 1)
"""The attempt that a story's first report is of."""


def test_a_report_behind_the_decision_is_not_taken_and_its_range_stays_free() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    story.voids(NEXT)
    assert story.reports("a", [(P0, 0, 10)]) == NEXT
    state = story.landing_state()
    assert state.accepted[ORDERS] == ()
    assert [reason for _, reason in state.redundant] == ["its files were swept before it was reported"]
    assert state.cycles[story.id("a")].unfinished
    story.reports("a", [(P0, 0, 10)])
    assert len(story.landing_state().accepted[ORDERS]) == 1


def test_a_report_in_front_of_the_decision_is_taken() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    attempt = story.reports("a", [(P0, 0, 10)])
    story.voids(attempt)
    assert [a.report.attempt for a in story.landing_state().accepted[ORDERS]] == [attempt]


def test_a_reader_that_begins_behind_the_decision_does_not_take_it_either() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    story.voids(NEXT)
    after = story.offset
    story.reports("a", [(P0, 0, 10)])
    assert story.landing_state(since=after).accepted[ORDERS] == ()
