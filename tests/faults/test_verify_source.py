# SPDX-License-Identifier: Apache-2.0
"""`verify --source`: every difference between a table and the records of its topics is found, and nothing else is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyiceberg.types import StringType

from airflow_provider_lakecommit.core.offsets import RangeSet
from airflow_provider_lakecommit.cycle import ledger_state
from airflow_provider_lakecommit.exceptions import SourceError, SparkJobError, TableError
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.replay import replay as replay_dead_letters
from airflow_provider_lakecommit.operations.decisions.starts import Way
from airflow_provider_lakecommit.operations.decisions.unblock import unblock
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from airflow_provider_lakecommit.operations.proof.chosen import Sample
from airflow_provider_lakecommit.operations.proof.prove import Proof, source_findings
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from airflow_provider_lakecommit.status.table_history import Severity
from tests.fakes.position_deletes import delete_positions
from tests.faults.test_crossings import anew, expire, go_on
from tests.faults.test_lanes import lane, removed
from tests.faults.test_replay import DECISION, odd
from tests.faults.test_replay import replay as replay_range
from tests.faults.test_routes import FIELDS as ROUTED
from tests.faults.test_routes import mixed
from tests.faults.test_transforms import FIELDS as EXPLODED
from tests.faults.test_transforms import orders
from tests.faults.test_upserts import JSON, SOFT, Model
from tests.support.declared import changed_landing
from tests.support.in_memory import TOPIC, MemoryWorld, memory_world
from tests.support.messes import table_of
from tests.support.world import SCHEMA, World, records

__all__ = ["anew"]

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., Any]


@dataclass
class Tasks:
    """Runs the tasks of a job one after the other, as Spark would."""

    ahead: int = 0

    def start(self) -> None: ...

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        again, own = WindowJob.from_json(job.to_json()), Secrets.from_json(secrets.to_json())
        return [run_task(again, own, n) for n in range(len(again.plan.slices))]

    def stop(self) -> None: ...

    def close(self) -> None: ...


def files(world: World) -> set[Path]:
    return set(Path(world.catalog["warehouse"].removeprefix("file://")).rglob("*.parquet"))


def proof_of(world: World, sample: Sample | None = None) -> tuple[Proof, dict[Severity, list[str]]]:
    """Return the proof and its findings; it leaves no file behind."""
    before = files(world)
    with world.session() as session:
        proof, found = source_findings(session, sample or Sample(), Tasks(), world.lines.append)
    assert files(world) == before
    out: dict[Severity, list[str]] = {level: [] for level in Severity}
    for f in found:
        out[f.level].append(f"{f.table}: {f.text}".replace(str(world.landing.topics), "T"))
    return proof, out


def counts(world: World, table: str = "shop.rows") -> dict[str, int]:
    proof, found = proof_of(world)
    counted = dict(+proof.differences[table].counts)
    wrong = [text for text in found[Severity.WRONG] if text.startswith(f"{table}: ")]
    assert bool(wrong) == bool(set(counted) - {"undecided"})
    return counted


def clean(world: World) -> Proof:
    proof, found = proof_of(world)
    assert found == {level: [] for level in Severity}
    return proof


def put(world: World, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], table: str = "shop.rows") -> None:
    """Replace all rows of a table, as another writer could."""
    there = table_of(world, table)
    rows = there.scan().to_arrow()
    there.overwrite(pa.Table.from_pylist(change(rows.to_pylist()), schema=rows.schema))


@pytest.fixture
def world(make_world: Make, produce: Produce) -> World:
    made = make_world(metadata_columns=True, dead_letter_max_ratio=1.0)
    produce(made.landing.topics, [*records(0, 70), "no json"], partition=0)
    produce(made.landing.topics, records(100, 30), partition=1)
    made.settle()
    return made


def test_a_table_that_equals_its_source_is_clean(world: World) -> None:
    proof = clean(world)
    assert (proof.records, proof.differences["shop.rows"].rows, proof.differences["shop.dead"].rows) == (101, 100, 1)


def test_a_lost_a_doubled_and_an_altered_row_are_found(world: World) -> None:
    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_id = {r["id"]: r for r in rows}
        del by_id[3]
        by_id[104]["name"] = None
        return [*by_id.values(), by_id[5]]

    put(world, change)
    assert counts(world) == {"lost": 1, "doubled": 1, "altered": 1}
    _, found = proof_of(world)
    (text,) = found[Severity.WRONG]
    assert "lost: T[0] offset 3" in text
    assert "doubled: T[0] offset 5" in text
    assert "altered: T[1] offset 4, column name: the source has 'n104', the table None" in text


def test_a_row_of_no_record_is_found(world: World) -> None:
    rows = table_of(world).scan(row_filter="id = 7").to_arrow()
    at = rows.column_names.index("kafka_offset")
    strange = rows.set_column(at, rows.schema.field(at), pa.array([70], pa.int64()))
    table_of(world).append(strange)
    assert counts(world) == {"foreign": 1}


def test_a_dead_letter_that_is_missing_is_lost(world: World) -> None:
    table_of(world, "shop.dead").delete("offset = 70")
    assert counts(world, "shop.dead") == {"lost": 1}


TYPED = [
    {"name": "id", "type": "long", "required": True},
    {"name": "n", "type": "int"},
    {"name": "text", "type": "string"},
    {"name": "at", "type": "timestamptz"},
    {"name": "price", "type": "decimal(9,2)"},
    {"name": "ratio", "type": "double"},
    {"name": "flag", "type": "boolean"},
    {"name": "tags", "type": "list<string>"},
    {"name": "place", "type": "struct<x: double, name: string>"},
    {"name": "day", "type": "date"},
    {"name": "hour", "type": "time"},
    {"name": "uid", "type": "uuid"},
    {"name": "bytes", "type": "binary"},
    {"name": "counts", "type": "map<string, long>"},
]


def typed(n: int) -> dict[str, Any]:
    value = {"id": n, "n": n, "text": f"t{n}", "at": "2026-01-01T00:00:00.000001Z", "price": f"{n}.10", "ratio": -0.0}
    value |= {"flag": True, "tags": ["a", "b"], "place": {"x": 0.5, "name": "here"}, "day": "2026-01-01"}
    uid = f"12345678-1234-5678-1234-5678123456{n:02d}"
    return {**value, "hour": "12:00:00.000001", "uid": uid, "bytes": "AAE=", "counts": {"a": n, "b": None}}


@pytest.mark.heavy
def test_an_altered_value_of_each_type_is_found(make_world: Make, produce: Produce) -> None:
    world = make_world(1, create={"schema": TYPED}, encodings={"bytes": "base64"}, metadata_columns=True)
    produce(world.landing.topics, [(str(n), json.dumps(typed(n))) for n in range(14)])
    world.settle()
    clean(world)

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_id = {r["id"]: r for r in rows}
        by_id[1]["n"] += 1
        by_id[2]["text"] = ""
        by_id[3]["at"] = by_id[3]["at"].replace(microsecond=2)
        by_id[4]["price"] = None
        by_id[5]["ratio"] = 0.0
        by_id[6]["flag"] = False
        by_id[7]["tags"] = ["b", "a"]
        by_id[8]["place"]["x"] = float("nan")
        by_id[9]["day"] = None
        by_id[10]["hour"] = by_id[10]["hour"].replace(microsecond=0)
        by_id[11]["uid"] = by_id[12]["uid"]
        by_id[12]["bytes"] = b""
        by_id[13]["counts"] = [("b", None), ("a", 13)]
        return [*by_id.values()]

    put(world, change)
    proof, _ = proof_of(world)
    found = proof.differences["shop.rows"]
    assert dict(found.counts) == {"altered": 13}
    assert [e.column for e in found.examples] == [f["name"] for f in TYPED[1:11]]
    assert [e.offset for e in found.examples] == list(range(1, 11))


@pytest.mark.heavy
def test_nulls_and_missing_fields_are_clean(make_world: Make, produce: Produce) -> None:
    world = make_world(1, create={"schema": TYPED}, encodings={"bytes": "base64"}, metadata_columns=True)
    values = [{"id": 0}, dict.fromkeys(typed(0)) | {"id": 1}, {**typed(2), "tags": [], "place": {"x": None}}]
    produce(world.landing.topics, [*((str(v["id"]), json.dumps(v)) for v in values), ("3", None)])
    world.settle()
    proof = clean(world)
    assert (proof.records, proof.differences["shop.rows"].rows) == (4, 3)


@pytest.mark.heavy
def test_csv_is_clean(make_world: Make, produce: Produce) -> None:
    world = make_world(
        1, format="csv", csv={"columns": ["id", "name"]}, metadata_columns=True, dead_letter_max_ratio=1.0
    )
    produce(world.landing.topics, ["1,one", "2,two", "x,none", "3,"])
    world.settle()
    proof = clean(world)
    assert (proof.differences["shop.rows"].rows, proof.differences["shop.dead"].rows) == (3, 1)


@pytest.mark.heavy
def test_several_rows_of_a_record(make_world: Make, produce: Produce) -> None:
    world = make_world(**EXPLODED)
    produce(world.landing.topics, orders(0, 60))
    world.settle()
    clean(world)

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows.sort(key=lambda r: (r["kafka_partition"], r["kafka_offset"], r["sku"]), reverse=True)
        return rows

    put(world, change)
    clean(world)

    def lose(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[3]["each"] = -1
        return [*rows[1:], rows[5]]

    put(world, lose)
    assert counts(world) == {"lost": 1, "altered": 1, "doubled": 1}


@pytest.mark.heavy
def test_tables_of_a_route(make_world: Make, produce: Produce) -> None:
    world = make_world(1, metadata_columns=True, **ROUTED)
    produce(world.landing.topics, mixed(0, 60))
    world.settle()
    clean(world)
    row = table_of(world, "shop.refunds").scan(limit=1).to_arrow()
    table_of(world, "shop.refunds").append(row)
    assert counts(world, "shop.refunds") == {"doubled": 1}
    assert counts(world) == {}


@pytest.mark.heavy
def test_every_way_by_which_rows_come_is_clean(make_world: Make, produce: Produce) -> None:
    """Live, a backfill, a replayed range, compaction with position deletes, and expired snapshots."""
    world = make_world(metadata_columns=True, start="latest", dead_letter_max_ratio=1.0)
    topic = world.landing.topics
    produce(topic, records(0, 20), partition=0)
    world.settle()
    produce(topic, [*records(20, 30), "no json"], partition=0)
    produce(topic, records(100, 30), partition=1)
    world.settle()
    lane(world, "0=0-20").finish()
    replay_range(world, "1=10-20").finish()
    assert clean(world).records == 81
    with world.session() as session:
        assert [*compact(session, write=True)]
    expire(world)
    assert clean(world).records == 81
    rows = table_of(world)
    file = next(t.file for t in rows.scan().plan_files())
    delete_positions(rows, "main", [(file, 0), (file, 1)])
    assert counts(world) == {"lost": 2}


def test_what_the_source_no_longer_has_is_counted(
    make_world: Make, produce: Produce, anew: Callable[[World, int], None]
) -> None:
    world = make_world(1, metadata_columns=True)
    produce(world.landing.topics, records(0, 50))
    world.settle()
    removed(world, 20)
    proof, found = proof_of(world)
    assert (proof.records, found[Severity.WRONG]) == (30, [])
    assert "20 offsets were not compared with the source, the source no longer has them" in found[Severity.NOTE][0]
    anew(world, 1)
    produce(world.landing.topics, records(100, 40))
    go_on(world, "earliest")
    world.settle()
    proof, found = proof_of(world)
    assert (proof.records, found[Severity.WRONG]) == (40, [])
    assert "50 offsets were not compared" in found[Severity.NOTE][0]
    table_of(world).delete("id = 105")
    assert counts(world) == {"lost": 1}


def test_ranges_of_other_rules_and_replayed_ones_are_counted(make_world: Make, produce: Produce) -> None:
    world = make_world(1, metadata_columns=True, unknown_fields="dead_letter", dead_letter_max_ratio=1.0)
    produce(world.landing.topics, [*records(0, 30), *odd(30, 5)])
    world.settle()
    clean(world)
    world.landing = changed_landing(world.landing, unknown_fields="ignore")
    produce(world.landing.topics, odd(35, 10))
    world.settle()
    with world.session() as session:
        replay_dead_letters(session, Selection(limit=4), decision=DECISION)
    proof, found = proof_of(world)
    assert (proof.records, found[Severity.WRONG]) == (10, [])
    assert proof.others["shop.rows"].keys() == {"other_rules"}
    assert "35 offsets were not compared" in found[Severity.NOTE][0]


@pytest.mark.parametrize("whole", [True, False])
def test_skipped_records_are_counted(make_world: Make, produce: Produce, whole: bool) -> None:
    world = make_world(1, metadata_columns=True, dead_letter_table=None)
    produce(world.landing.topics, [*records(0, 10), "no json", *records(11, 5)])
    for _ in range(4):
        world.run()
    with world.session() as session:
        unblock(session, skip=True, only_bad=not whole)
    world.settle()
    proof, found = proof_of(world)
    assert found[Severity.WRONG] == []
    if whole:
        assert {reason: len(c) for reason, c in proof.others["shop.rows"].items()} == {"unknown_rules": 16}
        return
    assert (proof.records, proof.dropped, proof.differences["shop.rows"].rows) == (15, 1, 15)
    assert "1 records are rejected, and no dead-letter table was compared" in found[Severity.NOTE][0]


def test_rows_that_do_not_name_their_record_are_an_error(make_world: Make, produce: Produce) -> None:
    world = make_world(1, metadata_columns=False)
    produce(world.landing.topics, records(0, 10))
    world.settle()
    with pytest.raises(TableError, match="LC8603"):
        proof_of(world)


def test_samples(world: World) -> None:
    topic = str(world.landing.topics)
    table_of(world).delete("id = 30")
    proof, found = proof_of(world, Sample(ranges={(topic, 0): RangeSet.of((10, 20))}))
    assert (proof.records, found[Severity.WRONG]) == (10, [])
    proof, found = proof_of(world, Sample(ranges={(topic, 0): RangeSet.of((25, 35))}))
    assert proof.differences["shop.rows"].counts == {"lost": 1}
    ranges = {(topic, 0): RangeSet.of((65, 80)), (topic, 7): RangeSet.of((0, 5))}
    proof, found = proof_of(world, Sample(ranges=ranges))
    assert (proof.records, found[Severity.WRONG]) == (6, [])
    assert found[Severity.NOTE] == [
        "shop.rows: stated ranges are not landed, so nothing was compared of them: T[0] [71, 80), T[7] [0, 5)"
    ]
    proof, _ = proof_of(world, Sample(share=0.1))
    assert proof.records == 10


def test_stated_ranges_of_which_nothing_can_be_compared_are_an_error_with_the_reason(tmp_path: Path) -> None:
    with memory_world(tmp_path, create={"schema": TYPED[:1]}, metadata_columns=True) as world:
        world.send(*records(0, 10))
        world.broker.remove_before(TOPIC, 0, 5)
        for start, why in ((0, "the source no longer has them"), (20, "they are not landed")):
            with pytest.raises(SourceError, match="LC8604") as raised:
                proof_of(world, Sample(ranges={(TOPIC, 0): RangeSet.of((start, start + 5))}))
            assert f"can be compared: {why}" in str(raised.value)


NAMED = {"transform": "select name || '' as name from record", "record_schema": [{"name": "name", "type": "string"}]}


@pytest.mark.parametrize("how", ["hard", "soft", "ignore", "sql"])
def test_upserts(make_world: Make, produce: Produce, how: str) -> None:
    ways = {"hard": JSON, "soft": SOFT, "ignore": {**JSON, "upsert_deletes": "ignore"}, "sql": {**SOFT, **NAMED}}
    fields = ways[how]
    world, model = make_world(**{**fields, "metadata_columns": True}), Model(1)
    for _ in range(3):
        produce(world.landing.topics, model.records(90))
        world.settle()
    assert clean(world).records == 270
    there = table_of(world)
    rows = there.scan().to_arrow().to_pylist()
    lost, altered, doubled, stale = sorted(r["id"] for r in rows if not r.get("_is_deleted"))[:4]

    def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        by_id = {r["id"]: r for r in rows}
        del by_id[lost]
        by_id[altered]["name"] = "other"
        by_id[stale]["kafka_offset"] -= 200
        return [*by_id.values(), by_id[doubled]]

    put(world, change)
    counted = counts(world)
    assert {kind: counted.get(kind, 0) for kind in ("lost", "altered", "doubled")} == {
        "lost": 1,
        "altered": 1,
        "doubled": 1,
    }


def test_a_row_whose_key_was_deleted_is_found(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **{**JSON, "metadata_columns": True})
    key = json.dumps({"id": 1})
    produce(
        world.landing.topics, [(key, json.dumps({"name": "a"})), (json.dumps({"id": 2}), json.dumps({"name": "b"}))]
    )
    world.settle()
    row = table_of(world).scan(row_filter="id = 1").to_arrow()
    produce(world.landing.topics, [(key, None)])
    world.settle()
    clean(world)
    table_of(world).append(row)
    assert counts(world) == {"stale": 1}


def test_rows_of_another_writer_that_name_no_record_are_found(tmp_path: Path) -> None:
    """One replaces the row of a key, the other has a key that was deleted."""
    marks = ("kafka_topic", "kafka_partition", "kafka_generation", "kafka_offset")
    with memory_world(tmp_path, **{**JSON, "metadata_columns": True}) as world:
        world.send(*[(json.dumps({"id": n}), json.dumps({"name": f"n{n}"})) for n in range(5)])
        world.send((json.dumps({"id": 4}), None))
        clean(world)

        def change(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            strange = {**rows[0], "name": "other", **dict.fromkeys(marks)}
            return [*(r for r in rows if r["id"] != 1), {**strange, "id": 1}, {**strange, "id": 4}]

        put(world, change)
        assert counts(world) == {"stale": 2}
        _, found = proof_of(world)
        (text,) = found[Severity.WRONG]
        assert "the source has a row of this key at 1, the table a row that names no record" in text
        assert "the source has a delete of this key at 5" in text


def test_a_row_is_found_where_no_compared_record_has_a_key(tmp_path: Path) -> None:
    with memory_world(tmp_path, **{**JSON, "metadata_columns": True, "dead_letter_max_ratio": 1.0}) as world:
        world.send((json.dumps({"id": 0}), json.dumps({"name": "a"})), ("no json", "no json"))
        put(world, lambda rows: [*rows, {**rows[0], "id": 1, "kafka_offset": 1}])
        proof, found = proof_of(world, Sample(ranges={(TOPIC, 0): RangeSet.of((1, 2))}))
        assert dict(proof.differences["shop.rows"].counts) == {"foreign": 1}
        assert "offset 1" in found[Severity.WRONG][0]


def test_rows_whose_metadata_columns_were_dropped_and_added_again_are_not_lost(tmp_path: Path) -> None:
    with memory_world(tmp_path, create={"schema": TYPED[:1]}, metadata_columns=True, dead_letter_table=None) as world:
        world.send(*records(0, 5))
        there = table_of(world)
        columns = [f for f in there.schema().fields if f.name.startswith("kafka_")]
        for again in (False, True):
            with there.update_schema(allow_incompatible_changes=True) as update:
                for f in columns:
                    update.add_column(f.name, f.field_type) if again else update.delete_column(f.name)
        with pytest.raises(TableError, match="LC8603"):
            proof_of(world)
        world.send(*records(5, 5))
        proof, found = proof_of(world)
        assert (proof.records, found[Severity.WRONG]) == (5, [])
        assert proof.others["shop.rows"].keys() == {"unmarked"}


def test_a_replayed_dead_letter_is_compared_in_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an upgrade that decodes more: the rules are as before, and the record gives a row now."""
    columns = [*TYPED[:1], {"name": "name", "type": "string"}]
    fields = {"create": {"schema": columns}, "metadata_columns": True, "unknown_fields": "dead_letter"}
    with memory_world(tmp_path, **fields) as world:
        world.send(*records(0, 5), *odd(5, 2))
        world.landing = changed_landing(world.landing, unknown_fields="ignore")
        with world.session() as session:
            replay_dead_letters(session, Selection(limit=1), decision=DECISION)
            ledger = ledger_state(session, "shop.rows")
        assert ledger is not None
        (before,) = ledger.sections[0].evaluated
        monkeypatch.setattr("airflow_provider_lakecommit.operations.proof.source_plan.rules_of", lambda *_: before)
        proof, found = proof_of(world)
        assert {n: {k: len(c) for k, c in o.items()} for n, o in proof.others.items()} == {
            "shop.rows": {"replayed": 1},
            "shop.dead": {"replayed": 1},
        }
        assert {n: dict(+d.counts) for n, d in proof.differences.items()} == {
            "shop.rows": {"lost": 1},
            "shop.dead": {"foreign": 1},
        }, "the other dead letter was not replayed"
        assert len(found[Severity.WRONG]) == 2


