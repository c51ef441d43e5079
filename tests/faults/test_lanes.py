# SPDX-License-Identifier: Apache-2.0
"""Lanes next to the live stream: a hole is filled once, whoever else lands, dies, comes late or does the same again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.model import FILLED
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.plan.open_lanes import open_lanes
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.operations.backfill.closing import close_lane, lane_rest
from airflow_provider_lakecommit.operations.backfill.opening import joined_session, lane_session
from airflow_provider_lakecommit.operations.backfill.preview import LanePreview, lane_preview
from airflow_provider_lakecommit.operations.backfill.request import LaneRequest, lane_request
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.stated import parse_ranges
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import Killed, World, deaths, records

pytestmark = pytest.mark.faults

DECISION = Decision(command="backfill --close", actor="ann", host="here", at="2026-01-01T00:00:00+00:00")
Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


@dataclass(kw_only=True)
class LaneWorld(World):
    """The same landing in a stream."""

    request: LaneRequest = field(default_factory=lambda: lane_request(since="2020-01-01"))

    @contextmanager
    def session(self) -> Iterator[LandingSession]:
        with World.session(self) as session, lane_session(session, lane_preview(session, self.request)) as own:
            yield own

    def finish(self) -> None:
        self.settle()
        with self.session() as session:
            close_lane(session)


def lane(world: World, *texts: str, name: str | None = None) -> LaneWorld:
    """``0=10-20``: offsets of a partition of the world's topic."""
    ranges = parse_ranges([f"{world.landing.topics}:{text}" for text in texts])
    request = lane_request(ranges=ranges, name=name)
    return LaneWorld(
        landing=world.landing, kafka=world.kafka, catalog=world.catalog, request=request, lines=world.lines
    )


def preview_of(world: World, request: LaneRequest) -> LanePreview:
    with world.session() as session:
        return lane_preview(session, request)


def sections(world: World, table: str | None = None) -> dict[str, str]:
    """What each stream has, without the topic's name."""
    from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger

    with world.session() as session:
        metadata = session.tables.load(table or world.landing.table).metadata
    found = {s.lane: str(s.covered) for s in read_ledger(metadata).sections}
    return {name: text.replace(str(world.landing.topics), "") for name, text in sorted(found.items())}


@pytest.fixture
def late(make_world: Make, produce: Produce) -> World:
    """A landing that began at offset 30 of 50, in each of two partitions."""
    world = make_world(partitions=2)
    late = world.landing.changed(window={"start": "latest"})
    world.landing = late
    for p in range(2):
        produce(late.topics, records(100 * p, 30), partition=p)
    world.settle()
    for p in range(2):
        produce(late.topics, records(100 * p + 30, 20), partition=p)
    world.settle()
    return world


LANDED = Counter([*range(30, 50), *range(130, 150)])


def test_what_the_landing_began_behind_is_filled_next_to_it(late: World, produce: Produce) -> None:
    past = lane(late, "0=0-30", "1=10-20")
    opened = past.open("first")
    past.write(opened)
    # The live stream goes on while the other one is open.
    produce(late.landing.topics, records(50, 5), partition=0)
    late.settle()
    past.close("first", opened)
    past.finish()
    late.check(LANDED + Counter([*range(30), *range(110, 120), *range(50, 55)]))
    assert sections(late) == {FILLED: "[0] [0, 30), [1] [10, 20)", "live": "[0] [30, 55), [1] [30, 50)"}
    check_verified(late)
    # The same again has nothing to do.
    assert preview_of(late, past.request).done
    with pytest.raises(LedgerError, match="LC7214"):
        past.finish()


@pytest.mark.heavy
def test_a_stream_goes_up_to_the_live_one_and_no_further(late: World) -> None:
    found = preview_of(late, lane(late, "0=20-50").request)
    assert str(found.missing).endswith("[0] [20, 30)")
    assert str(found.there).endswith("[0] [30, 50)")
    with late.session() as session, pytest.raises(SourceError, match=r"ends at 50, not at 60.*LC7227"):
        lane_preview(session, lane(late, "0=20-60").request)
    with (
        late.session() as session,
        pytest.raises(SourceError, match=r"no such partition; it has .* with 2 partitions.*LC7226"),
    ):
        lane_preview(session, lane(late, "7=0-1").request)


