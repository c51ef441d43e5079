# SPDX-License-Identifier: Apache-2.0
"""The verdict: one story for each, and for each false alarm that it must not raise."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.stall.group_state import EventKind, ObservedEvent, StallRules, State
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.verdict import Diagnosis, Verdict, evaluate

INTERVAL = 300.0
ALL = frozenset(("orders", n) for n in range(4))
FIRST, SECOND = frozenset({("orders", 0), ("orders", 1)}), frozenset({("orders", 2), ("orders", 3)})
OLD, NEW = b"uuid-of-the-old-table", b"uuid-of-the-new-table"
CALM = (Verdict.HEALTHY, Verdict.UNKNOWN)


class Sink:
    """A connector with two tasks, and an observer who hears it. Every verdict along the way is kept."""

    def __init__(self, **rules: Any) -> None:
        self.rules = StallRules(**rules)
        self.state = State()
        self.now = 1e9
        self.key = b"coordinator"
        self.number = 0
        self.heard: list[Verdict] = []

    @property
    def finding(self) -> Diagnosis:
        return evaluate(self.state, self.now, self.rules)

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict

    @property
    def commit(self) -> bytes:
        return self.number.to_bytes(16, "big")

    def log(self, kind: EventKind, **what: Any) -> None:
        what.setdefault("sender", self.key)
        event = ObservedEvent(kind=kind, at=what.pop("at", self.now), commit=what.pop("commit", self.commit), **what)
        self.state = observe(self.state, event, self.rules)
        self.heard.append(self.verdict)

    def start(self, **what: Any) -> bytes:
        self.number += 1
        self.log(EventKind.START, **what)
        return self.commit

    def answer(
        self,
        *partitions: frozenset[tuple[str, int]],
        files: int = 1,
        table: str = "shop.orders",
        table_id: bytes | None = OLD,
        timed: bool = True,
        **what: Any,
    ) -> None:
        for own in partitions or (FIRST, SECOND):
            if files:
                self.log(EventKind.WRITTEN, table=table, table_id=table_id, files=files, sender=b"worker", **what)
            self.log(EventKind.ANSWERED, partitions=own, timed=timed, sender=b"worker", **what)

    def publish(self, table: str = "shop.orders", table_id: bytes | None = OLD, **what: Any) -> None:
        self.log(EventKind.PUBLISHED, table=table, table_id=table_id, **what)

    def complete(self, *, through: bool = True, **what: Any) -> None:
        self.log(EventKind.COMPLETED, valid_through=self.now if through else None, **what)

    def wait(self, intervals: float = 1.0) -> None:
        self.now += intervals * INTERVAL
        self.heard.append(self.verdict)

    def cycles(self, number: int = 1) -> Sink:
        for _ in range(number):
            self.start()
            self.answer()
            self.publish()
            self.complete()
            self.wait()
        return self

    def half_a_cycle(self) -> None:
        """One that only the first task answers: it is committed without the other one."""
        self.start()
        self.answer(FIRST)
        self.publish()
        self.complete(through=False)


def healthy(**rules: Any) -> Sink:
    return Sink(**rules).cycles(5)


# -- unknown and healthy ----------------------------------------------------------------------------------------------


def test_nothing_was_observed() -> None:
    assert evaluate(State(), 0.0, StallRules()).verdict is Verdict.UNKNOWN


def test_a_first_cycle_under_way_reports_nothing() -> None:
    sink = Sink()
    sink.start()
    sink.answer()
    assert sink.verdict is Verdict.UNKNOWN
    assert "COMMIT_COMPLETE" in sink.finding.clears
    sink.publish()
    sink.complete()
    assert sink.verdict is Verdict.HEALTHY


def test_complete_cycles_are_healthy() -> None:
    assert set(healthy().heard) <= set(CALM)


# -- stalled and slowing ----------------------------------------------------------------------------------------------


def test_cycles_that_do_not_complete_stall_and_one_complete_clears() -> None:
    sink, heard = healthy(), []
    for _ in range(5):
        sink.start()
        sink.answer()
        heard.append(sink.verdict)
        sink.wait()
    assert heard == [Verdict.HEALTHY, Verdict.SLOWING, Verdict.STALLED, Verdict.STALLED, Verdict.STALLED]
    assert sink.finding.evidence["cycles"] == 5
    assert sink.finding.evidence["waiting_files"] == 10
    sink.publish()
    assert sink.verdict is Verdict.STALLED
    sink.complete()
    assert sink.verdict is Verdict.HEALTHY


@pytest.mark.parametrize("limit", [2, 3, 10])
def test_the_number_of_cycles_can_be_chosen(limit: int) -> None:
    sink = healthy(stalled_cycles=limit)
    for number in range(1, limit + 30):
        sink.start()
        assert (sink.verdict is Verdict.STALLED) == (number >= limit)
        sink.wait()


def test_only_the_rule_of_cycles_sees_nothing_else() -> None:
    sink = healthy(only_cycles=True)
    sink.start()
    sink.wait(100)
    assert sink.verdict is Verdict.HEALTHY
    sink.start(sender=b"another")
    assert sink.verdict is Verdict.SLOWING
    sink.start(sender=b"a third")
    assert sink.verdict is Verdict.STALLED


def test_a_cycle_that_a_rebalance_cuts_off_is_no_failure() -> None:
    sink = healthy()
    for key in (b"second", b"third", b"fourth"):
        sink.start()
        sink.answer(FIRST)
        sink.wait()
        sink.key = key
    sink.cycles(3)
    assert set(sink.heard) <= set(CALM)


def test_a_cycle_that_a_rebalance_cuts_off_is_none_with_a_task_that_was_heard_too_late_before() -> None:
    sink = Sink()
    late = sink.half_a_cycle()
    sink.answer(SECOND, commit=late)
    sink.wait()
    sink.start()
    sink.answer(FIRST)
    sink.key = b"the next coordinator"
    sink.start()
    assert set(sink.heard) <= set(CALM)


def test_a_coordinator_that_dies_of_its_commit_is_a_failure() -> None:
    sink = healthy()
    for key in (b"second", b"third"):
        sink.start()
        sink.answer()
        sink.wait()
        sink.key = key
    sink.start()
    assert sink.verdict is Verdict.STALLED


def test_coordinators_that_are_all_cut_off_stall_in_the_end() -> None:
    sink = healthy()
    for number in range(6):
        sink.key = f"coordinator {number}".encode()
        sink.start()
        sink.wait()
    assert sink.verdict is Verdict.STALLED


def test_where_only_heads_are_read_every_cycle_counts() -> None:
    sink = healthy()
    for number in range(3):
        sink.key = f"coordinator {number}".encode()
        sink.start()
        sink.log(EventKind.ANSWERED)
    assert sink.verdict is Verdict.STALLED


# -- dead -------------------------------------------------------------------------------------------------------------


def test_silence_is_dead_and_the_next_event_clears() -> None:
    sink = healthy()
    sink.start()
    sink.answer()
    sink.wait(2.9)
    assert sink.verdict is Verdict.HEALTHY
    sink.wait(0.2)
    assert sink.verdict is Verdict.DEAD
    assert "1 cycle is open" in sink.finding.reason
    sink.start()
    assert sink.verdict is Verdict.SLOWING
    sink.publish()
    sink.complete()
    assert sink.verdict is Verdict.HEALTHY


def test_answers_of_workers_are_no_event_of_the_coordinator() -> None:
    sink = healthy()
    sink.wait(4)
    sink.answer()
    assert sink.verdict is Verdict.DEAD


def test_silence_means_nothing_before_the_interval_is_learned_or_reported() -> None:
    sink = Sink()
    sink.start()
    sink.wait(100)
    assert sink.verdict is Verdict.UNKNOWN
    assert evaluate(sink.state, sink.now, StallRules(interval=INTERVAL)).verdict is Verdict.DEAD


def test_a_clock_that_is_behind_makes_no_group_silent() -> None:
    sink = healthy()
    sink.start()
    sink.answer()
    sink.publish(at=sink.now - 2 * INTERVAL)
    sink.complete(at=sink.now - 2 * INTERVAL)
    sink.wait(2)
    assert sink.verdict is Verdict.HEALTHY


def test_one_long_pause_does_not_spoil_the_learned_interval() -> None:
    sink = healthy()
    sink.wait(50)
    sink.cycles(2)
    sink.wait(4)
    assert sink.verdict is Verdict.DEAD


def test_deaths_in_a_row_do_not_spoil_it_either() -> None:
    sink = healthy()
    for number in range(12):
        sink.key = f"coordinator {number}".encode()
        sink.start()
        assert sink.verdict is not Verdict.DEAD
        sink.wait(10)
        assert sink.verdict is Verdict.DEAD


def test_a_longer_commit_interval_is_learned_at_once() -> None:
    sink = healthy()
    sink.key = b"with another interval"
    for _ in range(5):
        sink.cycles()
        sink.wait(9)
    assert set(sink.heard) <= set(CALM)
    sink.wait(30)
    assert sink.verdict is Verdict.DEAD


def test_a_new_coordinator_that_owes_nothing_is_dead_in_the_end() -> None:
    sink = healthy()
    sink.key = b"dies in its first pause"
    sink.cycles()
    sink.wait(28)
    assert sink.verdict is Verdict.HEALTHY
    sink.wait(2)
    assert sink.verdict is Verdict.DEAD
    assert healthy(interval=INTERVAL).cycles().verdict is Verdict.HEALTHY


def test_a_new_coordinator_is_dead_soon_where_it_owes_a_commit_or_its_interval_is_reported() -> None:
    owing, configured = healthy(), healthy(interval=INTERVAL)
    owing.key = configured.key = b"the next one"
    owing.start()
    owing.wait(3.1)
    configured.cycles()
    configured.wait(2.1)
    assert (owing.verdict, configured.verdict) == (Verdict.DEAD, Verdict.DEAD)


def test_one_interval_is_enough_to_learn_but_starting_takes_its_time() -> None:
    sink = Sink().cycles(1)
    sink.start()
    sink.wait(3.1)
    assert sink.verdict is Verdict.DEAD
    short = sink.state._replace(intervals=(2.0,))
    assert short.last is not None
    assert evaluate(short, short.last + 11.9, StallRules()).verdict is Verdict.HEALTHY
    assert evaluate(short, short.last + 12.1, StallRules()).verdict is Verdict.DEAD


# -- a log that was cut -----------------------------------------------------------------------------------------------


def test_files_of_a_cycle_whose_start_was_cut_off_are_not_lost_with_the_next() -> None:
    sink = Sink()
    # Of another control partition, with the log of which the cut did not keep pace.
    sink.answer(table="shop.clicks")
    sink.cycles(3)
    assert set(sink.heard) <= set(CALM)


def test_files_that_the_cycle_of_a_cut_start_passed_over_are_lost() -> None:
    sink = Sink()
    sink.answer()
    sink.complete()
    assert sink.verdict is Verdict.LOSING
    sink.cycles()
    assert sink.verdict is Verdict.HEALTHY


def test_a_coordinator_whose_start_was_cut_off_is_known_by_its_complete() -> None:
    sink = Sink()
    sink.answer()
    sink.publish()
    sink.complete()
    sink.wait()
    sink.key = b"after the restart"
    for _ in range(5):
        sink.start()
        sink.complete(through=False)
        sink.wait()
    assert set(sink.heard) <= set(CALM)


# -- split ------------------------------------------------------------------------------------------------------------


def test_two_coordinators_are_split_until_one_is_alone() -> None:
    sink = healthy()
    for turn in range(6):
        sink.key = (b"zombie", b"coordinator")[turn % 2]
        sink.cycles()
    assert sink.verdict is Verdict.SPLIT
    assert sink.finding.evidence["senders"] == ["zombie", "coordinator"]
    sink.cycles(3)
    assert sink.verdict is Verdict.HEALTHY


def test_coordinators_that_follow_each_other_are_no_split() -> None:
    sink = Sink()
    for number in range(6):
        sink.key = f"coordinator {number}".encode()
        sink.cycles(1 + number % 2)
    assert set(sink.heard) <= set(CALM)


# -- losing: files ----------------------------------------------------------------------------------------------------


def test_files_that_a_complete_cycle_passed_over_are_lost() -> None:
    sink = healthy()
    sink.start()
    sink.answer(files=3)
    assert sink.verdict is Verdict.HEALTHY
    sink.complete()
    assert sink.verdict is Verdict.LOSING
    assert sink.finding.evidence == {"tables": ["shop.orders"], "files": 6, "lost_files": 6}


def test_a_snapshot_of_the_table_clears() -> None:
    sink = healthy()
    sink.start()
    sink.answer()
    sink.complete()
    sink.start()
    assert sink.verdict is Verdict.LOSING
    sink.publish()
    assert sink.verdict is Verdict.HEALTHY
    assert sink.state.lost_files == 2


def test_one_table_of_several() -> None:
    sink = healthy()
    sink.start()
    sink.answer(table="shop.orders")
    sink.answer(table="shop.clicks")
    sink.publish("shop.clicks")
    sink.complete()
    assert sink.finding.evidence["tables"] == ["shop.orders"]
    sink.publish("shop.clicks")
    assert sink.verdict is Verdict.LOSING


def test_a_replaced_table_is_lost_until_the_connector_is_restarted() -> None:
    sink = healthy()
    sink.start()
    sink.answer(FIRST, table_id=OLD)
    sink.answer(SECOND, table_id=NEW)
    sink.publish(table_id=NEW)
    sink.complete()
    assert sink.verdict is Verdict.LOSING
    sink.key = b"after the restart"
    sink.start()
    sink.answer(table_id=NEW)
    sink.publish(table_id=NEW)
    assert sink.verdict is Verdict.HEALTHY


def test_a_table_that_was_taken_out_is_forgotten_after_the_restart() -> None:
    sink = healthy()
    sink.start()
    sink.answer(table="shop.gone")
    sink.publish()
    sink.complete()
    sink.cycles(20)
    assert sink.verdict is Verdict.LOSING
    sink.key = b"after the restart"
    sink.cycles(3)
    assert sink.verdict is Verdict.HEALTHY


def test_a_replaced_table_without_writers_of_its_old_files_is_not_lost_for_ever() -> None:
    sink = healthy()
    sink.start()
    sink.answer(table_id=OLD)
    sink.complete()
    # The same coordinator goes on; one task writes for the old table for one more cycle.
    for old, verdict in ((FIRST, Verdict.LOSING), (None, Verdict.HEALTHY)):
        sink.start()
        sink.answer(SECOND, table_id=NEW)
        sink.answer(FIRST, table_id=OLD if old else NEW)
        sink.publish(table_id=NEW)
        assert sink.verdict is Verdict.LOSING
        sink.complete()
        assert sink.verdict is verdict
        sink.wait()
    assert sink.state.lost_files == 3


def test_events_of_old_connectors_have_no_table_id() -> None:
    sink = healthy()
    sink.start()
    sink.answer(table_id=None)
    sink.publish(table_id=None)
    sink.complete()
    assert sink.verdict is Verdict.HEALTHY


def test_a_late_answer_is_committed_with_the_next_cycle() -> None:
    sink = healthy()
    for _ in range(10):
        late = sink.half_a_cycle()
        sink.wait(0.5)
        sink.answer(SECOND, commit=late)
        sink.wait(0.5)
    assert set(sink.heard) <= set(CALM)


def test_an_answer_that_comes_while_the_commit_is_under_way_is_not_lost() -> None:
    sink = healthy()
    for _ in range(10):
        sink.start()
        sink.answer(FIRST, files=0)
        # The partial commit of the others began before these came.
        sink.answer(SECOND, table="shop.clicks")
        sink.complete(through=False)
        sink.wait()
        sink.start()
        sink.answer()
        sink.publish()
        sink.publish("shop.clicks")
        sink.complete()
        sink.wait()
    assert set(sink.heard) <= set(CALM)


def test_what_was_announced_before_a_cycle_must_be_in_it() -> None:
    sink = healthy()
    late = sink.half_a_cycle()
    sink.answer(SECOND, commit=late, table="shop.gone")
    sink.cycles()
    assert sink.verdict is Verdict.LOSING


@pytest.mark.parametrize(("ahead", "through"), [(0, False), (7, True)])
def test_another_control_partition_may_be_read_later(ahead: float, through: bool) -> None:
    sink = healthy()
    sink.start()
    moment = sink.now + ahead
    sink.answer(FIRST)
    sink.now += 5
    sink.publish()
    sink.complete(through=through)
    sink.log(EventKind.WRITTEN, table="shop.orders", table_id=OLD, files=1, at=moment)
    for _ in range(5):
        sink.start()
        sink.answer(files=0, timed=False)
        sink.complete(through=False)
        sink.wait()
    assert set(sink.heard) <= set(CALM)


# -- losing: answers --------------------------------------------------------------------------------------------------


def test_half_of_the_workers_silent_is_losing_until_they_answer() -> None:
    sink, heard = healthy(), []
    for _ in range(4):
        sink.half_a_cycle()
        heard.append(sink.verdict)
        sink.wait()
    assert heard == [Verdict.HEALTHY, Verdict.HEALTHY, Verdict.LOSING, Verdict.LOSING]
    assert sink.finding.evidence["partitions"] == ["orders[2]", "orders[3]"]
    sink.start()
    sink.answer(FIRST)
    assert sink.verdict is Verdict.LOSING
    sink.answer(SECOND)
    assert sink.verdict is Verdict.HEALTHY
    sink.publish()
    sink.complete()
    assert sink.verdict is Verdict.HEALTHY


def test_a_handover_takes_seconds_however_short_the_interval_is() -> None:
    sink = healthy()
    short = sink.state._replace(intervals=(1.0,) * 5)
    assert short.last is not None
    assert evaluate(short, short.last + 5.9, StallRules()).verdict is Verdict.HEALTHY
    assert evaluate(short, short.last + 6.1, StallRules()).verdict is Verdict.DEAD
    assert evaluate(short, short.last + 3.1, StallRules(interval=1.0)).verdict is Verdict.DEAD


def test_tasks_take_their_time_to_start_after_a_change_of_the_coordinator() -> None:
    sink = healthy()
    sink.key = b"after the restart"
    for _ in range(6):
        assert sink.verdict in CALM
        sink.start()
        sink.complete(through=False)
        sink.wait()
    assert sink.verdict is Verdict.LOSING


def test_a_task_that_takes_longer_to_start_than_the_others_is_given_as_long() -> None:
    sink = healthy()
    sink.key = b"after the restart"
    for _ in range(6):
        assert sink.verdict in CALM
        sink.half_a_cycle()
        sink.wait()
    assert sink.verdict is Verdict.LOSING
    sink.cycles()
    for _ in range(3):
        assert sink.verdict in CALM
        sink.half_a_cycle()
    assert sink.verdict is Verdict.LOSING


@pytest.mark.parametrize(("before", "cycles"), [(0, 6), (5, 3)])
def test_no_worker_answers(before: int, cycles: int) -> None:
    sink = Sink().cycles(before)
    for _ in range(cycles):
        assert sink.verdict in CALM
        sink.start()
        sink.wait()
        sink.complete(through=False)
    assert sink.verdict is Verdict.LOSING
    sink.start()
    sink.answer()
    assert sink.verdict is Verdict.HEALTHY


def test_a_handover_takes_as_long_however_quick_the_cycles_are() -> None:
    sink = healthy()
    for n in range(6):
        assert sink.verdict in CALM, n
        sink.state = sink.state._replace(intervals=(1.0,) * 5)
        sink.half_a_cycle()
        sink.now += 1
    assert sink.verdict is Verdict.LOSING


@pytest.mark.parametrize("busy", [True, False])
def test_partitions_that_were_never_answered(busy: bool) -> None:
    sink = Sink()
    for _ in range(3):
        assert sink.verdict in CALM
        sink.half_a_cycle()
        sink.wait()
    assert sink.verdict is Verdict.LOSING
    sink.start()
    sink.answer(FIRST, files=0, timed=busy)
    assert sink.verdict is Verdict.LOSING
    sink.answer(SECOND, files=0, timed=busy)
    assert sink.verdict is Verdict.HEALTHY
    sink.complete(through=busy)
    assert sink.verdict is Verdict.HEALTHY


def test_answers_that_come_while_a_partial_commit_is_under_way_are_heard() -> None:
    sink = healthy()
    for _ in range(10):
        sink.start()
        sink.answer(FIRST)
        # The coordinator has stopped waiting; its commit takes a while.
        sink.wait(0.3)
        sink.answer(SECOND)
        sink.wait(0.1)
        sink.publish()
        sink.complete(through=False)
        sink.wait(0.6)
    assert set(sink.heard) <= set(CALM)


def test_files_that_come_while_a_partial_commit_is_under_way_are_not_lost_next_to_an_idle_partition() -> None:
    sink = healthy()
    for _ in range(5):
        sink.start()
        sink.answer(FIRST, files=0, timed=False)
        sink.answer(SECOND, table="shop.clicks")
        sink.complete(through=False)
        sink.wait()
        sink.start()
        sink.answer(FIRST, files=0, timed=False)
        sink.answer(SECOND, files=0)
        sink.publish("shop.clicks")
        sink.complete(through=False)
        sink.wait()
    assert set(sink.heard) <= set(CALM)


def test_a_worker_that_is_always_late_is_heard_all_the_same() -> None:
    sink = healthy()
    late = sink.commit
    for _ in range(10):
        commit = sink.start()
        sink.answer(SECOND, commit=late)
        sink.answer(FIRST)
        sink.publish()
        sink.complete(through=False)
        sink.wait()
        late = commit
    assert set(sink.heard) <= set(CALM)


def test_idle_partitions_and_idle_intervals_are_healthy() -> None:
    sink = healthy()
    for idle in (SECOND, ALL):
        for _ in range(10):
            sink.start()
            sink.answer(FIRST, timed=idle is not ALL, files=0 if idle is ALL else 1)
            sink.answer(SECOND, timed=False, files=0)
            if idle is not ALL:
                sink.publish()
            sink.complete(through=False)
            sink.wait()
    assert set(sink.heard) <= set(CALM)


def test_a_topic_that_was_taken_out_of_the_connector_is_not_missed() -> None:
    sink = healthy()
    sink.key = b"after the restart"
    clicks = frozenset({("clicks", 0)})
    for _ in range(5):
        sink.start()
        sink.answer(clicks)
        sink.publish()
        sink.complete()
        sink.wait()
    assert set(sink.heard) <= set(CALM)


def test_a_topic_that_was_made_anew_with_fewer_partitions_is_not_missed() -> None:
    sink = healthy()
    sink.key = b"after the restart"
    for _ in range(5):
        sink.start()
        sink.answer(FIRST)
        sink.publish()
        sink.complete()
        sink.wait()
    assert set(sink.heard) <= set(CALM)


# -- landings ---------------------------------------------------------------------------------------------------------


def landing(**rules: Any) -> Sink:
    sink = Sink(landing=True, **rules)
    sink.start(deadline=sink.now + 3600)
    sink.complete()
    return sink


def test_pipelined_landings_are_healthy() -> None:
    sink = landing()
    opened = [sink.start(deadline=sink.now + 3600) for _ in range(30)]
    for commit in opened:
        sink.complete(commit=commit)
    assert set(sink.heard) <= set(CALM)


def test_an_hourly_or_paused_dag_is_healthy() -> None:
    sink = landing()
    for _ in range(6):
        sink.start(deadline=sink.now + 600)
    sink.wait(1000)
    assert set(sink.heard) <= set(CALM)


def test_a_dag_that_is_unpaused_with_old_cycles_open_is_not_stalled_at_once() -> None:
    sink = landing()
    old = [sink.start(deadline=sink.now + 600) for _ in range(6)]
    sink.wait(1000)
    new = sink.start(deadline=sink.now + 600)
    assert sink.verdict is Verdict.SLOWING
    for commit in (*old, new):
        sink.complete(commit=commit)
    assert sink.verdict is Verdict.HEALTHY


def test_cycles_that_are_overdue_while_others_are_opened_stall() -> None:
    sink, heard = landing(), []
    for _ in range(5):
        sink.start(deadline=sink.now + 600)
        heard.append(sink.verdict)
        sink.wait(3)
    assert heard == [Verdict.HEALTHY, Verdict.SLOWING, Verdict.SLOWING, Verdict.STALLED, Verdict.STALLED]
    sink.complete()
    assert sink.verdict is Verdict.HEALTHY


def test_failed_commit_attempts_stall_a_landing_and_a_complete_clears() -> None:
    sink, heard = landing(), []
    for _ in range(3):
        commit = sink.start()
        for _ in range(4):
            # Each attempt of the task reports it; it is one cycle all the same.
            sink.log(EventKind.START, commit=commit, failed="the catalog is away")
        heard.append(sink.verdict)
    assert heard == [Verdict.SLOWING, Verdict.SLOWING, Verdict.STALLED]
    assert sink.finding.reason.endswith("the last one: the catalog is away")
    open_ = sink.start()
    assert sink.verdict is Verdict.STALLED
    sink.complete(commit=open_)
    assert sink.verdict is Verdict.HEALTHY


def test_a_table_whose_debt_defers_the_plan_slows_the_landing_until_a_window_is_planned() -> None:
    sink = landing()
    for _ in range(3):
        sink.start(deferred="compaction debt: shop.orders has 2000 files; cleared by compaction of shop.orders")
        sink.complete()
        sink.wait()
    found = sink.finding
    assert (found.verdict, found.clears, found.since) == (Verdict.SLOWING, "compaction of shop.orders", 1e9)
    assert found.reason == "no window is planned: compaction debt: shop.orders has 2000 files"
    sink.start()
    assert sink.verdict is Verdict.HEALTHY


def test_a_dead_letter_table_that_fails_alone_slows_and_never_stalls() -> None:
    sink = landing()
    for _ in range(20):
        sink.log(EventKind.START, commit=sink.start(), failed="it is away", beside=("shop.dead",))
        sink.publish()
        assert sink.verdict is Verdict.SLOWING
    assert "for shop.dead only" in sink.finding.reason
    assert sink.finding.reason.endswith("it is away")
    sink.complete()
    assert sink.verdict is Verdict.HEALTHY


def test_a_dead_letter_table_whose_budget_is_full_stalls_the_landing() -> None:
    sink, heard = landing(), []
    for full in (False, True, True, True):
        sink.log(EventKind.START, commit=sink.start(full=full), failed="it is away", beside=("shop.dead",))
        heard.append(sink.verdict)
    assert heard == [Verdict.SLOWING] * 3 + [Verdict.STALLED]


def test_only_failures_of_the_data_table_in_a_row_stall() -> None:
    sink, heard = landing(), []
    for failing in ((), (), ("shop.dead",), (), (), ()):
        sink.log(EventKind.START, commit=sink.start(), failed="no", beside=failing)
        heard.append(sink.verdict)
    assert heard == [Verdict.SLOWING] * 5 + [Verdict.STALLED]
    # Another attempt of the last one: now the data came through.
    sink.log(EventKind.START, failed="no", beside=("shop.dead",))
    assert sink.verdict is Verdict.SLOWING


def test_failures_are_remembered_under_many_open_cycles() -> None:
    sink = landing()
    failing = [sink.start() for _ in range(3)]
    for commit in failing:
        sink.log(EventKind.START, commit=commit, failed="no")
    for _ in range(50):
        sink.start(deadline=sink.now + 3600)
    assert sink.verdict is Verdict.STALLED


def test_an_abandoned_run_of_a_landing_that_goes_on_is_no_failure() -> None:
    sink = landing()
    sink.start(deadline=sink.now + 600)
    sink.wait()
    for _ in range(5):
        sink.start(deadline=sink.now + 600)
        sink.complete()
        sink.wait(3)
    assert set(sink.heard) <= set(CALM)


def ranges(start: int, end: int) -> Coverage:
    partition = SourcePartition(topic="orders", partition=0, topic_id="id")
    return Coverage.of([(partition, OffsetRange(start, end))])


def test_a_blocked_range_waits_for_the_decision_on_it() -> None:
    sink = landing()
    sink.start()
    for _ in range(2):
        sink.log(EventKind.ANSWERED, blocked="1001 rejected", covers=ranges(10, 20))
    sink.log(EventKind.ANSWERED, blocked="all rejected", covers=ranges(30, 40))
    assert sink.verdict is Verdict.BLOCKED
    sink.complete()
    assert sink.finding.reason.startswith("2 ranges need action")
    sink.complete(covers=ranges(0, 20))
    assert sink.finding.reason.startswith("1 range needs action")
    sink.publish(covers=ranges(30, 40))
    assert sink.verdict is Verdict.HEALTHY


# -- properties -------------------------------------------------------------------------------------------------------


@st.composite
def healthy_stories(draw: st.DrawFn) -> Sink:
    """A connector that goes on well: late answers, idle partitions and intervals, rebalances, jitter."""
    sink = Sink(stalled_cycles=draw(st.sampled_from([3, 5])))
    late: bytes | None = None
    for _ in range(draw(st.integers(1, 25))):
        what = draw(st.sampled_from(["busy", "idle", "half idle", "late", "rebalance", "new table"]))
        if what == "rebalance":
            sink.start()
            sink.answer(FIRST)
            sink.wait(draw(st.floats(0.1, 0.5)))
            sink.key = f"after {sink.number}".encode()
        commit = sink.start()
        sink.now += draw(st.floats(0, 30))
        table = "shop.new" if what == "new table" else "shop.orders"
        sink.answer(FIRST, files=0 if what == "idle" else 2, timed=what != "idle", table=table)
        if what != "late":
            sink.answer(SECOND, files=int(what == "busy"), timed=what == "busy", table=table)
        if what != "idle":
            sink.publish(table)
        if late or what == "rebalance":
            sink.publish()
        sink.complete(through=what == "busy")
        sink.wait(draw(st.floats(0.4, 0.6)))
        if late := commit if what == "late" else None:
            sink.answer(SECOND, commit=late)
        sink.wait(draw(st.floats(0.3, 0.7)))
    return sink


@given(healthy_stories())
def test_no_alarm_in_a_healthy_story(sink: Sink) -> None:
    assert set(sink.heard) <= set(CALM)


TROUBLE = st.sampled_from(["outage", "silence", "half", "nobody", "lost", "split", "cut"])


def make_trouble(sink: Sink, what: str) -> None:
    match what:
        case "outage":
            sink.start()
            sink.answer()
        case "silence":
            sink.wait(10)
        case "half":
            sink.half_a_cycle()
        case "nobody":
            sink.start()
            sink.complete(through=False)
        case "lost":
            sink.start()
            sink.answer()
            sink.complete()
        case "split":
            sink.start(sender=b"zombie")
        case "cut":
            sink.key = f"after {sink.number}".encode()
            sink.start()
    sink.wait()


@given(st.lists(TROUBLE, max_size=40))
def test_whatever_happened_three_good_cycles_clear_it(troubles: list[str]) -> None:
    sink = healthy()
    for what in troubles:
        make_trouble(sink, what)
    sink.cycles(3)
    assert sink.verdict is Verdict.HEALTHY, sink.finding


@given(st.lists(TROUBLE, max_size=60))
def test_the_state_is_bounded(troubles: list[str]) -> None:
    sink = healthy()
    for what in troubles:
        make_trouble(sink, what)
    sink.start()
    assert len(sink.state.begun) <= 12
    assert len(sink.state.waiting) <= 2
    assert chain(sink.state.answers) <= 2
    assert chain(sink.state.journal) == 0


def test_a_long_outage_costs_no_memory() -> None:
    sink = healthy()
    for _ in range(2000):
        sink.start()
        sink.answer()
    assert sink.verdict is Verdict.STALLED
    assert sink.finding.evidence["waiting_files"] == 4000
    assert weight(sink.state) < 20_000


def chain(link: Any) -> int:
    count = 0
    while link is not None:
        count, link = count + 1, link[1]
    return count


def weight(value: object) -> int:
    own = sys.getsizeof(value)
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = (*value.keys(), *value.values())
    elif isinstance(value, tuple | list | frozenset):
        inner = value
    elif hasattr(value, "__slots__"):
        inner = (getattr(value, name) for name in value.__slots__)
    return own + sum(map(weight, inner))


@given(st.lists(TROUBLE, max_size=30), st.integers(0, 3))
def test_observing_changes_no_state_that_a_user_holds(troubles: list[str], more: int) -> None:
    sink = healthy()
    held, now = sink.state, sink.now
    before = evaluate(held, now, sink.rules)
    for what in troubles:
        make_trouble(sink, what)
    sink.cycles(more)
    assert evaluate(held, now, sink.rules) == before == replace(before)
