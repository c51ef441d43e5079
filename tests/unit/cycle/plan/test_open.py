# SPDX-License-Identifier: Apache-2.0
"""Opening a cycle: one START per cycle whatever comes of it, planners that race, runs that come again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle, preview
from airflow_provider_lakecommit.cycle.plan.start import MAX_RACES
from airflow_provider_lakecommit.cycle.results import CycleTicket, Opened
from airflow_provider_lakecommit.exceptions import (
    CatalogError,
    ControlTopicError,
    LedgerError,
    SourceError,
    StorageError,
    TableError,
)
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from tests.fakes.kafka import FakeControl
from tests.fakes.session import CREATE, DATA, P0, P1, FakeLanding


def fence(control: FakeControl, times: int) -> None:
    """Another planner takes over the id of the next transactions of plans."""
    left = [times]

    def take_over(transactional_id: str) -> None:
        if transactional_id.endswith("-plan") and left[0]:
            left[0] -= 1
            control.writers[transactional_id] = object()

    control.before_send = take_over


def test_a_window_is_planned_reported_and_granted(landing: FakeLanding) -> None:
    opened = landing.open()
    assert [str(s) for s in opened.slices] == ["orders[0][0, 10)", "orders[1][0, 10)", "orders[0][10, 20)"]
    assert landing.kinds() == ["CycleOpened"]
    assert opened.plan.targets[0].table == "shop.rows"
    assert any("expires at an unknown time" in line for line in opened.explain)


def test_of_two_planners_the_later_one_keeps_what_the_earlier_did_not_claim(landing: FakeLanding) -> None:
    first = landing.open("a")
    landing.source.ends = {P0: 25, P1: 10}
    second = landing.open("b")
    assert [str(s) for s in second.slices] == ["orders[0][20, 25)"]
    assert (first.ticket.slot, second.ticket.slot) == (0, 1)


def test_a_run_that_comes_again_continues_its_cycle(landing: FakeLanding) -> None:
    first, again = landing.open(), landing.open(retry=True)
    assert landing.kinds() == ["CycleOpened"]
    assert (again.ticket, again.slices) == (first.ticket, first.slices)
    assert again.note == "continues the cycle that this run opened before"


def test_a_run_whose_cycle_is_over_opens_none_and_learns_what_is_missing(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: s.spans[0].partition == P0)
    landing.close(opened=opened)
    again = landing.open(retry=True)
    assert (again.finished, again.slices) == (True, ())
    assert [str(s) for s in again.lacking] == ["orders[1][0, 10)"]
    assert landing.kinds().count("CycleOpened") == 1


def test_a_planner_that_is_fenced_checks_again(landing: FakeLanding) -> None:
    fence(landing.control, 1)
    assert len(landing.open().slices) == 3
    assert landing.kinds() == ["CycleOpened"]
    assert landing.printed("another planner of this landing was faster; planning again")


def test_of_two_that_wish_for_one_slot_unseen_by_each_other_the_later_in_the_log_takes_another(
    landing: FakeLanding,
) -> None:
    landing.open("before")
    first: list[Opened] = []
    other = landing.connect()

    def overtake(_: str) -> None:
        landing.control.before_send = lambda _: None
        first.append(open_cycle(other, landing.run_identity("first")))

    landing.control.before_send = overtake
    second = landing.open("second")
    assert (first[0].ticket.slot, second.ticket.slot) == (1, 2)
    assert landing.open("second", retry=True).ticket == second.ticket


def test_a_cycle_reports_whose_ids_it_has_and_one_of_an_earlier_release_has_none(landing: FakeLanding) -> None:
    ids: list[str] = []
    landing.control.before_send = ids.append
    opened = landing.open()
    assert ids == ["lakecommit-rows-@test-live-0-plan"]
    assert CycleTicket.from_dict(opened.ticket.to_dict()) == opened.ticket
    before = {k: v for k, v in opened.ticket.to_dict().items() if k != "deployment"}
    landing.close(opened=replace(opened, ticket=CycleTicket.from_dict(before)))
    assert ids[-1] == "lakecommit-rows-live-0-commit"


def test_one_that_is_always_fenced_gives_up_by_name(landing: FakeLanding) -> None:
    fence(landing.control, MAX_RACES)
    with pytest.raises(ControlTopicError, match="LC6009"):
        landing.open()
    assert landing.kinds() == []


@pytest.mark.parametrize("there", [False, True], ids=["table to be made", "table there"])
def test_a_storage_that_is_not_to_be_written_fails_the_plan_by_name_and_opens_no_cycle(
    landing: FakeLanding, monkeypatch: pytest.MonkeyPatch, *, there: bool
) -> None:
    """Else the commit finds the catalog well and nothing to publish, and run after run ends green with no row."""
    if there:
        landing.session.tables.create(DATA, create_from_spec(CREATE)[0])

    def refuse(*_: object) -> None:
        raise OSError("AWS Error NETWORK_CONNECTION during PutObject operation: Could not connect to server")

    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "new_output", refuse)
        with pytest.raises(StorageError, match=r"shop\.rows.*NETWORK_CONNECTION.*(LC3030|LC3361)"):
            landing.open()
        assert landing.kinds() == []
        # As the commit task does that follows a plan which failed.
        with suppress(TableError):
            assert landing.close().published == ()
    assert len(landing.open("next").slices) == 3


def test_a_table_without_a_row_that_is_not_as_create_reports_now_may_be_dropped_and_is_recreated(
    landing: FakeLanding,
) -> None:
    """A misspelt column that was fixed in `create`: every record of the first run was rejected."""
    dropped = f"{DATA} has no rows yet: drop it, and the next run creates it as `create` states"
    misspelt = {"schema": [{"name": "idd", "type": "long", "required": True}]}
    other = landing.connect(create=misspelt)
    opened = open_cycle(other, landing.run_identity("first"))
    landing.report(opened, blocked="required column idd is missing")
    close_cycle(other, landing.run_identity("first"), opened.ticket)

    assert landing.open("second").slices == ()
    assert landing.printed("WARNING: shop.rows is not as `create` says")
    assert landing.printed(f"WARNING: {dropped}")
    landing.catalog.drop_table(DATA)
    third = landing.open("third")
    assert len(third.slices) == 3
    landing.report(third)
    assert landing.close("third", third).rows == 30

    landing.lines.clear()
    open_cycle(landing.connect(create=misspelt), landing.run_identity("fourth"))
    assert landing.printed("WARNING: shop.rows is not as `create` says")
    assert not landing.printed(dropped), "there are rows in it"
    audited = landing.connect(create=misspelt, publish={"checks": ["SELECT 1 WHERE true"]})
    open_cycle(audited, landing.run_identity("fifth"))
    table = landing.catalog.load_table(DATA)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    open_cycle(audited, landing.run_identity("sixth"))
    assert not landing.printed(dropped), "there are rows in it, of which main has none"


def test_a_table_that_is_dropped_between_plan_and_commit_is_reported_as_that(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)
    landing.catalog.drop_table(DATA)
    with pytest.raises(LedgerError, match="LC6015"):
        landing.close(opened=opened)


class TestCatalogAway:
    def test_the_cycle_opens_with_an_empty_plan(self, landing: FakeLanding) -> None:
        landing.open("before")
        landing.catalog.away = True
        opened = landing.open()
        assert (opened.slices, opened.plan.refused) == ((), "catalog away")
        assert landing.kinds() == ["CycleOpened", "CycleOpened"]

    def test_a_landing_that_never_reached_it_fails_at_its_plan(self, landing: FakeLanding) -> None:
        """A wrong address: its first plan was green, with a warning, and its commit was red."""
        landing.catalog.away = True
        for run in ("a", "b"):
            with pytest.raises(CatalogError, match="LC3361"):
                landing.open(run)
            # The commit of that run opens its cycle, so that the failure is counted, and learns no more.
            with pytest.raises(CatalogError):
                landing.close(run, None)
        landing.catalog.away = False
        assert len(landing.open("c").slices) == 3

    def test_a_cycle_that_was_opened_before_is_all_that_is_known(self, landing: FakeLanding) -> None:
        first = landing.open()
        landing.catalog.away = True
        again = landing.open(retry=True)
        assert again.slices == first.slices
        assert landing.printed("only the earlier plan of this run is known")

    def test_claims_of_the_dead_end_all_the_same(self, landing: FakeLanding) -> None:
        landing.open("dead")
        landing.catalog.away = True
        landing.open("b", release=lambda cycle: cycle.run == "dead")
        landing.catalog.away = False
        assert len(landing.open("c").slices) == 3


def test_a_source_that_lost_offsets_raises_and_opens_nothing(landing: FakeLanding) -> None:
    landing.cycle("a")
    before = landing.kinds()
    landing.source.ends = {P0: 60, P1: 60}
    landing.source.starts = {P0: 30}
    with pytest.raises(SourceError, match=r"^10.*orders\[0\] \[20, 30\).*LC1303"):
        landing.open("b")
    assert landing.kinds() == before


@pytest.mark.parametrize("plan", [FakeLanding.open, lambda landing: preview(landing.session)])
def test_a_check_from_before_another_run_landed_is_no_log_that_lost_records(
    landing: FakeLanding, plan: Callable[[FakeLanding], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = landing.source.watermarks()
    landing.source.ends[P0] += 10
    landing.cycle("other")
    landing.source.ends[P0] += 5
    reads = iter([before])
    read = landing.source.watermarks
    monkeypatch.setattr(landing.source, "watermarks", lambda **options: next(reads, None) or read(**options))
    assert [str(s.coverage) for s in plan(landing).slices] == ["orders[0] [30, 35)"]
    landing.source.ends[P0] = 29
    with pytest.raises(SourceError, match="LC1302"):
        landing.open("b")


def test_dead_processes_are_requested_once_each_and_their_slot_is_free(landing: FakeLanding) -> None:
    landing.open("dead")
    requests: list[str] = []

    def release(cycle: Cycle) -> bool:
        requests.append(cycle.run)
        return True

    opened = landing.open("b", release=release)
    assert requests == ["dead"]
    assert (len(opened.slices), opened.ticket.slot) == (3, 0)


def test_a_window_that_is_refused_opens_empty_and_reports_it(make_landing: Callable[..., FakeLanding]) -> None:
    landing = make_landing(slice_records=10, max_open_cycles=1)
    landing.open("a")
    landing.source.ends = {P0: 40, P1: 10}
    opened = landing.open("b")
    assert (opened.slices, opened.plan.refused) == ((), "open cycles")
    assert landing.printed("no window is planned: open cycles: 1 windows are under way")


def test_a_preview_is_what_would_be_planned_and_reports_and_makes_nothing(landing: FakeLanding) -> None:
    previewed = preview(landing.session)
    assert landing.kinds() == []
    assert landing.session.tables.find("shop.rows") is None
    assert [s.spans for s in previewed.slices] == [s.spans for s in landing.open().slices]
