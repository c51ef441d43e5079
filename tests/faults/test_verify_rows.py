# SPDX-License-Identifier: Apache-2.0
"""`verify --rows`: what others did to the rows of a table is found by the rows, whatever the sums say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.replay import replay as replay_dead_letters
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.record_rows import check_rows
from airflow_provider_lakecommit.status.table_history import Severity
from airflow_provider_lakecommit.status.upserted import check_keys
from tests.fakes.position_deletes import delete_positions
from tests.faults.test_lanes import lane
from tests.faults.test_replay import DECISION, odd, replay
from tests.faults.test_routes import FIELDS, mixed
from tests.support.declared import changed_landing
from tests.support.in_memory import memory_world
from tests.support.messes import table_of
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]
NUMBERED = [{"name": "id", "type": "long"}]


def found(world: World, meanwhile: Callable[[], object] = lambda: None) -> dict[Severity, list[str]]:
    with world.session() as session:
        histories = [read_history(session.tables, t, "main", progress=lambda _: None) for t in world.landing.tables]
        meanwhile()
        out: dict[Severity, list[str]] = {level: [] for level in Severity}
        for f in check_rows(world.landing, histories, session.tables, lambda _: None):
            out[f.level].append(f"{f.table}: {f.text}".replace(str(world.landing.topics), "T"))
    return out


@pytest.fixture
def world(make_world: Make, produce: Produce) -> World:
    """All ways by which rows come: live, a stream, dead letters and a replay of some of it."""
    made = make_world(metadata_columns=True, start="latest", unknown_fields="dead_letter", dead_letter_max_ratio=1.0)
    topic = made.landing.topics
    produce(topic, records(0, 20), partition=0)
    made.settle()
    produce(topic, [*records(20, 20), *odd(40, 10)], partition=0)
    produce(topic, records(100, 30), partition=1)
    made.settle()
    lane(made, "0=0-20").finish()
    made.landing = changed_landing(made.landing, unknown_fields="ignore")
    with made.session() as session:
        replay_dead_letters(session, Selection(limit=4), decision=DECISION)
    replay(made, "1=10-20").finish()
    return made


@pytest.mark.heavy
def test_each_record_is_counted_once_whichever_way_it_came(world: World) -> None:
    findings = found(world)
    assert findings[Severity.WRONG] == []
    # Of ranges that were landed anew in part, and of what a stream left without a row, nothing tells how many have one.
    assert all("no remaining snapshot has" in text for text in findings[Severity.NOTE])


def test_rows_that_are_there_twice_or_of_no_record_are_wrong(world: World) -> None:
    table = table_of(world)
    rows = table.scan(row_filter="id < 3").to_arrow()
    at = rows.column_names.index("kafka_offset")
    strange = rows.set_column(at, rows.schema.field(at), pa.array([n + 900 for n in range(3)], pa.int64()))
    table.append(pa.concat_tables([rows, strange]))
    twice, beyond = sorted(found(world)[Severity.WRONG], reverse=True)
    assert twice == "shop.rows: records are in it more than once: T[0] [0, 3) (3 offsets)"
    assert beyond == "shop.rows: it has rows of records that its ledger does not have: T[0] [900, 903) (3 offsets)"


@pytest.mark.heavy
def test_a_compaction_that_lost_one_row_and_doubled_another_is_wrong(world: World) -> None:
    table = table_of(world)
    rows = table.scan().to_arrow().sort_by("id")
    table.overwrite(pa.concat_tables([rows.slice(1), rows.slice(1, 1)]))
    check_verified(world)
    findings = found(world)
    assert findings[Severity.WRONG] == ["shop.rows: records are in it more than once: T[0] [1, 2) (1 offsets)"]
    assert "of T[0] [0, 20) 19 records have a row, but 20 were counted: other writers" in findings[Severity.NOTE][0]


@pytest.mark.heavy
def test_rows_deleted_without_a_recorded_operation_are_wrong(world: World) -> None:
    """Position deletes whose snapshot does not count them."""
    table = table_of(world)
    lost = next(f for t in table.scan().plan_files() if (f := t.file) and f.record_count == 10)
    delete_positions(table, "main", [(lost, 0), (lost, 1)])
    (text,) = found(world)[Severity.WRONG]
    assert " records have a row, " in text


def test_rows_that_a_run_lands_meanwhile_are_no_finding(tmp_path: Path) -> None:
    with memory_world(tmp_path, create={"schema": NUMBERED}, metadata_columns=True) as world:
        world.send(*records(0, 10))
        assert found(world, lambda: world.send(*records(10, 10))) == {Severity.WRONG: [], Severity.NOTE: []}


def test_rows_from_before_a_metadata_column_was_dropped_and_added_again_name_no_record(tmp_path: Path) -> None:
    with memory_world(tmp_path, create={"schema": NUMBERED}, metadata_columns=True) as world:
        world.send(*records(0, 10))
        with table_of(world).update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("kafka_topic")
        with table_of(world).update_schema() as update:
            update.add_column("kafka_topic", StringType())
        findings = found(world)
        assert findings[Severity.WRONG] == []
        assert "shop.rows: 10 of 10 rows do not identify their record" in findings[Severity.NOTE]


def test_keys_of_a_landing_without_upsert_are_not_checked_and_a_note_tells_so(tmp_path: Path) -> None:
    with memory_world(tmp_path) as world, world.session() as session:
        (note,) = check_keys(world.landing, session.tables, lambda _: None)
        assert (note.level, note.text) == (Severity.NOTE, "the landing has no `upsert`: no key was checked")


@pytest.mark.heavy
def test_a_file_that_cannot_be_read_hides_no_other(world: World) -> None:
    table = table_of(world)
    newest = max(table.scan(row_filter="kafka_partition = 1").plan_files(), key=lambda t: t.file.record_count)
    corrupted = Path(newest.file.file_path.removeprefix("file://"))
    corrupted.write_bytes(b"x" * corrupted.stat().st_size)
    table.append(table.scan(row_filter="id < 2").to_arrow())
    wrong = found(world)[Severity.WRONG]
    assert any(corrupted.name in text for text in wrong)
    assert "shop.rows: records are in it more than once: T[0] [0, 2) (2 offsets)" in wrong


@pytest.mark.heavy
def test_tables_of_a_route_are_counted_together(make_world: Make, produce: Produce) -> None:
    world = make_world(1, metadata_columns=True, **FIELDS)
    produce(world.landing.topics, mixed(0, 40))
    world.settle()
    assert found(world)[Severity.WRONG] == []
    table = table_of(world, "shop.refunds")
    table.append(table.scan(limit=1).to_arrow())
    (text,) = found(world)[Severity.WRONG]
    assert text.startswith("shop.rows and shop.refunds: records are in it more than once")


@pytest.mark.heavy
def test_rows_without_the_columns_are_reported_as_such(make_world: Make, produce: Produce) -> None:
    world = make_world(1, metadata_columns=False)
    produce(world.landing.topics, records(0, 10))
    world.settle()
    findings = found(world)
    assert findings[Severity.WRONG] == []
    assert "its rows cannot be counted by record" in findings[Severity.NOTE][0]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_dead_letters_that_become_several_rows_each_are_known_as_any_other_row(tmp_path: Path, start: str) -> None:
    """In one entry of the ledger, or in those of two streams; their range can be replaced afterwards."""
    csv = {"columns": ["id", "name", "more"], "rows": "many"}
    columns = [*NUMBERED, {"name": "name", "type": "string"}]
    options = {"create": {"schema": columns}, "format": "csv", "csv": csv, "unknown_fields": "dead_letter"}
    with memory_world(tmp_path, **options, metadata_columns=True, start=start) as world:
        for first in (0, 10):
            world.send(("k", f"{first},a,x\n{first},b,x\n{first},c,x"), ("k", f"{first + 1},a,"), ("k", "9,d,x"))
        if start == "latest":
            lane(world, "0=0-3").finish()
        world.landing = changed_landing(world.landing, unknown_fields="ignore")
        with world.session() as session:
            assert replay_dead_letters(session, Selection(), decision=DECISION).rows == 8
        world.settle()
        assert found(world)[Severity.WRONG] == []
        replay(world, "0=0-1").finish()
        assert Counter(row["id"] for row in world.rows()) == {0: 3, 1: 1, 9: 2, 10: 3, 11: 1}
        assert found(world)[Severity.WRONG] == []
        check_verified(world)
