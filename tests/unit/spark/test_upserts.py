# SPDX-License-Identifier: Apache-2.0
"""What a slice of an upserting landing makes of its records: rows, tombstones, rejects and counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DoubleType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from airflow_provider_lakecommit.core import TableTarget
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import Block
from airflow_provider_lakecommit.iceberg import FanoutWriter, arrow_schema
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark import upserts
from airflow_provider_lakecommit.spark.decoders import block_decoder
from airflow_provider_lakecommit.spark.key_columns import key_columns
from airflow_provider_lakecommit.spark.upserts import LastChanges, UpsertDecoder, check_upsert, tombstone_target
from tests.support.declared import landing_of

MARKS = [
    NestedField(90, "kafka_topic", StringType()),
    NestedField(91, "kafka_partition", IntegerType()),
    NestedField(92, "kafka_generation", LongType()),
    NestedField(93, "kafka_offset", LongType()),
]
PLAIN = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()), *MARKS)
STRICT = Schema(*(f.model_copy(update={"required": f.field_id < 3}) for f in PLAIN.fields))
SOFT = Schema(*PLAIN.fields, NestedField(94, "_is_deleted", BooleanType()))


def landing(**more: Any) -> Landing:
    key = {} if "unwrap" in more else {"key": {"columns": ["id"], "format": "json"}}
    return landing_of(name="a", topics="t", table="shop.a", upsert_key=["id"], **key, **more)


@dataclass
class Record:
    """A record by key and value."""

    value: bytes | None
    named: bytes | None = None

    def key(self) -> bytes | None:
        return self.named

    def headers(self) -> None:
        return None


def record(key: Any, value: Any) -> Record:
    return Record(*(None if part is None else json.dumps(part).encode() for part in (value, key)))


def decoded(of: Landing, schema: Schema, records: Sequence[Record]) -> Block:
    decoder = UpsertDecoder(of, schema)
    values = block_decoder(of, {of.table: decoder.schema})
    keys = key_columns(of, decoder.schema)
    return decoder.decode(
        [r.value for r in records],
        lambda places: values.decode([cast(bytes, records[i].value) for i in places]),
        lambda rows: keys.added(rows, cast(Any, records)),
    )


def rows_of(block: Block) -> list[tuple[Any, ...]]:
    return [tuple(r[n] for n in ("id", "name", "_is_deleted")) for r in block.tables["shop.a"].table.to_pylist()]


def change(op: str, before: Any, after: Any) -> Record:
    return record(None, {"op": op, "before": before, "after": after})


def test_a_tombstone_is_a_delete_in_its_place() -> None:
    records = [
        record({"id": 1}, {"name": "a"}),
        record({"id": 1}, None),
        record({"id": 2}, {"name": "b"}),
        record({"id": None}, None),
        record(None, None),
        record({"id": 3}, {"name": 5}),
        record({"no": 3}, {"name": "x"}),
    ]
    block = decoded(landing(), PLAIN, records)
    assert rows_of(block) == [(1, "a", False), (1, None, True), (2, "b", False)]
    assert block.tables["shop.a"].records == [0, 1, 2]
    assert [(r.index, r.kind, r.column) for r in block.rejects] == [
        (3, "null_key", "id"),
        (4, "null_key", "id"),
        (5, block.rejects[2].kind, "name"),
        (6, "null_key", "id"),
    ]


def test_a_key_that_the_value_repeats_is_no_unknown_field() -> None:
    block = decoded(landing(), PLAIN, [record({"id": 1}, {"id": 1, "name": "a", "more": 2}), record({"id": 1}, None)])
    assert block.ignored == Counter({"more": 1})


@pytest.mark.parametrize("schema", [PLAIN, STRICT], ids=["optional", "required"])
def test_ignored_deletes_are_filtered(schema: Schema) -> None:
    block = decoded(
        landing(upsert_deletes="ignore"), schema, [record({"id": 1}, None), record({"id": 1}, {"name": "a"})]
    )
    assert (rows_of(block), list(block.filtered)) == ([(1, "a", False)], [0])
    envelopes = [change("c", None, {"id": 1, "name": "a"}), change("d", {"id": 1}, None), record(None, None)]
    block = decoded(landing(upsert_deletes="ignore", unwrap="debezium"), schema, envelopes)
    assert (rows_of(block), list(block.filtered)) == ([(1, "a", False)], [1, 2])


def test_a_delete_in_an_envelope_needs_its_key_alone() -> None:
    records = [
        change("c", None, {"id": 1, "name": "a"}),
        change("d", {"id": 1, "name": None}, None),
        change("c", None, {"id": 2, "name": None}),
        change("d", {"id": None, "name": "x"}, None),
        change("t", None, None),
        record(None, None),
    ]
    block = decoded(landing(unwrap="debezium"), STRICT, records)
    assert rows_of(block) == [(1, "a", False), (1, None, True)]
    assert [(r.index, r.kind) for r in block.rejects] == [(2, "missing_required"), (3, "null_key"), (4, "truncated")]
    assert list(block.filtered) == [5], "the tombstone behind a delete says nothing new"


def test_soft_deletes_are_rows() -> None:
    block = decoded(landing(upsert_deletes="soft"), SOFT, [record({"id": 1}, {"name": "a"}), record({"id": 1}, None)])
    assert rows_of(block) == [(1, "a", False), (1, None, True)]
    assert block.tables["shop.a"].table.column_names == ["id", "name", "_is_deleted"]


class Writer:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def write(self, table: pa.Table) -> None:
        self.tables.append(table)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [r for t in self.tables for r in t.to_pylist()]


def target(schema: Schema, version: int = 2) -> TableTarget:
    return TableTarget(
        table="shop.a",
        uuid=uuid4(),
        location="file:///t",
        schema=schema.model_dump_json(),
        schema_id=0,
        spec='{"spec-id": 0, "fields": []}',
        spec_id=0,
        properties={},
        format_version=version,
        epoch=uuid4(),
    )


def written(of: Landing, schema: Schema, changes: Sequence[tuple[int, str | None, int]]) -> tuple[Writer, Writer, Any]:
    """Write (id, name or delete, span) and return what the two writers got."""
    rows, tombstones = Writer(), Writer()
    last = LastChanges(of, target(schema), cast(FanoutWriter, rows), cast(FanoutWriter, tombstones))
    reading = UpsertDecoder(of, schema).schema
    for n, (key, name, span) in enumerate(changes):
        values = {
            "id": key,
            "name": name,
            "kafka_topic": "t",
            "kafka_partition": 0,
            "kafka_generation": 1,
            "kafka_offset": n,
            "_is_deleted": name is None,
        }
        arrow = arrow_schema(reading)
        row = pa.Table.from_arrays([pa.array([values[f.name]], f.type) for f in arrow], schema=arrow)
        last.add(row, np.array([span]))
    last.flush()
    return rows, tombstones, last


CHANGES = [(1, "a", 0), (2, "a", 0), (1, "b", 0), (3, None, 1), (2, None, 1), (4, "x", 1), (3, "c", 1)]


def test_only_the_last_change_of_each_key_is_written() -> None:
    rows, tombstones, last = written(landing(), PLAIN, CHANGES)
    assert [(r["id"], r["name"]) for r in rows.rows] == [(1, "b"), (4, "x"), (3, "c")]
    assert [(r["id"], r["kafka_offset"]) for r in tombstones.rows] == [(2, 4)]
    assert "name" not in tombstones.tables[0].column_names
    assert (last.superseded, last.deleted) == (Counter({0: 2, 1: 1}), Counter({1: 1}))


def test_a_soft_delete_is_written_as_a_row() -> None:
    rows, tombstones, last = written(landing(upsert_deletes="soft"), SOFT, CHANGES)
    assert [(r["id"], r["_is_deleted"]) for r in rows.rows] == [(1, False), (2, True), (4, False), (3, False)]
    assert tombstones.rows == []
    assert not last.deleted


def test_more_than_the_buffer_holds_is_written_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upserts, "BUFFER_BYTES", 150)
    rows, tombstones, last = written(landing(), PLAIN, CHANGES * 5)
    records = len(rows.rows) + len(tombstones.rows) + last.superseded.total()
    assert records == len(CHANGES) * 5
    assert len(rows.rows) > 3
    assert last.deleted.total() == len(tombstones.rows)


@pytest.mark.parametrize(
    ("more", "schema", "version", "codes"),
    [
        ({}, PLAIN, 2, []),
        ({}, PLAIN, 1, ["LC5071"]),
        ({}, PLAIN, 3, ["LC5071"]),
        ({}, Schema(*PLAIN.fields[:-1]), 2, ["LC5070"]),
        ({}, Schema(NestedField(1, "id", DoubleType()), *MARKS), 2, ["LC1324"]),
        ({"upsert_deletes": "soft"}, PLAIN, 2, ["LC1326"]),
        ({"upsert_deletes": "soft"}, SOFT, 2, []),
        (
            {"upsert_deletes": "soft"},
            Schema(*(f.model_copy(update={"required": f.name == "name"}) for f in SOFT.fields)),
            2,
            ["LC5072"],
        ),
        (
            {"upsert_order_by": ["kafka_timestamp", "offset"], "metadata_columns": True},
            Schema(*PLAIN.fields, NestedField(95, "kafka_timestamp", TimestamptzType())),
            2,
            [],
        ),
    ],
)
def test_tables_that_cannot_take_upserts_are_refused(
    more: dict[str, Any], schema: Schema, version: int, codes: list[str]
) -> None:
    if not codes:
        check_upsert(landing(**more), target(schema, version))
        check_upsert(landing_of(name="a", topics="t", table="shop.a"), target(schema, version))
        return
    with pytest.raises(TableError) as refused:
        check_upsert(landing(**more), target(schema, version))
    assert all(code in str(refused.value) for code in codes)


def test_a_tombstone_file_has_no_partition() -> None:
    of = replace(target(SOFT), spec='{"spec-id": 3, "fields": []}', spec_id=3, sort_order="x")
    made = tombstone_target(landing(upsert_deletes="soft"), of)
    names = [f.name for f in Schema.model_validate_json(made.schema).fields]
    assert (names, made.spec_id, made.sort_order) == (["id", *(f.name for f in MARKS)], 0, "")