def test_rows_of_a_topic_of_this_name_in_another_cluster_are_not_compared(tmp_path: Path) -> None:
    with memory_world(tmp_path, create={"schema": TYPED[:1]}, metadata_columns=True, dead_letter_table=None) as world:
        world.send(*records(0, 5))
        world.broker.create("there", 1)
        world.broker.produce("there", records(5, 5), 0)
        replace(world, landing=changed_landing(world.landing, name="other", topics="there")).settle()
        put(world, lambda rows: [{**r, "kafka_topic": TOPIC} for r in rows])
        assert len({r["kafka_generation"] for r in world.rows()}) == 2
        clean(world)


def test_a_sample_of_upserts_is_never_wrong(make_world: Make, produce: Produce) -> None:
    world, model = make_world(1, **{**JSON, "metadata_columns": True}), Model(3)
    for _ in range(3):
        produce(world.landing.topics, model.records(60))
        world.settle()
    for start in range(0, 180, 25):
        ranges = {(str(world.landing.topics), 0): RangeSet.of((start, min(180, start + 25)))}
        _, found = proof_of(world, Sample(ranges=ranges))
        assert found[Severity.WRONG] == []


@pytest.mark.heavy
def test_upserts_by_a_column_and_keys_in_several_partitions(make_world: Make, produce: Produce) -> None:
    fields = {**JSON, "create": {"schema": [*JSON["create"]["schema"], {"name": "version", "type": "long"}]}}
    world = make_world(
        2, **{**fields, "metadata_columns": True, "upsert_order_by": ["version", "offset"], "upsert_deletes": "ignore"}
    )
    for version in (3, 1, 2):
        for partition in range(2):
            values = [
                (json.dumps({"id": n + partition}), json.dumps({"name": f"v{version}", "version": version}))
                for n in range(20)
            ]
            produce(world.landing.topics, values, partition=partition)
        world.settle()
    _, found = proof_of(world)
    assert found[Severity.WRONG] == []
    assert "keys are undecided" in found[Severity.NOTE][0]
    ids = table_of(world).scan().to_arrow().column("id").to_pylist()
    assert sorted(ids) == list(range(21))
    table_of(world).delete("id = 0")
    assert counts(world)["lost"] == 1


