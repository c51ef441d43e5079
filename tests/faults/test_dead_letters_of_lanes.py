# SPDX-License-Identifier: Apache-2.0
"""Dead letters of ranges that streams have landed, or landed anew, become rows exactly once as those of the live
stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import pytest

import airflow_provider_lakecommit.operations.dead_letters.replay as replaying
from airflow_provider_lakecommit.operations.backfill.closing import close_lane
from airflow_provider_lakecommit.operations.backfill.replaying import replace_lane
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.open_set import State
from tests.faults.test_lanes import lane, sections
from tests.faults.test_replay import replay
from tests.faults.test_replay_dead_letters import SCHEMA, good, nameless, optional, replayed, wrong
from tests.support.world import Killed, World, deaths

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


def thirds(first: int, many: int) -> list[str]:
    """Each third is a dead letter."""
    return [nameless(n) if n % 3 == 0 else good(n) for n in range(first, first + many)]


def begun(make_world: Make, produce: Produce, **stated: Any) -> World:
    """A landing that began behind thirty records, and has landed thirty since; as many of both are dead letters."""
    world = make_world(
        1, create=SCHEMA, dead_letter_max_records=1000, dead_letter_max_ratio=1.0, start="latest", **stated
    )
    produce(world.landing.topics, thirds(0, 30), partition=0)
    world.settle()
    produce(world.landing.topics, thirds(30, 30), partition=0)
    world.settle()
    return world


@pytest.fixture
def late(make_world: Make, produce: Produce) -> World:
    return begun(make_world, produce)


LIVE_LANDED = Counter(n for n in range(30, 60) if n % 3)
ALL_LANDED = Counter(n for n in range(60) if n % 3)
EACH = Counter(range(60))


@pytest.mark.heavy(but=("after",))
@pytest.mark.parametrize("when", ["before", "after"])
def test_those_of_a_closed_stream_are_replayed_once_wherever_it_dies(
    late: World, when: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaying, "BATCH_RECORDS", 6)
    lane(late, "0=0-30").finish()
    late.check(ALL_LANDED)
    optional(late)
    assert replayed(late, dry=True).dead_letters == 20
    killed = 0
    for _ in range(8):
        try:
            with deaths(2, when):
                replayed(late)
            break
        except Killed:
            killed += 1
    assert killed
    replayed(late)
    late.check(EACH)
    again = replayed(late)
    assert (again.dead_letters, again.others[State.REPLAYED.value]) == (0, 20)
    assert wrong(late) == []


@pytest.mark.heavy
def test_those_of_an_open_stream_stay_replayed_when_it_is_closed(late: World) -> None:
    past = lane(late, "0=0-30")
    past.settle()
    optional(late)
    assert replayed(late, Selection(limit=13)).dead_letters == 13
    past.finish()
    assert replayed(late).dead_letters == 7
    late.check(EACH)
    assert wrong(late) == []


@pytest.mark.heavy
def test_where_only_streams_have_landed_they_are_replayed_too(make_world: Make, produce: Produce) -> None:
    world = make_world(1, create=SCHEMA, dead_letter_max_records=1000, dead_letter_max_ratio=1.0)
    produce(world.landing.topics, thirds(0, 60), partition=0)
    past = lane(world, "0=0-30", name="past")
    past.settle()
    optional(world)
    preview = replayed(world, Selection(limit=4), dry=True)
    assert replayed(world, Selection(limit=4)).coverage == preview.coverage
    past.finish()
    assert replayed(world).dead_letters == 6
    assert list(sections(world)) == ["filled"]
    world.settle()
    # What came when the column could be missing already was never a dead letter.
    world.check(EACH)
    assert replayed(world).dead_letters == 0
    assert wrong(world) == []


@pytest.fixture
def kept(make_world: Make, produce: Produce) -> World:
    """Whose rows tell which records they are of; ten are dead letters."""
    world = make_world(1, create=SCHEMA, dead_letter_max_records=1000, dead_letter_max_ratio=1.0, metadata_columns=True)
    produce(world.landing.topics, thirds(0, 30), partition=0)
    world.settle()
    return world


def required(world: World) -> None:
    """The rule of before: what came without a name is a reject again."""
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.update_column("name", required=True)


@pytest.mark.heavy
def test_a_range_that_is_landed_anew_takes_replayed_rows_and_has_dead_letters_of_its_own(kept: World) -> None:
    optional(kept)
    assert replayed(kept, Selection(limit=6)).dead_letters == 6
    required(kept)
    replay(kept, "0=0-30").finish()
    kept.check(Counter(n for n in range(30) if n % 3))
    assert wrong(kept) == []
    assert len(kept.rows(kept.landing.dead_letter_table)) == 10
    optional(kept)
    assert replayed(kept).dead_letters == 10
    kept.check(Counter(range(30)))
    assert wrong(kept) == []
    assert replayed(kept).dead_letters == 0


@pytest.mark.heavy
def test_between_the_tables_of_a_range_that_is_landed_anew_nothing_is_open(kept: World) -> None:
    """Its data table has the new rows, and the dead-letter table the rejects of before."""
    optional(kept)
    anew = replay(kept, "0=0-30")
    anew.read()
    with anew.session() as session, deaths(2, "before"), pytest.raises(Killed):
        replace_lane(session, anew.run_identity("end"))
    kept.check(Counter(range(30)))
    preview = replayed(kept)
    assert (preview.dead_letters, preview.others[State.WAITS.value]) == (0, 10)
    with anew.session() as session:
        replace_lane(session, anew.run_identity("again"))
        close_lane(session)
    assert replayed(kept).dead_letters == 0
    kept.check(Counter(range(30)))
    assert wrong(kept) == []


@pytest.mark.heavy
@pytest.mark.parametrize("before", ["the look", "the request"])
def test_dead_letters_that_were_read_before_a_range_was_landed_anew_are_left_alone(
    kept: World, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read, then the whole range is landed anew by the new rule, and only then they are to be published."""
    optional(kept)
    made_of, reads, done = replaying.made_of, replaying.select, list[None]()

    def landed_anew() -> None:
        if not done:
            done.append(None)
            replay(kept, "0=0-30").finish()

    def slow(*args: Any, **options: Any) -> Any:
        made = made_of(*args, **options)
        landed_anew()
        return made

    def read_complete(*args: Any) -> Any:
        found = list(reads(*args))
        landed_anew()
        return iter(found)

    name, act = ("select", read_complete) if before == "the look" else ("made_of", slow)
    monkeypatch.setattr(replaying, name, act)
    found = replayed(kept)
    assert done
    assert found.dead_letters == 0
    kept.check(Counter(range(30)))
    assert wrong(kept) == []


@pytest.mark.heavy
def test_those_of_a_cluster_that_was_left_are_replayed(late: World) -> None:
    """What the landing had is a stream that nobody lands in."""
    with late.session() as session:
        from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import swap_sections
        from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord

        for name in late.landing.tables:
            record = SnapshotRecord(kind=SnapshotKind.INIT, branch="main", landing=late.landing.name, lane="live")
            swap_sections(
                session.tables,
                name,
                record,
                lambda state: tuple(
                    one
                    for s in state.sections
                    for one in (changed(s, lane="live@old"), changed(s, covered=s.covered - s.covered, starts={}))
                ),
            )
    optional(late)
    assert replayed(late).dead_letters == 10
    late.check(LIVE_LANDED + Counter(range(30, 60, 3)))
