# SPDX-License-Identifier: Apache-2.0
"""Where a landing stands, before its first cycle and in the middle of one; nothing is written."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_lakecommit.core.headroom import Retention
from airflow_provider_lakecommit.cycle.status import read_status, to_dict
from airflow_provider_lakecommit.exceptions import ControlTopicError
from tests.fakes.session import P0, P1, FakeLanding


def test_before_the_first_cycle_nothing_has_to_be_there(landing: FakeLanding) -> None:
    landing.control.away = ControlTopicError("there is no such topic")
    status = read_status(landing.session)
    assert [(t.condition, t.reason) for t in status.tables] == [("missing", "there is no such table yet")]
    assert (status.lag, status.valid_through, status.cycles) == (30, None, ())


def test_once_there_is_a_ledger_a_log_that_is_away_is_an_error(landing: FakeLanding) -> None:
    landing.cycle()
    landing.control.away = ControlTopicError("brokers away")
    with pytest.raises(ControlTopicError):
        read_status(landing.session)


def test_what_waits_what_is_open_and_how_far_all_is(landing: FakeLanding) -> None:
    closed = landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("b"), lambda s: s.spans[0].range.start == 30)
    before = landing.kinds()
    status = read_status(landing.session)
    assert status.valid_through == closed.valid_through
    assert (status.tables[0].pending_slices, status.tables[0].pending_bytes, len(status.tables[0].waiting)) == (
        1,
        100,
        1,
    )
    assert [(p.landed, p.lag, p.kept) for p in status.partitions] == [(20, 20, 20), (10, 0, 10)]
    (cycle,) = to_dict(status)["cycles"]
    assert (cycle["run"], cycle["live"], cycle["unfinished"]) == ("b", True, 1)
    assert landing.kinds() == before


def test_a_claim_that_has_ended_is_open_and_not_live(landing: FakeLanding) -> None:
    landing.open()
    landing.clock.passes(timedelta(days=1))
    (cycle,) = to_dict(read_status(landing.session))["cycles"]
    assert cycle["live"] is False


def test_unread_offsets_that_may_expire_are_warned_of(landing: FakeLanding) -> None:
    landing.open()
    landing.source.kept = {"orders": Retention(time=timedelta(minutes=30), bytes=None)}
    # All records are older than any time that is asked for.
    status = read_status(landing.session)
    assert len(status.warnings) == 2
    assert "land more often, or raise retention.ms of orders" in status.warnings[0]