@pytest.mark.heavy
def test_upserts_of_a_backfill_a_reset_and_a_topic_made_anew(
    make_world: Make, produce: Produce, anew: Callable[[World, int], None]
) -> None:
    world, model = make_world(1, **{**SOFT, "metadata_columns": True}), Model(6)
    produce(world.landing.topics, model.records(90))
    world.landing = world.landing.changed(window={"start": "latest"})
    world.settle()
    produce(world.landing.topics, model.records(60))
    world.settle()
    lane(world, "0=0-90").finish()
    assert clean(world).records == 150
    go_on(world, {(str(world.landing.topics), 0): 100}, Way(again=True))
    world.settle()
    _, found = proof_of(world)
    assert found[Severity.WRONG] == []
    anew(world, 1)
    produce(world.landing.topics, model.records(60))
    go_on(world, "earliest")
    world.settle()
    proof, found = proof_of(world)
    assert (proof.records, found[Severity.WRONG]) == (60, [])
    newest = max(world.rows(), key=lambda r: (r["kafka_generation"], r["kafka_offset"]))
    table_of(world).delete(f"id = {newest['id']}")
    assert counts(world)["lost"] == 1


@pytest.mark.heavy
def test_compaction_after_a_new_column_changes_no_value(make_world: Make, produce: Produce) -> None:
    """A null list stays one when its file is rewritten in the current columns."""
    columns = [*TYPED[:1], {"name": "tags", "type": "list<struct<name: string>>"}]
    world = make_world(1, create={"schema": columns}, metadata_columns=True)
    for n in range(12):
        produce(world.landing.topics, [(str(n), json.dumps({"id": n}))])
        world.settle()
    with table_of(world).update_schema() as update:
        update.add_column("more", StringType())
    world.settle()
    before = len([*table_of(world).scan().plan_files()])
    with world.session() as session:
        assert [*compact(session, write=True)]
    tasks = [*table_of(world).scan().plan_files()]
    assert len(tasks) < before
    found = [pq.read_table(t.file.file_path.removeprefix("file://")) for t in tasks]
    assert sum(f.column("tags").null_count for f in found) == 12


