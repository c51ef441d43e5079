# SPDX-License-Identifier: Apache-2.0
"""A run that comes back: cleared after it ended, made again under an old id, awake after others did its work."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.start import find_cycle
from tests.support.world import World, records

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


@pytest.mark.heavy
def test_a_finished_run_reports_what_of_its_window_is_missing_until_another_run_has_landed_it(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, records(0, 120))
    opened = world.open("a")
    world.write(opened, only=lambda index: index != 1)
    assert len(world.close("a", opened).missing) == 1

    again = world.open("a", retry=True)
    assert (again.finished, again.slices) == (True, ())
    assert [len(s) for s in again.lacking] == [40]
    assert "not landed: " in again.note
    result = world.close("a", again, retry=True)
    assert result.finished
    assert result.missing == tuple(map(str, again.lacking))

    world.run("b")
    again = world.open("a", retry=True)
    assert (again.finished, again.lacking) == (True, ())
    assert "all of it is landed" in again.note
    assert world.close("a", again, retry=True).missing == ()
    world.check(Counter(range(120)))


def test_a_run_that_wakes_after_its_deadline_finds_its_window_landed_by_others(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=1, completion_timeout=timedelta(seconds=1))
    produce(world.landing.topics, records(0, 80))
    asleep = world.open("asleep", release=False)
    time.sleep(1.1)  # The broker's clock, not ours, tells when a claim ends.
    for name in ("b", "c"):
        produce(world.landing.topics, records(80 if name == "b" else 90, 10))
        opened = world.open(name, release=False)
        world.write(opened)
        world.close(name, opened)
    assert world.write(asleep) == []
    closed = world.close("asleep", asleep)
    assert (closed.published, closed.missing, closed.waiting) == ((), (), ())
    assert "other runs have already published its window" in str(closed.reason)
    world.check(Counter(range(100)))


def test_a_run_whose_claim_was_taken_over_works_no_more_for_its_cycle(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, records(0, 80))
    dead = world.open("dead")
    heir = world.open("heir")
    assert heir.plan.coverage == dead.plan.coverage
    assert world.write(dead) == []
    again = world.open("dead", retry=True, release=False)
    assert again.finished
    assert "because its run had ended" in again.note
    assert sum(map(len, again.lacking)) == 80
    world.write(heir)
    assert world.close("heir", heir).rows == 80
    world.check(Counter(range(80)))


@pytest.mark.heavy
def test_a_run_id_that_was_used_long_ago_is_opened_anew(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    produce(world.landing.topics, records(0, 40))
    first = world.open("again")
    world.write(first)
    world.close("again", first)
    for n in (1, 2):
        produce(world.landing.topics, records(40 * n, 40))
        world.run()
    produce(world.landing.topics, records(120, 80))
    second = world.open("again")
    assert not second.finished
    assert second.plan.coverage != first.plan.coverage
    world.write(second, only=lambda index: index == 0)
    assert world.close("again", second).rows == 40
    with world.session() as session:
        past = find_cycle(session, second.ticket.commit_id)
    assert past is not None
    assert past.state.plan == second.plan
    assert past.state.complete
    assert [len(s) for s in world.open("again", retry=True).lacking] == [40]
    world.settle()
    world.check(Counter(range(200)))


@pytest.mark.heavy
def test_a_run_whose_part_of_the_log_was_cut_starts_anew_and_doubles_nothing(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, records(0, 40))
    first = world.open("cut")
    world.write(first)
    world.close("cut", first)
    world.run()
    with world.session() as session:
        end = session.control.read(first.ticket.partition, None).end
    partition = TopicPartition(str(world.landing.connections.control_topic), first.ticket.partition, end)
    admin.delete_records([partition])[partition].result(30)
    produce(world.landing.topics, records(40, 40))
    again = world.run("cut", retry=True)
    assert again.rows == 40
    world.check(Counter(range(80)))


def test_an_attempt_that_died_with_its_work_done_is_followed_by_one_that_reports_it(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, records(0, 80))
    opened = world.open("a")
    world.write(opened)
    done = world.close("a", opened)
    world.run("b")
    with world.session() as session:
        closed = close_cycle(session, world.run_identity("a", attempt="2"), opened.ticket, retry=True, in_events=())
        assert not closed.finished
        assert (closed.published, closed.rows, closed.valid_through) == (done.published, 80, done.valid_through)
        assert close_cycle(session, world.run_identity("a", attempt="3"), opened.ticket, retry=True).published == ()
