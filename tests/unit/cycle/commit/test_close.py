# SPDX-License-Identifier: Apache-2.0
"""Closing a cycle: what is published and said, what a crash left, and that a failure is evidence and no COMPLETE."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_provider_lakecommit.core.log import CycleClosed, TablePublished
from airflow_provider_lakecommit.exceptions import CatalogError, ControlTopicError
from tests.fakes.catalog import Fault
from tests.fakes.session import P0, P1, FakeLanding


def test_what_is_settled_is_published_announced_and_then_the_cycle_is_complete(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)
    closed = landing.close(opened=opened)
    assert (closed.rows, closed.missing, closed.waiting, closed.reason) == (30, (), (), None)
    assert closed.valid_through == opened.plan.requested_at
    assert landing.kinds()[-2:] == ["TablePublished", "CycleClosed"]


def test_a_slice_behind_a_missing_one_waits_and_the_missing_one_is_named(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: s.spans[0].range.start == 10)
    closed = landing.close(opened=opened)
    assert (closed.published, closed.valid_through) == ((), None)
    assert closed.missing == ("orders[0][0, 10)", "orders[1][0, 10)")
    assert len(closed.waiting) == 1
    again = landing.open("b")
    assert [str(s) for s in again.slices] == ["orders[0][0, 10)", "orders[1][0, 10)"]
    landing.report(again)
    assert landing.close("b", again).rows == 30


def test_with_nothing_to_publish_the_reason_is_that_of_the_plan(landing: FakeLanding) -> None:
    landing.source.ends = {P0: 0, P1: 0}
    opened = landing.open()
    closed = landing.close(opened=opened)
    assert (closed.reason, closed.valid_through) == (opened.plan.reason, opened.plan.requested_at)


def test_a_catalog_that_is_away_is_evidence_and_no_complete(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)
    landing.catalog.away = True
    with pytest.raises(CatalogError):
        landing.close(opened=opened)
    assert landing.kinds()[-1] == "CommitFailed"
    landing.catalog.away = False
    assert landing.close(opened=opened, retry=True).rows == 30


def test_evidence_that_cannot_be_sent_hides_no_failure(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.catalog.away = True

    def away(_: str) -> None:
        raise ControlTopicError("LC9999", "brokers away")

    landing.control.before_send = away
    with pytest.raises(CatalogError):
        landing.close(opened=opened)


def test_a_snapshot_whose_announcement_a_crash_swallowed_is_announced_by_the_next_run(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)

    def die(_: str) -> None:
        raise SystemExit(9)

    landing.control.before_send = die
    with pytest.raises(SystemExit):
        landing.close(opened=opened)
    landing.control.before_send = lambda _: None
    assert "TablePublished" not in landing.kinds()
    later = landing.open("b")
    assert later.slices == ()
    closed = landing.close("b", later)
    assert closed.rows == 30
    assert closed.published[0].commit_id == opened.ticket.commit_id
    entries = landing.session.read_state(()).entries
    assert len([e for e in entries if isinstance(e, TablePublished)]) == 1


def test_an_answer_that_was_lost_doubles_nothing(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)
    landing.catalog.faults.append(Fault.LOST_ANSWER)
    assert landing.close(opened=opened).rows == 30
    assert len([s for s in landing.snapshots() if int(s.get("added-records", 0))]) == 1


class TestFinishedBefore:
    def test_it_does_no_work_and_reports_where_its_window_is(self, landing: FakeLanding) -> None:
        opened = landing.open()
        landing.report(opened)
        landing.close(opened=opened)
        before = landing.kinds()
        again = landing.close(opened=opened, retry=True)
        assert (again.finished, again.published, again.missing) == (True, (), ())
        assert "all of it is landed" in again.note
        assert landing.kinds() == before

    def test_its_unreported_slices_are_reported(self, landing: FakeLanding) -> None:
        opened = landing.open()
        landing.report(opened)
        first = landing.close(opened=opened)
        again = landing.close(opened=opened, retry=True, in_events=())
        assert (again.finished, again.published, again.valid_through) == (False, first.published, first.valid_through)

    def test_slices_of_which_there_is_an_event_are_not_reported_again(self, landing: FakeLanding) -> None:
        opened = landing.open()
        landing.report(opened)
        known = [p.snapshot_id for p in landing.close(opened=opened).published]
        again = landing.close(opened=opened, retry=True, in_events=known)
        assert (again.finished, again.published) == (True, ())


def test_a_plan_task_that_never_opened_its_cycle_has_it_opened_empty(landing: FakeLanding) -> None:
    landing.cycle("a")
    closed = landing.close("b", None)
    assert closed.reason == "the plan task did not open this cycle"
    assert landing.kinds()[-2:] == ["CycleOpened", "CycleClosed"]


def test_one_failing_table_delays_no_other_and_is_not_hidden(make_landing: Callable[..., FakeLanding]) -> None:
    landing = make_landing(dead_letter_table="shop.dead", slice_records=10)
    opened = landing.open()
    landing.report(opened)
    landing.catalog.drop_table("shop.dead")
    with pytest.raises(Exception, match="LC6013"):
        landing.close(opened=opened)
    assert "TablePublished" in landing.kinds()
    assert not any(isinstance(e, CycleClosed) for e in landing.session.read_state(()).entries)