@pytest.mark.heavy
def test_a_compacted_topic_is_clean(make_world: Make, produce: Produce, bootstrap: str) -> None:
    """Compaction removes records that are rows: offsets without a record."""
    world = make_world(1, metadata_columns=True)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.0",
        "max.compaction.lag.ms": "100",
        "min.compaction.lag.ms": "0",
    }
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, str(world.landing.topics), incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    produce(world.landing.topics, [("k", json.dumps({"id": n})) for n in range(30)])
    world.settle()
    until = time.monotonic() + 90
    while time.monotonic() < until:
        produce(world.landing.topics, [("other", json.dumps({"id": 1000}))])
        world.settle()
        proof, found = proof_of(world)
        assert found[Severity.WRONG] == []
        if proof.compacted:
            break
        time.sleep(2)
    assert proof.compacted > 0
    assert "log compaction may have removed" in found[Severity.NOTE][0]


def compact_away(world: MemoryWorld, *offsets: int) -> None:
    """Log compaction removes these records."""
    log = world.broker.topics[TOPIC].partitions[0]
    log.records = [r for r in log.records if r.offset() not in offsets]


def test_a_row_of_a_record_without_a_row_is_of_no_record_whatever_compaction_has_removed_near_it(
    tmp_path: Path,
) -> None:
    with memory_world(tmp_path, metadata_columns=True, create=SCHEMA) as world:
        world.send(*records(0, 8), ("deleted", None), (b"k", b"no json"), *records(10, 2))
        compact_away(world, 2, 3)
        proof, found = proof_of(world)
        assert (proof.compacted, found[Severity.WRONG]) == (2, [])

        def strange(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [*rows, *({**rows[0], "kafka_offset": offset} for offset in (8, 9))]

        put(world, strange)
        proof, _ = proof_of(world)
        found_in = proof.differences["shop.rows"]
        assert (proof.compacted, dict(found_in.counts)) == (2, {"foreign": 2})
        assert [e.offset for e in found_in.examples] == [8, 9]


def test_a_key_of_a_record_without_a_row_is_of_no_record_whatever_compaction_has_removed(tmp_path: Path) -> None:
    with memory_world(tmp_path, **{**JSON, "metadata_columns": True}) as world:
        world.send(*[(json.dumps({"id": n}), json.dumps({"name": "a"})) for n in range(6)])
        world.send((json.dumps({"id": 5}), None), (b'{"id": "no number"}', b"{}"))
        compact_away(world, 2)

        def strange(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [*rows, {**rows[0], "id": 100, "kafka_offset": 7}]

        put(world, strange)
        proof, _ = proof_of(world)
        found_in = proof.differences["shop.rows"]
        assert (proof.compacted, dict(+found_in.counts)) == (1, {"foreign": 1})
        assert [e.offset for e in found_in.examples] == [7]


@pytest.mark.heavy
def test_records_that_the_source_removes_meanwhile_are_counted(world: World) -> None:
    class Slow(Tasks):
        def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
            removed(world, 10)
            return super().run(job, secrets)

    with world.session() as session:
        proof, found = source_findings(session, Sample(), Slow(), world.lines.append)
    assert [f for f in found if f.level is Severity.WRONG] == []
    assert proof.others["shop.rows"]["gone"]


def test_keys_whose_records_the_source_removes_meanwhile_are_not_of_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_lakecommit.operations.proof.source_plan.SLICE_RECORDS", 5)
    with memory_world(tmp_path, **{**JSON, "metadata_columns": True}) as world:
        world.send(*[(json.dumps({"id": n}), json.dumps({"name": "a"})) for n in range(10)])

        class Slow(Tasks):
            def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
                world.broker.remove_before(TOPIC, 0, 5)
                return super().run(job, secrets)

        with world.session() as session:
            proof, found = source_findings(session, Sample(), Slow(), world.lines.append)
        assert [f.text for f in found if f.level is Severity.WRONG] == []
        assert len(proof.others["shop.rows"]["gone"]) == 5


def test_a_range_that_cannot_be_read_again_is_wrong_and_leaves_no_file(world: World) -> None:
    class Broken(Tasks):
        def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
            return super().run(job, replace(secrets, kafka={**secrets.kafka, "bootstrap.servers": "127.0.0.1:1"}))

    class Dead(Tasks):
        def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
            super().run(job, secrets)
            raise SparkJobError("LC5024", "it died")

    before = files(world)
    with world.session() as session:
        _, found = source_findings(
            session, Sample(ranges={(str(world.landing.topics), 1): RangeSet.of((0, 5))}), Broken(), print
        )
        assert ["could not be read again" in f.text for f in found if f.level is Severity.WRONG] == [True]
        with pytest.raises(SparkJobError):
            source_findings(session, Sample(), Dead(), print)
    assert files(world) == before
