# SPDX-License-Identifier: Apache-2.0
"""Slices that wait to be published and were read under several leader epochs: whose log is asked, and whose is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from airflow_provider_lakecommit.core.log import SliceReported
from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.state import LandingState
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.prepare.truncation import truncated
from airflow_provider_lakecommit.session.landing_session import LandingSession
from tests.fakes.kafka import FakeSource
from tests.fakes.session import DEAD, P1, FakeLanding
from tests.support.story import ORDERS, P0, Story

ANEW = SourcePartition("orders", 0, "made anew")


def session(source: FakeSource) -> LandingSession:
    return cast(LandingSession, SimpleNamespace(source=source))


def read_under(*epochs: int) -> LandingState:
    """A slice of ten offsets for each epoch, none of them published."""
    story = Story()
    story.opens("a", [[(P0, 10 * n, 10 * n + 10)] for n in range(len(epochs))])
    for n, epoch in enumerate(epochs):
        story.reports("a", [(P0, 10 * n, 10 * n + 10)])
        last = story.entries[-1]
        assert isinstance(last, SliceReported)
        (span,) = last.report.spans
        read = replace(span, position=ReadPosition(offset=10 * n + 10, leader_epoch=epoch))
        story.entries[-1] = replace(last, report=replace(last.report, spans=(read,)))
    return story.landing_state()


def test_what_was_read_of_a_log_that_is_another_one_is_voided() -> None:
    state = read_under(0, 1)
    source = FakeSource({P0: 20}, epochs={P0: [0, 5]})
    first, _ = state.accepted[ORDERS]
    assert list(truncated(session(source), state, ORDERS)) == [first.report.attempt]


def test_what_was_read_of_a_topic_that_is_gone_or_made_anew_is_kept() -> None:
    state = read_under(3, 4)
    assert truncated(session(FakeSource({ANEW: 5})), state, ORDERS) == {}
    assert truncated(session(FakeSource({}, missing=("orders",))), state, ORDERS) == {}


def test_the_way_on_passes_over_nothing_that_a_table_still_lacks(tmp_path: Path) -> None:
    """Here what is reported and not published lies across the place where the log became another one. A dead-letter
    table that has passed all of it holds nothing back.
    """
    landing = FakeLanding(tmp_path, {"dead_letter_table": DEAD}, leader_epoch=0)
    landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("b"))
    landing.source.epochs = {P0: [0, 35], P1: [0]}
    with pytest.raises(SourceError, match=r"another log from offset 35 on .*--from orders:0=20` goes on"):
        landing.open("c")
