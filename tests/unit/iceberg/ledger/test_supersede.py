# SPDX-License-Identifier: Apache-2.0
"""Upserting publishes: the table holds the newest change of each key, whoever publishes when."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger import newest
from airflow_provider_lakecommit.iceberg.ledger.append import publish
from airflow_provider_lakecommit.iceberg.ledger.head import HeadReader
from airflow_provider_lakecommit.iceberg.ledger.upsert_rule import UpsertRule
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from tests.fakes.position_deletes import delete_equal
from tests.support.effort import examples
from tests.support.upserts import UpsertLake, plain

BUCKETS = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))
SMALL_FILES = {"write.target-file-size-bytes": "1000000"}


def counted(lake: UpsertLake) -> tuple[int, int]:
    """Return how many rows the newest snapshot superseded and deleted."""
    found = lake.loaded.current_snapshot().summary.additional_properties
    return int(found["lakecommit.superseded"]), int(found["lakecommit.deleted"])


def compacted(lake: UpsertLake) -> int:
    """Compact the table and return how many snapshots that made."""
    session = cast(LandingSession, SimpleNamespace(landing=lake.landing, tables=lake.tables))
    (done,) = compact(session, write=True)
    assert not done.error
    return len(done.snapshots)


def before_the_first_commit(lake: UpsertLake, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[int]:
    """Have another writer win against the next request; its number of requests is in the returned list."""
    commit, waiting, won = Tables.commit, [act], list[int]()

    def raced(self: Tables, *arguments: Any) -> Any:
        if waiting:
            waiting.pop()()
            won.append(1)
        return commit(self, *arguments)

    monkeypatch.setattr(Tables, "commit", raced)
    return won


def test_a_newer_row_supersedes_the_one_of_its_key(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.land([(n, 1) for n in range(10)])
    assert counted(lake) == (0, 0)
    assert lake.loaded.current_snapshot().summary.operation.value == "append"
    lake.land([(3, 2), (11, 2), (4, None), (99, None)])
    assert lake.content() == {**{n: 1 for n in range(10) if n not in (3, 4)}, 3: 2, 11: 2}
    assert counted(lake) == (1, 1)
    assert lake.loaded.current_snapshot().summary.operation.value == "overwrite"
    assert (lake.live_rows(), lake.delete_files()) == (10 - 2 + 2, 1)
    lake.land([(5, 3), (3, 4)])
    assert lake.content()[3] == 4
    assert lake.delete_files() == 2, "each data file has one delete file"
    assert lake.live_rows() == len(lake.content())


def test_a_file_without_a_live_row_is_taken_out(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.land([(1, 1), (2, 1)])
    lake.land([(1, 2)])
    lake.land([(2, None)])
    assert lake.content() == {1: 2}
    assert lake.delete_files() == 0
    assert lake.loaded.current_snapshot().summary.additional_properties["total-data-files"] == "1"


def test_the_newest_of_several_slices_of_a_publish_stays(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.land([(7, 0)])
    made = [
        lake.slice([(1, 1), (2, 1), (3, 1)]),
        lake.slice([(1, 2), (2, None), (4, None)]),
        lake.slice([(4, 3), (1, 3)]),
    ]
    lake.publish([made[2], made[0], made[1]])
    assert lake.content() == {7: 0, 1: 3, 3: 1, 4: 3}
    assert counted(lake) == (2, 1)
    assert lake.live_rows() == 4


def test_a_slice_that_only_deletes(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.land([(1, 1), (2, 1)])
    done = lake.land([(1, None)])
    assert done.snapshot_id is not None
    assert lake.content() == {2: 1}
    assert lake.land([(1, None)]).snapshot_id is not None, "its ranges are in the ledger"
    assert counted(lake) == (0, 0)


@pytest.mark.parametrize("seed", range(examples(24)))
@pytest.mark.parametrize("spec", [None, BUCKETS], ids=["plain", "buckets"])
def test_random_sequences_equal_a_model(tmp_path: Path, seed: int, spec: PartitionSpec | None) -> None:
    choose = random.Random(seed)
    lake = UpsertLake(tmp_path, **({"spec": spec} if spec else {}))
    model: dict[int, int] = {}
    rows = superseded = deleted = 0
    for version in range(choose.randint(4, 12)):
        if choose.random() < 0.25 and model:
            compacted(lake)
            assert lake.content() == model
        made = []
        for partition in choose.sample(range(4), choose.randint(1, 3)):
            for _ in range(choose.randint(1, 2)):
                # A key has one partition.
                keys = [k * 4 + partition for k in choose.choices(range(12), k=choose.randint(1, 20))]
                changes = [(k, None if choose.random() < 0.2 else version * 100 + n) for n, k in enumerate(keys)]
                made.append(lake.slice(changes, partition))
                model |= cast(dict[int, int], dict(changes))
        model = {k: v for k, v in model.items() if v is not None}
        choose.shuffle(made)
        lake.publish(made)
        found = counted(lake)
        rows, superseded, deleted = rows + sum(s.rows for s in made), superseded + found[0], deleted + found[1]
        assert lake.content() == model
        assert lake.live_rows() == len(model) == rows - superseded - deleted


@pytest.mark.parametrize("kind", ["a compaction", "another stream", "a compaction and a stream"])
def test_a_lost_swap_checks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    lake = UpsertLake(tmp_path)
    lake.join("history", starts=500_000)
    for n in range(6):
        lake.land([(n * 5 + i, n) for i in range(5)])
    mine = lake.slice([(n, 9) for n in range(0, 30, 3)])
    others = lake.slice([(3, 50), (100, 50)], lane="history")

    def act() -> None:
        if "compaction" in kind:
            assert compacted(lake)
        if "stream" in kind:
            lake.publish([others], "history")

    won = before_the_first_commit(lake, monkeypatch, act)
    done = lake.publish([mine])
    assert (done.requests_sent, won) == (2, [1])
    expected = {n: 9 if n % 3 == 0 else n // 5 for n in range(30)}
    # The other stream reads offsets behind those of the live one.
    assert lake.content() == expected | ({3: 50, 100: 50} if "stream" in kind else {})
    assert lake.live_rows() == len(lake.content())


def test_a_compaction_moves_what_is_superseded_while_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = UpsertLake(tmp_path)
    for n in range(6):
        lake.land([(n * 5 + i, n) for i in range(5)])
    won = before_the_first_commit(lake, monkeypatch, lambda: lake.land([(4, 7), (15, None)]))
    assert (compacted(lake), won) == (1, [1])
    expected = {n: n // 5 for n in range(30)} | {4: 7}
    del expected[15]
    assert lake.content() == expected
    lake.land([(4, 8), (15, 8)])
    assert lake.content() == expected | {4: 8, 15: 8}


def test_publishing_again_changes_nothing(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    made = lake.slice([(1, 1), (2, 1)])
    later = lake.slice([(1, 2)])
    lake.publish([made])
    lake.publish([later])
    head = lake.loaded.current_snapshot().snapshot_id
    again = publish(lake.tables, lake.request([made, later]))
    assert (len(again.already), again.snapshot_id) == (2, None)
    assert lake.loaded.current_snapshot().snapshot_id == head
    assert lake.content() == {1: 2, 2: 1}


def test_after_a_rollback_the_slices_are_refused_until_their_epoch_is_renewed(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    first = lake.land([(1, 1), (2, 1)]).snapshot_id
    lake.land([(1, 2)])
    with lake.loaded.manage_snapshots() as manage:
        manage.rollback_to_snapshot(first)
    assert lake.content() == {1: 1, 2: 1}
    refused = publish(lake.tables, lake.request([lake.slice([(2, 3)])]))
    assert [r.void for r in refused.refused] == [True]
    assert lake.content() == {1: 1, 2: 1}


def test_a_backfill_of_older_changes_never_wins(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.join("history", generation=5)
    lake.at |= {(LIVE, p): 1000 for p in lake.places}
    lake.change(LIVE, starts=dict.fromkeys(lake.places, 1000))
    lake.land([(1, 100), (2, 100)])
    lake.land([(3, 100)], partition=1)
    lake.land([(1, 1), (4, 1), (4, 2), (3, 1)], lane="history")
    # A key that moved to another partition stays as the live stream has it.
    assert lake.content() == {1: 100, 2: 100, 3: 100, 4: 2}
    assert counted(lake) == (2, 0), "two changes of the backfill lose, one is left out in its slice"
    assert lake.live_rows() == 4
    lake.land([(4, 101), (1, 101)])
    assert lake.content() == {1: 101, 2: 100, 3: 100, 4: 101}


def test_a_topic_made_anew_supersedes_the_rows_of_the_former_one(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.land([(n, 1) for n in range(20)])
    anew = [replace(p, topic_id="YW5vdGhlci10b3BpYy1pZA") for p in lake.places]
    lake.places = anew
    lake.at |= {(LIVE, p): 0 for p in anew}
    lake.change(LIVE, generation=2, starts={**lake.sections[LIVE].starts, **dict.fromkeys(anew, 0)})
    lake.land([(15, 2)])
    assert lake.content() == {**dict.fromkeys(range(20), 1), 15: 2}


def test_a_backfill_of_a_topic_made_anew_supersedes_rows_of_the_former_one_in_any_partition(tmp_path: Path) -> None:
    """Keys are in other partitions if the topic has another number of them."""
    lake = UpsertLake(tmp_path)
    lake.land([(n, 1) for n in range(4)])
    lake.places = [replace(p, topic_id="YW5vdGhlci10b3BpYy1pZA") for p in lake.places]
    lake.at |= {(LIVE, p): 1000 for p in lake.places}
    lake.change(LIVE, generation=2, starts={**lake.sections[LIVE].starts, **dict.fromkeys(lake.places, 1000)})
    lake.land([(3, 3)], partition=2)
    lake.join("history", generation=5)
    lake.land([(1, 2), (3, 2), (0, 2)], partition=1, lane="history")
    assert lake.content() == {0: 2, 1: 2, 2: 1, 3: 3}


@pytest.mark.parametrize("partition", [0, 1])
def test_what_is_published_late_of_a_former_topic_never_wins_over_its_successor(tmp_path: Path, partition: int) -> None:
    """A killed run had read it; until it is published, the topic is recreated, and a backfill lands that one."""
    lake = UpsertLake(tmp_path)
    lake.land([(n, 1) for n in range(4)])
    before = lake.places
    lake.places = [replace(p, topic_id="YW5vdGhlci10b3BpYy1pZA") for p in before]
    lake.join("history", generation=5)
    lake.land([(1, 3), (2, 3)], partition=partition, lane="history")
    assert lake.content() == {0: 1, 1: 3, 2: 3, 3: 1}
    lake.places = before
    lake.land([(1, 2), (2, 2), (3, 2)])
    assert lake.content() == {0: 1, 1: 3, 2: 3, 3: 2}
    assert counted(lake) == (3, 0), "two late changes and one row of the table"


def test_the_order_column_decides_before_the_offset(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path, order=True)
    lake.land([(1, 50), (2, 50)])
    lake.land([(1, 40), (2, 60), (3, 5), (3, 4)], partition=2)
    assert lake.content() == {1: 50, 2: 60, 3: 5}
    lake.land([(1, 50)])
    assert (lake.content(), counted(lake)) == ({1: 50, 2: 60, 3: 5}, (1, 0))


KEYS: dict[str, tuple[dict[str, IcebergType], Callable[[int], Any]]] = {
    "string": ({"k": StringType()}, lambda n: "ü" * (n % 5) + f"key-{n}" * (n % 4)),
    "binary": ({"k": BinaryType()}, lambda n: bytes(range(n % 30)) + bytes([n])),
    "fixed": ({"k": FixedType(3)}, lambda n: n.to_bytes(3)),
    "uuid": ({"k": UUIDType()}, lambda n: uuid.UUID(int=n << 60).bytes),
    "decimal": ({"k": DecimalType(20, 2)}, lambda n: Decimal(n - 5) / 100),
    "date": ({"k": DateType()}, lambda n: date(1960 + n, 1, 1)),
    "time": ({"k": TimeType()}, lambda n: time(n % 24, n % 60, 7, n)),
    "timestamp": ({"k": TimestampType()}, lambda n: datetime(1960 + n, 2, 3, 4, 5, 6, n)),
    "timestamptz": ({"k": TimestamptzType()}, lambda n: datetime(1960 + n, 2, 3, 4, 5, 6, n, UTC)),
    "int": ({"k": IntegerType()}, lambda n: n - 10),
    "two": ({"a": StringType(), "b": LongType()}, lambda n: (f"a{n % 3}", n)),
    "three": (
        {"a": BooleanType(), "b": IntegerType(), "c": DecimalType(5, 0)},
        lambda n: (n % 2 == 0, n % 3, Decimal(n)),
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_type(tmp_path: Path, name: str) -> None:
    kinds, key = KEYS[name]
    lake = UpsertLake(tmp_path, kinds)
    keys = list({repr(key(n)): key(n) for n in range(30)}.values())
    lake.land([(k, 1) for k in keys])
    lake.land([(k, 2) for k in keys[10:20]])
    lake.land([(k, None) for k in keys[:5]])
    found = {plain(k): v for k, v in lake.content().items()}
    assert found == {plain(k): 2 if 10 <= n < 20 else 1 for n, k in enumerate(keys) if n >= 5}


@pytest.mark.parametrize("partition", [BucketTransform(3), IdentityTransform()], ids=str)
def test_a_row_moves_to_another_partition(tmp_path: Path, partition: Transform[Any, Any]) -> None:
    lake = UpsertLake(tmp_path, spec=PartitionSpec(PartitionField(2, 1000, partition, "by_value")))
    lake.land([(n, n % 3) for n in range(12)])
    lake.land([(n, 5 + n % 3) for n in range(0, 12, 2)])
    assert lake.content() == {n: 5 + n % 3 if n % 2 == 0 else n % 3 for n in range(12)}


def test_different_keys_of_one_hash_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seeds = newest.hashes, list[int]()

    def weak(columns: Sequence[Any], seed: int = 0) -> Any:
        seeds.append(seed)
        found = real(columns, seed)
        return found & np.uint64(7) if seed < 2 else found

    monkeypatch.setattr(newest, "hashes", weak)
    lake = UpsertLake(tmp_path, {"k": StringType()})
    lake.land([(f"{n}", 1) for n in range(50)])
    lake.land([(f"{n}", 2) for n in range(25)])
    assert 2 in seeds
    assert lake.content() == {f"{n}": 2 if n < 25 else 1 for n in range(50)}


def test_a_table_without_the_columns_is_refused(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    made = lake.slice([(1, 1)])
    with lake.loaded.update_schema() as update:
        update.delete_column("kafka_offset")
    with pytest.raises(TableError, match="LC3050"):
        publish(lake.tables, lake.request([replace(made, schema_id=1)]))


def test_equality_deletes_are_refused_where_they_apply(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.land([(1, 1)])
    (file,) = (e.data_file for e in HeadReader(lake.name).read(lake.loaded, "main").entries.values())
    delete_equal(lake.loaded, "main", file, "id", 1)
    made = lake.slice([(2, 1)])
    with pytest.raises(TableError, match="LC3052"):
        lake.publish([made])
    # Spark leaves the delete file behind when it rewrites the data files.
    lake.loaded.delete()
    lake.publish([made])
    lake.land([(2, 2)])
    head = HeadReader(lake.name).read(lake.loaded, "main")
    assert (len(head.entries), len(head.deletes.equality)) == (1, 1)


def test_a_delete_file_next_to_equality_deletes_stays_and_counts_once(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "by_value"))
    lake = UpsertLake(tmp_path, spec=spec)
    lake.land([(1, 1), (2, 1), (3, 1), (4, 2)])
    entries = HeadReader(lake.name).read(lake.loaded, "main").entries.values()
    files = {e.data_file.partition[0]: e.data_file for e in entries}
    # The equality delete is of another partition, whose file is gone afterwards.
    delete_equal(lake.loaded, "main", files[2], "id", 4, positions=[(files[1], 0)])
    lake.loaded.delete("value = 2")
    lake.land([(2, 5)])
    lake.land([(3, 5)])
    deletes = HeadReader(lake.name).read(lake.loaded, "main").deletes
    assert sorted((d.record_count, d.file_path in deletes.fixed) for d in deletes.files) == [(1, True), (2, False)]


@pytest.mark.parametrize("column", ["kafka_offset", "value"])
def test_slices_without_a_column_that_was_added_again_are_read_again(tmp_path: Path, column: str) -> None:
    lake = UpsertLake(tmp_path, order=column == "value")
    made = [lake.slice([(1, 2)]), lake.slice([(1, 3)])]
    with lake.loaded.update_schema() as update:
        update.delete_column(column)
    with lake.loaded.update_schema() as update:
        update.add_column(column, LongType())
    assert [r.void for r in publish(lake.tables, lake.request(made)).refused] == [True, True]


def test_a_table_that_was_upgraded_since_the_plan_is_refused_by_name(tmp_path: Path) -> None:
    lake = UpsertLake(tmp_path)
    lake.land([(1, 1)])
    made = lake.slice([(1, 2)])
    metadata = Path(lake.loaded.metadata_location.removeprefix("file://"))
    upgraded = json.loads(metadata.read_text()) | {"format-version": 3, "next-row-id": 1}
    metadata.write_text(json.dumps(upgraded))
    with pytest.raises(TableError, match="LC3029"):
        publish(lake.tables, lake.request([made]))


@pytest.mark.parametrize("upserts", [True, False], ids=["the first appends", "the first upserts"])
def test_two_landings_with_different_keys_were_both_planned_before_the_first_rows(
    tmp_path: Path, upserts: bool
) -> None:
    """When they were planned, neither had rows, so the plan of neither could see the key of the other."""
    lake = UpsertLake(tmp_path)
    first = lake.slice([(1, 1), (2, 2)])
    lake.places = [replace(lake.places[0], topic="orders")]
    lake.join("other", landing="orders")
    second = lake.slice([(1, 1), (2, 2)], lane="other")
    appending, upserting = UpsertRule(key=()), lake.rule
    publish(lake.tables, replace(lake.request([first]), upsert=appending if upserts else upserting))
    late = replace(lake.request([second], "other"), landing="orders", upsert=upserting if upserts else appending)
    with pytest.raises(LedgerError, match="LC3056"):
        publish(lake.tables, late)
    assert lake.content() == {1: 1, 2: 2}