@pytest.mark.heavy
def test_what_the_live_stream_comes_to_is_not_taken_from_it(late: World, produce: Produce) -> None:
    produce(late.landing.topics, records(50, 10), partition=0)
    with late.session() as session, pytest.raises(LedgerError, match="LC7222"):
        lane_preview(session, lane(late, "0=50-60").request)
    found = preview_of(late, lane(late, "0=10-60").request)
    assert str(found.live).endswith("[0] [50, 60)")
    assert str(found.missing).endswith("[0] [10, 30)")


@pytest.mark.campaign
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stream_that_dies_anywhere_ends_the_same(late: World, when: str) -> None:
    """At each durable step of opening, landing and closing: the same again finishes it."""
    expected = LANDED + Counter(range(30))
    step = 0
    while True:
        step += 1
        past = lane(late, "0=0-30", name=f"past-{step}")
        with deaths(step, when) as counter:  # type: ignore[arg-type]
            try:
                past.finish()
            except Killed:
                pass
            else:
                break
        assert len(counter.steps) >= step
        if not preview_of(late, past.request).done:
            past.finish()
        late.check(expected)
        check_verified(late)
        assert "live" in sections(late)
        undo(late, past)
    assert step > 5


def undo(late: World, past: LaneWorld) -> None:
    """The rows that a stream brought, and its ranges, are missing again: the table goes back to before it."""
    from airflow_provider_lakecommit.iceberg.ledger.ledger import ancestry

    with late.session() as session:
        table = session.tables.load(late.landing.table)
        line = list(ancestry(table.metadata, "main"))
        before = next(s for s in line if (s.summary or {}).additional_properties.get("lakecommit.lane") == "live")  # type: ignore[union-attr]
        dead = session.tables.load("shop.dead")
        dead_before = next(
            s
            for s in ancestry(dead.metadata, "main")
            if s.summary and s.summary.additional_properties.get("lakecommit.lane") == "live"
        )
        table.manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        dead.manage_snapshots().rollback_to_snapshot(dead_before.snapshot_id).commit()
    late.settle()


def test_two_that_do_one_stream_at_once_land_it_once(late: World) -> None:
    one, other = lane(late, "0=0-30", name="past"), lane(late, "0=0-30", name="past")
    first, second = one.open("one", release=False), other.open("other", release=False)
    one.write(first)
    other.write(second)
    other.close("other", second)
    one.close("one", first)
    one.finish()
    late.check(LANDED + Counter(range(30)))
    check_verified(late)


def test_a_zombie_of_a_closed_stream_lands_nothing(late: World) -> None:
    past = lane(late, "0=0-30", name="past")
    opened = past.open("zombie", release=False)
    past.finish()
    late.check(LANDED + Counter(range(30)))
    World(landing=late.landing, kafka=late.kafka, catalog=late.catalog).write(opened)
    with World.session(past) as session:
        session.lane = "past"
        with suppress(LedgerError):
            close_cycle(session, past.run_identity("zombie"), opened.ticket)
        with pytest.raises(LedgerError, match=r"past.*LC6011"):
            open_cycle(session, past.run_identity("later"))
    late.check(LANDED + Counter(range(30)))
    check_verified(late)


def test_two_streams_over_one_range_are_refused(late: World) -> None:
    past = lane(late, "0=0-20", name="past")
    past.run()
    produce_more = lane(late, "0=10-30", name="other")
    # What the first one has landed is there, so that nothing of it is left under way.
    assert str(preview_of(late, produce_more.request).missing).endswith("[0] [20, 30)")
    second = lane(late, "1=0-20", name="second")
    with second.session():
        pass
    with late.session() as session, pytest.raises(LedgerError, match=r"second .*\[1\] \[10, 20\).*LC7225"):
        lane_preview(session, lane(late, "1=10-30", name="third").request)
    with late.session() as session, pytest.raises(LedgerError, match="LC7221"):
        lane_preview(session, lane(late, "1=10-30", name="second").request)


@pytest.mark.heavy
def test_what_the_source_has_removed_is_named_and_the_rest_is_filled(late: World) -> None:
    removed(late, 12)
    past = lane(late, "0=0-30")
    found = preview_of(late, past.request)
    assert str(found.removed).endswith("[0] [0, 12)")
    past.finish()
    late.check(LANDED + Counter(range(12, 30)))
    check_verified(late)
    with late.session() as session, pytest.raises(SourceError, match="LC7223"):
        lane_preview(session, lane(late, "0=0-12").request)


