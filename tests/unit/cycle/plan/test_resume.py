# SPDX-License-Identifier: Apache-2.0
"""Where a run goes on: which cycles the log has of it, and whether there is anything left to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_lakecommit.control.control_log import ControlLog
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.plan.resume import EarlierCycles, cycles_of, published_by
from airflow_provider_lakecommit.cycle.plan.start import cycle_of_ticket, find_cycle
from airflow_provider_lakecommit.cycle.session.landing_session import cycle_id_of
from tests.fakes.session import CREATE, DATA, P0, P1, FakeLanding
from tests.support.declared import changed_landing


def earlier(landing: FakeLanding, run: str = "a") -> EarlierCycles | None:
    return cycles_of(landing.session, landing.run_identity(run))


def found(landing: FakeLanding, run: str = "a") -> EarlierCycles:
    known = earlier(landing, run)
    assert known is not None
    return known


def test_a_run_that_the_log_does_not_know_begins_anew(landing: FakeLanding) -> None:
    landing.cycle("other")
    assert earlier(landing) is None
    assert find_cycle(landing.session, cycle_id_of(landing.session, landing.run_identity())) is None


def test_an_open_cycle_is_continued_under_its_number(landing: FakeLanding) -> None:
    landing.open()
    known = found(landing)
    assert (known.number, known.finished(None)) == (0, False)


def test_after_a_cycle_that_lacks_something_the_run_goes_on_with_the_next_number(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: s.spans[0].partition == P0)
    landing.close(opened=opened)
    known = found(landing)
    # It was not closed by its deadline, so what nobody reported may still come.
    assert known.newest.complete
    assert (known.number, known.finished(None)) == (1, False)


def test_a_run_with_all_of_its_work_done_is_finished(landing: FakeLanding) -> None:
    closed = landing.cycle()
    known = found(landing)
    assert (known.number, known.finished(None), known.voided) == (1, True, False)
    assert known.valid_through == closed.valid_through
    assert known.to_closed("shop.rows", ()).commit_id == closed.commit_id


def test_what_was_left_is_for_a_run_of_one_cycle_another_user(landing: FakeLanding) -> None:
    landing.session.landing = changed_landing(landing.session.landing, max_records=10)
    landing.cycle()
    known = found(landing)
    assert (known.finished(None), known.finished(1)) == (False, True)


def test_cycles_count_whatever_their_numbers_and_are_those_of_the_run_alone(landing: FakeLanding) -> None:
    landing.cycle("a")
    landing.cycle("other")
    landing.source.ends = {P0: 30, P1: 10}
    opened = open_cycle(landing.session, landing.run_identity("a", number=1))
    landing.report(opened)
    known = found(landing)
    assert [c.cycle.number for c in known.cycles] == [0, 1]
    assert known.number == 1
    # What an open cycle has published is said when it is closed.
    assert [p.rows for p in published_by(landing.session, known)] == [30]


def test_a_table_that_is_missing_keeps_no_retry_from_what_others_have(make_landing: Callable[..., FakeLanding]) -> None:
    others = "shop.others"
    landing = make_landing(route={"field": "kind", "tables": {"a": DATA, "b": others}, "create": {others: CREATE}})
    landing.cycle()
    landing.catalog.drop_table(others)
    known = cycles_of(landing.session, landing.run_identity())
    assert known is not None
    assert [p.table for p in published_by(landing.session, known)] == [DATA]


def test_a_cycle_that_its_log_has_forgotten_is_as_if_it_had_never_been(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.close(opened=opened)
    landing.control.cut(opened.ticket.partition, landing.control.read(opened.ticket.partition).end)
    assert cycle_of_ticket(landing.session, opened.ticket) is None
    assert earlier(landing) is None


def test_a_cycle_opened_anew_under_its_old_id_is_the_new_one(landing: FakeLanding) -> None:
    landing.cycle("a")
    landing.source.ends = {P0: 30, P1: 10}
    # No ledger needs the first cycle's part of the log after this one.
    landing.cycle("b")
    landing.source.ends = {P0: 40, P1: 10}
    landing.open("a")
    state = find_cycle(landing.session, cycle_id_of(landing.session, landing.run_identity()))
    assert state is not None
    assert [str(s) for s in state.granted] == ["orders[0][30, 40)"]
    assert not state.state.over


def test_a_cycle_that_was_given_up_reports_it_and_what_it_lacks(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.open("b", release=lambda cycle: cycle.run == "a")
    again = landing.open(retry=True)
    assert again.finished
    assert "was released by a later plan, because its run had ended" in again.note
    assert again.lacking == opened.slices


def test_a_run_is_searched_for_where_it_can_be_first_and_then_everywhere(
    landing: FakeLanding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry of a follow, whose topic holds thousands of cycles of earlier runs."""
    landing.cycle("before")
    landing.clock.passes(timedelta(hours=3))
    begun = landing.clock()
    landing.open()
    read: list[int | None] = []
    reading = landing.control.read

    def counted(partition: int, start: int | None = None, **options: Any) -> ControlLog:
        read.append(start)
        return reading(partition, start, **options)

    monkeypatch.setattr(landing.control, "read", counted)
    since = [start for start in (landing.control.first_since(p, begun) for p in range(3)) if start is not None]
    read.clear()
    known = cycles_of(landing.session, landing.run_identity(), begun)
    assert known is not None
    assert known.number == 0
    assert [start for start in read if start is not None] == since, "nothing that is older"

    # Its own START is older than it may be by Airflow's clock.
    assert cycles_of(landing.session, landing.run_identity(), begun + timedelta(hours=9)) == known
    assert cycles_of(landing.session, landing.run_identity("never"), begun) is None
