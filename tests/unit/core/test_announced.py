# SPDX-License-Identifier: Apache-2.0
"""What a log says is in a table: of that table, and not read again since."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core.log import CycleOpened, Entry, TablePublished, announced_in, rows_of
from airflow_provider_lakecommit.core.offsets import Coverage
from tests.support.story import EPOCH, ORDERS, P0, VOID_EPOCH, Ranges, Story, coverage, table_uuid

NOW, BEFORE = table_uuid(ORDERS), UUID(int=9)


class Announcements(Story):
    """A log in which publications say what, and for which table."""

    def lands(self, run: str, ranges: Ranges, *, epoch: UUID = EPOCH, uuid: UUID | None = NOW) -> None:
        self.opens(run, [ranges])
        opened = self.entries[-1]
        assert isinstance(opened, CycleOpened)
        targets = tuple(replace(t, epoch=epoch, uuid=uuid or NOW) for t in opened.plan.targets)
        self.entries[-1] = replace(opened, plan=replace(opened.plan, targets=targets))
        self.reports(run, ranges, epoch=epoch)
        self.publishes(run, token=len(self.entries))
        published = self.entries[-1]
        assert isinstance(published, TablePublished)
        self.entries[-1] = replace(published, coverage=coverage(ranges), uuid=uuid)

    def only_plans(self, run: str, ranges: Ranges, *, epoch: UUID) -> None:
        self.lands(run, ranges, epoch=epoch)
        del self.entries[-3:]

    def announced(self, uuid: UUID = NOW) -> Coverage:
        return announced_in(self.entries, ORDERS, uuid)


def test_only_what_was_published_in_this_very_table_counts() -> None:
    log = Announcements()
    log.lands("a", [(P0, 0, 70)], uuid=BEFORE)
    log.lands("b", [(P0, 0, 30)], epoch=VOID_EPOCH, uuid=NOW)
    assert log.announced() == coverage([(P0, 0, 30)])
    assert log.announced(BEFORE) == coverage([(P0, 0, 70)])


def test_of_a_table_that_the_log_does_not_know_the_newest_one_counts() -> None:
    log = Announcements()
    log.lands("a", [(P0, 0, 70)], uuid=BEFORE)
    log.lands("b", [(P0, 0, 30)], epoch=VOID_EPOCH, uuid=NOW)
    assert log.announced(UUID(int=77)) == coverage([(P0, 0, 30)])


def test_what_a_later_epoch_plans_again_was_rolled_back() -> None:
    log = Announcements()
    log.lands("a", [(P0, 0, 50)])
    log.lands("b", [(P0, 50, 100)])
    log.only_plans("c", [(P0, 50, 100)], epoch=VOID_EPOCH)
    assert log.announced() == coverage([(P0, 0, 50)])
    log.lands("d", [(P0, 50, 80)], epoch=VOID_EPOCH)
    assert log.announced() == coverage([(P0, 0, 80)])


def test_a_late_plan_of_an_epoch_that_is_over_reports_nothing() -> None:
    log = Announcements()
    log.only_plans("a", [(P0, 0, 50)], epoch=EPOCH)
    log.lands("b", [(P0, 0, 50)], epoch=VOID_EPOCH)
    log.only_plans("late", [(P0, 0, 50)], epoch=EPOCH)
    assert log.announced() == coverage([(P0, 0, 50)])


def test_events_without_a_table_id_count_as_of_the_table() -> None:
    log = Announcements()
    log.lands("a", [(P0, 0, 70)], uuid=None)
    assert log.announced() == coverage([(P0, 0, 70)])


def test_rows_are_those_of_what_is_reported_each_once() -> None:
    log = Announcements()
    log.lands("a", [(P0, 0, 50)])
    log.reports("a", [(P0, 0, 50)])
    log.lands("b", [(P0, 50, 100)])
    entries: list[Entry] = log.entries
    assert rows_of(entries, ORDERS, coverage([(P0, 0, 100)])) == 100
    assert rows_of(entries, ORDERS, coverage([(P0, 0, 50)])) == 50