@pytest.mark.heavy
def test_retention_that_takes_what_an_open_stream_has_not_read_is_named_with_the_way_on(late: World) -> None:
    past = lane(late, "0=0-30", name="past")
    with past.session():
        pass
    removed(late, 12)
    with pytest.raises(SourceError, match=r"lakecommit backfill SPEC --close past.*LC1303"):
        past.run()


@pytest.mark.heavy
def test_records_are_taken_by_their_times(late: World) -> None:
    found = preview_of(late, lane_request(since="2020-01-01", until="2020-01-02"))
    assert not found.missing
    whole = preview_of(late, lane_request(since="2020-01-01"))
    assert str(whole.missing).replace(str(late.landing.topics), "") == "[0] [0, 30), [1] [0, 30)"


@pytest.mark.heavy
def test_a_stream_that_is_not_complete_is_not_closed(late: World) -> None:
    past = lane(late, "0=0-30")
    with past.session() as session:
        assert len(lane_rest(session)) == 30
        with pytest.raises(LedgerError, match="LC7206"):
            close_lane(session)
    past.finish()


def test_bad_records_of_a_stream_are_dead_letters_once(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1)
    world.landing = world.landing.changed(window={"start": "latest"})
    produce(world.landing.topics, [*records(0, 10), ("bad", "{"), *records(10, 10)], partition=0)
    world.settle()
    past = lane(world, "0=0-21")
    past.finish()
    world.check(Counter(range(20)))
    assert [row["offset"] for row in world.rows("shop.dead")] == [10]
    check_verified(world)


@pytest.mark.heavy
def test_a_range_without_a_live_stream_is_landed_too_and_the_live_one_goes_around_it(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, records(0, 40), partition=0)
    middle = lane(world, "0=10-20")
    middle.finish()
    world.check(Counter(range(10, 20)))
    world.settle()
    world.check(Counter(range(40)))
    assert sections(world) == {FILLED: "[0] [10, 20)", "live": "[0] [0, 10) [20, 40)"}
    check_verified(world)


@pytest.mark.heavy(but=("a lane that was opened",))
@pytest.mark.parametrize("oldest", ["a lane that was opened", "a person's word"])
def test_a_history_whose_begin_is_expired_is_no_first_one(late: World, oldest: str) -> None:
    """Whatever the oldest snapshot is that is left: what it has was landed before."""
    if oldest == "a person's word":
        lane(late, "0=0-30").finish()
        with late.session() as session:
            ledger_init(session, "latest")
    else:
        with lane(late, "0=0-30").session():
            pass
    with late.session() as session:
        for name in late.landing.tables:
            table = session.tables.load(name)
            head = table.metadata.snapshot_by_name("main")
            assert head is not None
            older = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != head.snapshot_id]
            table.maintenance.expire_snapshots().by_ids(older).commit()
    check_verified(late)


@pytest.mark.heavy
def test_what_is_reported_behind_what_retention_took_is_published_when_the_stream_is_closed(late: World) -> None:
    """As the error says that names the command; by then the source may have nothing of it."""
    past = lane(late, "0=0-30")
    opened = past.open("first")
    removed(late, 15)
    past.write(opened)
    past.close("first", opened)
    with pytest.raises(
        SourceError, match=r"backfill SPEC --close \S+`, .* finished slices are still published.*LC1303"
    ):
        past.run()
    removed(late, 40)
    with late.session() as session, joined_session(session, open_lanes(session)[0]) as own:
        assert str(close_lane(own, decision=DECISION)).endswith("[0] [0, 15)")
    late.check(LANDED + Counter(range(15, 30)))
    assert sections(late) == {FILLED: "[0] [15, 30)", "live": "[0] [30, 50), [1] [30, 50)"}
    check_verified(late)


def removed(world: World, end: int) -> None:
    """By retention, of the first partition."""
    partition = TopicPartition(str(world.landing.topics), 0, end)
    admin = AdminClient(dict(world.kafka))
    admin.delete_records([partition])[partition].result(PATIENCE)
