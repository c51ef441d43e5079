# SPDX-License-Identifier: Apache-2.0
"""Dead letters become rows exactly once: after a fix, killed anywhere, two at once, next to runs and other engines."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.offsets import RangeSet
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.operations.dead_letters.counts import counted, open_dead_letters
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.open_set import State
from airflow_provider_lakecommit.operations.dead_letters.replay import Replayed, replay
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.table_history import Severity
from airflow_provider_lakecommit.status.verify import check_landing
from tests.faults.test_sweep import files
from tests.fixtures.kafka import create_topic, delete_topic
from tests.support.declared import nested
from tests.support.waiting import PATIENCE, until
from tests.support.world import Killed, World, deaths

pytestmark = pytest.mark.faults

DECISION = Decision(
    command="dead-letters --replay", actor="ann", host="here", at="2026-01-01T00:00:00+00:00", reason="fixed"
)
SCHEMA = {
    "schema": [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string", "required": True}]
}
ALL = Selection()


def good(n: int) -> str:
    return json.dumps({"id": n, "name": f"n{n}"})


def nameless(n: int) -> str:
    """A reject while `name` is required."""
    return json.dumps({"id": n})


def replayed(world: World, selection: Selection = ALL, *, dry: bool = False, **options: Any) -> Replayed:
    with world.session() as session:
        return replay(session, selection, decision=None if dry else DECISION, **options)


def optional(world: World) -> None:
    """The fix: the column may be missing from now on."""
    with world.session() as session, session.tables.load(world.landing.table).update_schema() as update:
        update.make_column_optional("name")


def wrong(world: World) -> list[str]:
    with world.session() as session:
        histories = [read_history(session.tables, t, "main", progress=lambda _: None) for t in world.landing.tables]
    return [str(f) for f in check_landing(world.landing, histories) if f.level is Severity.WRONG]


@pytest.fixture
def world(make_world: Callable[..., World], produce: Callable[..., object]) -> World:
    """Sixty records, each third of which is a dead letter."""
    world = make_world(2, create=SCHEMA, dead_letter_max_records=1000, dead_letter_max_ratio=1.0)
    produce(world.landing.topic_names[0], [nameless(n) if n % 3 == 0 else good(n) for n in range(60)])
    world.settle()
    return world


DEAD = [n for n in range(60) if n % 3 == 0]
LANDED = [n for n in range(60) if n % 3]


def test_dead_letters_of_a_window_that_waits_on_its_branch_become_rows(
    make_world: Callable[..., World], produce: Callable[..., object]
) -> None:
    world = make_world(1, create=SCHEMA, dead_letter_max_records=1000, dead_letter_max_ratio=1.0)
    world.landing = world.landing.changed(publish={"checks": ["SELECT * FROM added_rows WHERE id = 1"]})
    produce(world.landing.topic_names[0], [nameless(0), good(1), good(2), nameless(3)])
    with pytest.raises(TableError, match="LC6250"):
        world.run()
    assert world.rows(world.landing.dead_letter_table) == []
    with world.session() as session:
        assert [one.states[State.OPEN] for one in counted(session, ALL)] == [2]
        assert [letter.offset() for letter in open_dead_letters(session, ALL)] == [0, 3]
    optional(world)
    assert (replayed(world, dry=True).dead_letters, replayed(world).dead_letters) == (2, 2)
    assert replayed(world).dead_letters == 0
    world.landing = world.landing.changed(publish={"checks": ["SELECT * FROM added_rows WHERE id < 0"]})
    world.settle()
    world.check(Counter(range(4)))


def test_a_replay_after_a_fix_lands_each_once_and_all_adds_up(world: World) -> None:
    assert replayed(world, dry=True).to_dict()["refused"][0]["kind"] == "missing_required:name"
    before = replayed(world)
    assert (before.dead_letters, before.rows, before.refused.total()) == (0, 0, 20)
    world.check(Counter(LANDED))
    optional(world)
    preview = replayed(world, dry=True)
    assert (preview.dead_letters, preview.rows, preview.snapshots) == (20, 20, [])
    world.check(Counter(LANDED))
    done = replayed(world)
    assert (done.dead_letters, done.rows, len(done.snapshots)) == (20, 20, 1)
    assert done.coverage == preview.coverage
    world.check(Counter(range(60)))
    again = replayed(world)
    assert (again.dead_letters, again.others[State.REPLAYED.value]) == (0, 20)
    assert wrong(world) == []
    with world.session() as session:
        snapshot = session.tables.load(world.landing.table).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert "ann" in snapshot.summary.additional_properties["lakecommit.decisions"]


@pytest.mark.heavy
def test_runs_go_on_after_a_replay_and_keep_what_was_replayed(world: World, produce: Callable[..., object]) -> None:
    optional(world)
    replayed(world, Selection(limit=7))
    produce(world.landing.topic_names[0], [good(n) for n in range(60, 80)])
    world.settle()
    assert replayed(world).dead_letters == 13
    world.check(Counter(range(80)))
    assert wrong(world) == []


@pytest.mark.heavy(but=("chosen0-*",))
@pytest.mark.parametrize(
    ("chosen", "many"),
    [
        (Selection(limit=5), 5),
        (Selection(kinds=("missing_required",)), 20),
        (Selection(kinds=("missing_required:name", "not_json")), 20),
        (Selection(kinds=("not_json",)), 0),
        (Selection(since=datetime(2100, 1, 1, tzinfo=UTC)), 0),
        (Selection(since=datetime(2000, 1, 1, tzinfo=UTC), until=datetime(2100, 1, 1, tzinfo=UTC)), 20),
    ],
)
def test_only_what_is_meant_is_replayed(world: World, chosen: Selection, many: int) -> None:
    optional(world)
    assert replayed(world, chosen).dead_letters == many
    assert len(world.rows()) == 40 + many


@pytest.mark.heavy
def test_ranges_of_offsets(world: World) -> None:
    optional(world)
    topic = world.landing.topic_names[0]
    places = sorted((r["partition"], r["offset"]) for r in world.rows(world.landing.dead_letter_table))
    expected = {(topic, 0): RangeSet.of((0, 10)), (topic, 1): RangeSet.of((3, 4))}
    meant = [(p, o) for p, o in places if expected[topic, p].covers(next(iter(RangeSet.of((o, o + 1)))))]
    assert replayed(world, Selection(ranges=expected)).dead_letters == len(meant)
    assert replayed(world).dead_letters == 20 - len(meant)
    world.check(Counter(range(60)))


@pytest.mark.heavy(but=("after",))
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_the_request_the_same_goes_on(world: World, when: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_lakecommit.operations.dead_letters.replay.BATCH_RECORDS", 6)
    optional(world)
    killed = 0
    for _ in range(8):
        try:
            with deaths(2, when):
                replayed(world)
            break
        except Killed:
            killed += 1
    assert killed
    replayed(world)
    world.check(Counter(range(60)))
    assert wrong(world) == []


def test_two_at_once_next_to_a_run_double_nothing(
    world: World, produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_lakecommit.operations.dead_letters.replay.BATCH_RECORDS", 4)
    optional(world)
    produce(world.landing.topic_names[0], [good(n) for n in range(60, 100)])
    done: list[Replayed] = []
    trouble: list[BaseException] = []

    def work(act: Callable[[], Any]) -> None:
        try:
            done.extend(found for found in [act()] if isinstance(found, Replayed))
        except BaseException as e:
            trouble.append(e)

    acts = [lambda: replayed(world)] * 3 + [world.settle]
    threads = [threading.Thread(target=work, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == []
    assert sum(d.dead_letters for d in done) == 20
    world.check(Counter(range(100)))
    assert wrong(world) == []


def test_what_is_rolled_back_is_open_again(world: World, produce: Callable[..., object]) -> None:
    optional(world)
    with world.session() as session:
        before = session.tables.load(world.landing.table).metadata.current_snapshot_id
    assert before is not None
    replayed(world)
    with world.session() as session:
        session.tables.load(world.landing.table).manage_snapshots().rollback_to_snapshot(before).commit()
    world.check(Counter(LANDED))
    with pytest.raises(LedgerError, match="LC7405"):
        replayed(world, dry=True)
    assert replayed(world).dead_letters == 20
    world.check(Counter(range(60)))
    assert wrong(world) == []


@pytest.mark.heavy
def test_dead_letters_of_a_range_that_is_read_again_are_closed(world: World) -> None:
    """A user took rows out, and a user says that all from offset 10 on is read again, by the rules of now."""
    optional(world)
    topic, tables = world.landing.topic_names[0], list(world.landing.tables)
    dead = world.rows(world.landing.dead_letter_table)
    with world.session() as session:
        data = session.tables.load(world.landing.table)
        with data.transaction() as change:
            change.overwrite(data.scan().to_arrow().slice(0, 0))
        asserted = from_offsets(session, {(topic, 0): 10, (topic, 1): 10}, tables)
        assert_tables(session, asserted)
    world.settle()
    landed = Counter(r["id"] for r in world.rows())
    early = Counter(json.loads(r["value"])["id"] for r in dead if r["offset"] < 10)
    assert early
    assert not landed & early
    again = replayed(world)
    assert again.dead_letters == early.total()
    world.check(landed | early)
    assert max((landed + early).values()) == 1


@pytest.mark.heavy
def test_where_all_was_rejected_nothing_waits_for_the_data_table(
    make_world: Callable[..., World], produce: Callable[..., object]
) -> None:
    """No row came, so that the ledger of the data table is behind."""
    world = make_world(2, create=SCHEMA, dead_letter_max_records=1000, dead_letter_max_ratio=1.0)
    topic = world.landing.topic_names[0]
    produce(topic, [nameless(n) for n in range(50)])
    world.settle()
    optional(world)
    preview = replayed(world, dry=True)
    assert (preview.dead_letters, preview.others) == (50, Counter())
    assert replayed(world).coverage == preview.coverage
    world.check(Counter(range(50)))
    produce(topic, [good(n) for n in range(50, 60)])
    world.settle()
    world.check(Counter(range(60)))
    assert replayed(world).dead_letters == 0
    assert wrong(world) == []


@pytest.mark.heavy
def test_a_compacted_dead_letter_table_and_rows_that_a_user_took(world: World) -> None:
    optional(world)
    with world.session() as session:
        dead = session.tables.load(str(world.landing.dead_letter_table))
        rows = dead.scan().to_arrow()
        dead.overwrite(rows.slice(5))
        dead.append(rows.slice(6, 3))
    done = replayed(world)
    assert (done.dead_letters, done.others[State.TWICE.value]) == (15, 3)
    assert len(world.rows()) == 55
    assert max(Counter(r["id"] for r in world.rows()).values()) == 1


@pytest.mark.heavy
def test_a_value_that_was_fixed_in_the_dead_letter_table(world: World) -> None:
    with world.session() as session:
        dead = session.tables.load(str(world.landing.dead_letter_table))
        rows = dead.scan().to_arrow().to_pylist()
        for row in rows:
            row["value"] = good(json.loads(row["value"])["id"]).encode()
        import pyarrow as pa

        dead.overwrite(pa.Table.from_pylist(rows, schema=dead.schema().as_arrow()))
    assert replayed(world).dead_letters == 20
    world.check(Counter(range(60)))
    assert wrong(world) == []


@pytest.mark.heavy
def test_rows_of_unlanded_positions_are_left_alone(world: World) -> None:
    optional(world)
    with world.session() as session:
        dead = session.tables.load(str(world.landing.dead_letter_table))
        forged = dead.scan().to_arrow().slice(0, 1).to_pylist()[0]
        import pyarrow as pa

        others = [{**forged, "offset": 10_000}, {**forged, "topic": "another"}, {**forged, "landing": "another"}]
        dead.append(pa.Table.from_pylist(others, schema=dead.schema().as_arrow()))
    done = replayed(world)
    assert (done.dead_letters, done.others[State.WAITS.value]) == (20, 2)
    world.check(Counter(range(60)))


@pytest.mark.heavy
def test_a_replay_leaves_room_in_the_ledger_for_landings(
    world: World, produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    optional(world)
    monkeypatch.setattr("airflow_provider_lakecommit.operations.dead_letters.replay.MOST_ROOM", 0.001)
    with pytest.raises(LedgerError, match="LC7408"):
        replayed(world)
    world.check(Counter(LANDED))
    made = set(files(world)) - {Path(p) for p in _paths(world)}
    assert made == set()
    monkeypatch.undo()
    assert replayed(world).dead_letters == 20


def _paths(world: World) -> list[str]:
    with world.session() as session:
        tasks = session.tables.load(world.landing.table).scan().plan_files()
        return [task.file.file_path.removeprefix("file://") for task in tasks]


@pytest.mark.heavy
def test_a_landing_whose_dead_letter_table_is_another_one_now(world: World, produce: Callable[..., object]) -> None:
    optional(world)
    former = world.landing.dead_letter_table
    later = replace(world, landing=replace(world.landing, dead_letter_table="shop.dead2"))
    produce(world.landing.topic_names[0], [good(60)])
    later.settle()
    assert replayed(later).dead_letters == 0
    assert replayed(later, table=former).dead_letters == 20
    later.check(Counter(range(61)))


@pytest.mark.heavy
def test_metadata_columns_are_those_of_the_first_reading(
    make_world: Callable[..., World], produce: Callable[..., object]
) -> None:
    world = make_world(1, create=SCHEMA, metadata_columns=True, dead_letter_max_ratio=1.0)
    produce(world.landing.topic_names[0], [("k0", nameless(0)), ("k1", good(1))])
    world.settle()
    optional(world)
    replayed(world)
    rows = {r["id"]: r for r in world.rows()}
    assert (rows[0]["kafka_offset"], rows[0]["kafka_key"], rows[0]["kafka_topic"]) == (0, b"k0", world.landing.topics)
    assert rows[0]["kafka_timestamp"] is not None


HOSTILE: list[bytes] = [
    b"\xff\xfe not text",
    b"",
    b"null",
    b"[]",
    b'{"id": 1, "id": 2, "name": "twice"}',
    b'{"id": 9223372036854775808, "name": "too large"}',
    b'{"id": 1, "name": "\\ud800"}',
    b'{"id": 1' + b" " * 200_000,
    b'{"id": 5, "nested": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"id": null}',
]


@pytest.mark.heavy
def test_hostile_values_stay_open_and_do_no_harm(
    make_world: Callable[..., World], produce: Callable[..., object]
) -> None:
    world = make_world(1, create=SCHEMA, dead_letter_max_records=1000, dead_letter_max_ratio=1.0)
    values = [*HOSTILE, nameless(100), good(101)]
    produce(world.landing.topic_names[0], [(b"\x00\xff", v) for v in values], headers=[("h", b"\xff"), ("", None)])
    world.settle()
    optional(world)
    preview = replayed(world, dry=True)
    done = replayed(world)
    assert (done.dead_letters, done.refused) == (preview.dead_letters, preview.refused)
    assert done.refused.total() + done.dead_letters == len(world.rows(world.landing.dead_letter_table))
    assert all(done.reasons[kind] for kind in done.refused)
    assert {100, 101} <= {r["id"] for r in world.rows()}
    assert replayed(world).dead_letters == 0
    assert wrong(world) == []


@pytest.mark.heavy
def test_a_topic_that_was_made_anew_leaves_no_guess(
    world: World, produce: Callable[..., object], admin: AdminClient
) -> None:
    """Offsets that both incarnations had are distinguished: those of the former one are closed."""
    optional(world)
    topic = world.landing.topic_names[0]
    former = {(r["partition"], r["offset"]) for r in world.rows(world.landing.dead_letter_table)}
    delete_topic(admin, topic)
    create_topic(admin, topic, 2)
    with world.session() as session:
        ledger_init(session, "earliest")
    # Records without a key may all have come to one partition.
    both = {n: min(o for p, o in former if p == n) for n in {p for p, _ in former}}
    for n, first in both.items():
        produce(topic, [good(60 + n * 100 + i) for i in range(first)], partition=n)
        produce(topic, ["no json at all"], partition=n)
    world.settle()
    after = world.rows()
    done = replayed(world)
    assert (done.dead_letters, done.refused) == (0, Counter({"not_json": len(both)}))
    assert done.others == Counter({State.REPLAYED.value: 20})
    assert world.rows() == after


@pytest.mark.heavy
def test_another_landing_of_the_tables_keeps_its_own(
    world: World, make_topic: Callable[..., str], produce: Callable[..., object]
) -> None:
    other_topic = make_topic(1)
    other = replace(world, landing=replace(world.landing, name="others", topics=other_topic))
    produce(other_topic, [nameless(n) if n % 2 else good(n) for n in range(100, 120)])
    other.settle()
    optional(world)
    assert replayed(world).dead_letters == 20
    assert replayed(other, Selection(limit=4)).dead_letters == 4
    world.settle()
    assert replayed(other).dead_letters == 6
    assert replayed(world).dead_letters == 0
    world.check(Counter([*range(60), *range(100, 120)]))
    assert wrong(world) == []
    assert wrong(other) == []


@pytest.mark.heavy
def test_a_dead_letter_table_that_was_rolled_back(world: World, produce: Callable[..., object]) -> None:
    """Its rows are missing, and come again when their range is read again by the same rules."""
    with world.session() as session:
        dead = session.tables.load(str(world.landing.dead_letter_table))
        dead.manage_snapshots().rollback_to_snapshot(dead.metadata.snapshots[0].snapshot_id).commit()
    assert wrong(world) == []
    world.settle()
    assert len(world.rows(world.landing.dead_letter_table)) == 20
    optional(world)
    assert replayed(world).dead_letters == 20
    world.check(Counter(range(60)))


def head(world: World) -> int | None:
    with world.session() as session:
        return session.tables.load(world.landing.table).metadata.current_snapshot_id


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kill_9_at_random_moments(world: World, produce: Callable[..., object], tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    produce(world.landing.topic_names[0], [nameless(n) for n in range(60, 6000)])
    world.settle()
    optional(world)
    stated = {k: v for k, v in world.landing.to_flat().items() if k not in ("kafka_config_id", "iceberg_conn_id")}
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps({**nested(**stated), "kafka": dict(world.kafka), "catalog": world.catalog}))
    program = (
        "import airflow_provider_lakecommit.operations.dead_letters.replay as r; r.BATCH_RECORDS = 97; "
        "from airflow_provider_lakecommit.cli.main import main; "
        f"raise SystemExit(main(['dead-letters', {str(path)!r}, '--replay']))"
    )
    killed = 0
    for _ in range(30):
        before = head(world)
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # As soon as some of it is in the table, which is long before all of it is.
        until(lambda: child.poll() is not None or head(world) != before, PATIENCE)  # noqa: B023
        time.sleep(chance.uniform(0.0, 0.3))
        if child.poll() is None:
            child.kill()
            killed += 1
        if child.wait() == 0:
            break
        assert child.returncode == -signal.SIGKILL
        if killed == 5:
            break
    replayed(world)
    assert killed
    world.check(Counter(range(6000)))
    assert wrong(world) == []
