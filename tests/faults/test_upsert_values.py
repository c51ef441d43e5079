# SPDX-License-Identifier: Apache-2.0
"""Tables with a row per key, from every format, by keys of every type and of several columns: rows are replaced and
removed, a record without a key is a dead letter, and DuckDB and pyiceberg see the same.

In memory: the tasks, the commit and the table are the product's own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from typing import Any

import fastavro
import pytest
from google.protobuf.message_factory import GetMessageClass

from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from airflow_provider_lakecommit.iceberg import LOOKED_UP
from airflow_provider_lakecommit.landing.registry import with_registry
from tests.fakes.registry import FakeRegistry
from tests.support.in_memory import TOPIC, memory_world
from tests.support.steps import check_verified

pytestmark = pytest.mark.faults

Encode = Callable[..., bytes]

# -- keys -------------------------------------------------------------------------------------------------------------

KEYS: Mapping[str, list[Any]] = {
    "boolean": [True, False],
    "int": [-(2**31), 0, 7, 2**31 - 1],
    "long": [-(2**63), -1, 2**40, 2**63 - 1],
    "date": ["1969-12-31", "1970-01-01", "2026-02-28", "9999-12-31"],
    "time": ["00:00:00", "12:34:56.789012", "23:59:59.999999"],
    "timestamp": ["1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", "2026-01-31T12:34:56.789012"],
    "timestamptz": ["1969-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z", "2026-01-31T12:34:56.789012Z"],
    "decimal(9,2)": [-9999999.99, 0, 0.5, 9999999.99],
    "decimal(38,10)": [-1, 0, 0.0000000001, 12345678901234567890],
    "string": ["", "a", "a\u0000b", "ä" * 40, "z" * 300],
    "uuid": [f"00000000-0000-0000-0000-{n:012x}" for n in (0, 1, 2**47)],
    "fixed[4]": ["00000000", "00000001", "ffffffff"],
    "binary": ["", "00", "0000", "ff" * 40],
}


def json_options(types: Mapping[str, str], **more: Any) -> dict[str, Any]:
    columns = [{"name": name, "type": kind, "required": True} for name, kind in types.items()]
    octets = {name: "hex" for name, kind in types.items() if kind.startswith(("fixed", "binary"))}
    return {
        "create": {"schema": [*columns, {"name": "n", "type": "int"}, {"name": "version", "type": "int"}]},
        "key": {"columns": [*types], "format": "json"},
        "upsert_key": [*types],
        "encodings": octets,
        **more,
    }


def keyed(types: Mapping[str, str], values: tuple[Any, ...], content: Any) -> tuple[str, str | None]:
    key = json.dumps(dict(zip(types, values, strict=True)))
    return key, None if content is None else json.dumps(content)


def check_keys(folder: Path, types: Mapping[str, str], keys: list[tuple[Any, ...]], **more: Any) -> None:
    """Rows of these keys come, are replaced and removed, one publication after the other."""
    with memory_world(folder, **json_options(types, **more)) as world:
        first = [keyed(types, key, {"n": n, "version": 1}) for n, key in enumerate(keys)]
        world.send(*first, keyed(types, (None,) * len(types), {"n": -1}), (None, "{}"))
        names = (*types, "n", "version")
        rows = {row[-2]: row[:-2] for row in world.found(*names)}
        assert sorted(rows) == [*range(len(keys))]
        assert len({*map(str, rows.values())}) == len(keys), "no two keys are the same"
        assert world.dead() == [(0, len(keys), "null_key"), (0, len(keys) + 1, "null_key")]
        changes = [keyed(types, key, {"n": n, "version": 2} if n % 3 else None) for n, key in enumerate(keys)]
        world.send(*changes, keyed(types, keys[0], {"n": 0, "version": 3}))
        expected = {0: 3, **{n: 2 for n in range(len(keys)) if n % 3}}
        assert {row[-2]: row[-1] for row in world.found(*names)} == expected
        assert all(rows[row[-2]] == row[:-2] for row in world.found(*names))
        world.send(*(keyed(types, key, None) for key in keys))
        assert world.found(*names) == []
        check_verified(world)


@pytest.mark.heavy(but=("uuid",))
@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_each_type(tmp_path: Path, kind: str) -> None:
    options = json_options({"k": kind})["create"]
    # A file whose bucket has none of the keys is not searched.
    by = {} if kind == "boolean" else {"create": {**options, "partition_by": ["bucket(3, k)"]}}
    check_keys(tmp_path, {"k": kind}, [(value,) for value in KEYS[kind]], **by)


def test_a_key_of_columns_of_all_types(tmp_path: Path) -> None:
    types = {f"k{n}": kind for n, kind in enumerate(KEYS)}
    least = [values[0] for values in KEYS.values()]
    # Each differs from the first one in a column of its own.
    keys = [tuple(least), *((*least[:n], values[-1], *least[n + 1 :]) for n, values in enumerate(KEYS.values()))]
    check_keys(tmp_path, types, keys, create={**json_options(types)["create"], "partition_by": ["day(k5)", "k0"]})


def test_only_files_in_buckets_of_the_keys_are_searched(tmp_path: Path) -> None:
    schema = json_options({"k": "string"})["create"]["schema"]
    options = json_options({"k": "string"}, create={"schema": schema, "partition_by": ["bucket(8, k)", "n"]})
    with memory_world(tmp_path, **options) as world:
        world.send(*(keyed({"k": ""}, (f"a{n:03}",), {"n": n % 2, "version": 1}) for n in range(200)))
        world.send(keyed({"k": ""}, ("a100",), {"n": 0, "version": 2}), keyed({"k": ""}, ("a101",), None))
        with world.session() as session:
            head = session.tables.load(world.landing.table).current_snapshot()
        assert head is not None
        assert head.summary is not None
        rows, files = map(int, head.summary.additional_properties[f"lakecommit.{LOOKED_UP}"].split())
        assert files in (2, 4), "of one or two buckets, each with two values of n"
        assert rows < 100
        assert len(world.found("k")) == 199


# -- formats ----------------------------------------------------------------------------------------------------------

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
VALUE = {
    "type": "record",
    "name": "Account",
    "fields": [{"name": "name", "type": ["null", "string"], "default": None}, {"name": "seen", "type": "int"}],
}
PROTO = 'syntax = "proto3"; package shop; message Key { optional int64 id = 1; } '
PROTO += "message Account { optional string name = 1; int32 seen = 2; }"
COLUMNS = [
    {"name": "id", "type": "long", "required": True},
    {"name": "name", "type": "string"},
    {"name": "seen", "type": "int"},
]


def avro(schema: Any, value: Any, before: bytes = b"") -> bytes:
    out = io.BytesIO(before)
    out.seek(len(before))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def proto(message: str, value: Mapping[str, Any]) -> bytes:
    return bytes(GetMessageClass(message_named(file_of(PROTO), f"shop.{message}"))(**value).SerializeToString())


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How keys and values are written, and what a landing declares for them."""

    options: Mapping[str, Any]
    key: Callable[[int], bytes]
    value: Callable[[Mapping[str, Any]], bytes]
    bad_key: bytes | None = None


def plain_json(value: Any) -> bytes:
    return json.dumps(value).encode()


SHAPES: Mapping[str, Shape] = {
    "json": Shape(
        options={"key": {"columns": ["id"], "format": "json"}},
        key=lambda n: plain_json({"id": n}),
        value=plain_json,
        bad_key=b'{"id": null}',
    ),
    "a key that is text": Shape(
        options={"key": {"column": "id"}}, key=lambda n: str(n).encode(), value=plain_json, bad_key=None
    ),
    "a key with names of its own": Shape(
        options={"key": {"columns": {"id": "account"}, "format": "json"}},
        key=lambda n: plain_json({"account": n}),
        value=plain_json,
        bad_key=b"{}",
    ),
    "avro": Shape(
        options={"format": "avro", "schema": VALUE, "key": {"columns": ["id"], "format": "avro", "schema": KEY}},
        key=lambda n: avro(KEY, {"id": n}),
        value=lambda v: avro(VALUE, v),
    ),
    "protobuf": Shape(
        options={
            "format": "protobuf",
            "schema": PROTO,
            "message": "shop.Account",
            "key": {"columns": ["id"], "format": "protobuf", "schema": PROTO, "message": "shop.Key"},
        },
        key=lambda n: proto("Key", {"id": n}),
        value=lambda v: proto("Account", v),
        bad_key=b"",
    ),
    "csv": Shape(
        options={"format": "csv", "csv": {"columns": ["name", "seen"]}, "key": {"column": "id"}},
        key=lambda n: str(n).encode(),
        value=lambda v: f"{v['name']},{v['seen']}".encode(),
    ),
}


def check_shape(folder: Path, shape: Shape, kafka: Mapping[str, Any] | None = None, deletes: str = "hard") -> None:
    marked = [{"name": "_is_deleted", "type": "boolean"}] if deletes == "soft" else []
    options = {"create": {"schema": [*COLUMNS, *marked]}, "upsert_key": ["id"], "upsert_deletes": deletes}
    with memory_world(folder, kafka=kafka, **options, **shape.options) as world:

        def record(n: int, observed: int | None) -> tuple[bytes, bytes | None]:
            return shape.key(n), None if observed is None else shape.value({"name": f"a{n}", "seen": observed})

        world.send(*(record(n, 1) for n in range(6)), (shape.bad_key, shape.value({"name": "x", "seen": 0})))
        assert world.found("id", "name", "seen") == [(n, f"a{n}", 1) for n in range(6)]
        assert world.dead() == [(0, 6, "null_key")]
        world.send(record(0, 2), record(1, None), record(2, None), record(2, 3), record(3, 4), record(3, None))
        left = {0: 2, 2: 3, 4: 1, 5: 1} if deletes != "ignore" else {0: 2, 1: 1, 2: 3, 3: 4, 4: 1, 5: 1}
        kept = [(n, f"a{n}", observed) for n, observed in left.items()]
        if deletes == "soft":
            found = world.found("id", "name", "seen", "_is_deleted")
            assert found == sorted([*((*row, False) for row in kept), (1, None, None, True), (3, None, None, True)])
        else:
            assert world.found("id", "name", "seen") == kept
        check_verified(world)


@pytest.mark.heavy(but=("soft-avro", "hard-protobuf"))
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("deletes", ["hard", "soft", "ignore"])
def test_records_and_tombstones_of_each_format(tmp_path: Path, name: str, deletes: str) -> None:
    check_shape(tmp_path, SHAPES[name], deletes=deletes)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


def framed(number: int, payload: bytes) -> bytes:
    return pack(">bI", 0, number) + payload


def test_avro_whose_schemas_are_in_a_registry(tmp_path: Path, registry: FakeRegistry) -> None:
    key, value = registry.register(f"{TOPIC}-key", KEY), registry.register(f"{TOPIC}-value", VALUE)
    shape = Shape(
        options={"format": "avro", "key": {"columns": ["id"], "format": "avro"}},
        key=lambda n: framed(key, avro(KEY, {"id": n})),
        value=lambda v: framed(value, avro(VALUE, v)),
    )
    settings = {"url": registry.url, "max.retries": 0, "timeout": 5, "unknown.wait.seconds": 0}
    check_shape(tmp_path, shape, kafka=with_registry({}, settings))


# -- envelopes --------------------------------------------------------------------------------------------------------

ENVELOPE: dict[str, Any] = {
    "create": {"schema": [*COLUMNS[:2], {"name": "_lsn", "type": "long"}]},
    "unwrap": {"envelope": "debezium", "columns": {"_lsn": "source.lsn"}},
    "upsert_key": ["id"],
    "upsert_order_by": ["_lsn", "offset"],
}
IMAGE = {"type": "record", "name": "Image", "fields": [{"name": "id", "type": "long"}, *VALUE["fields"][:1]]}
AVRO_ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", IMAGE], "default": None},
        {"name": "after", "type": ["null", "Image"], "default": None},
        {"name": "op", "type": "string"},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]},
        },
    ],
}


@dataclass
class Envelopes:
    """Changes of a source table, each with the next log position."""

    encode: Callable[[Any], bytes]
    lsn: int = 0

    def change(self, op: str, before: Any = None, after: Any = None) -> tuple[bytes, bytes]:
        self.lsn += 1
        value = {"op": op, "before": before, "after": after, "source": {"lsn": self.lsn}}
        return plain_json({"id": (after or before or {}).get("id")}), self.encode(value)

    def put(self, op: str, key: int | None, name: str) -> tuple[bytes, bytes]:
        return self.change(op, after={"id": key, "name": name})

    def delete(self, key: int) -> list[tuple[bytes, bytes | None]]:
        """A delete, and the tombstone behind it."""
        found = self.change("d", before={"id": key, "name": None})
        return [found, (found[0], None)]


@pytest.mark.heavy(but=("json",))
@pytest.mark.parametrize("written", ["json", "avro"])
def test_envelopes_with_snapshots_tombstones_changed_keys_and_truncations(tmp_path: Path, written: str) -> None:
    source = Envelopes(plain_json if written == "json" else lambda value: avro(AVRO_ENVELOPE, value))
    format = {} if written == "json" else {"format": "avro", "schema": AVRO_ENVELOPE}
    with memory_world(tmp_path, 2, **ENVELOPE, **format) as world:
        world.send(source.put("r", 1, "snapshot"), source.put("r", 2, "snapshot"), source.put("c", 3, "new"))
        assert world.found("id", "name") == [(1, "snapshot"), (2, "snapshot"), (3, "new")]
        # The key of 3 becomes 4, whose records are in the other partition; 2 is deleted and comes again.
        world.broker.produce(TOPIC, [*source.delete(3), *source.delete(2)], 0)
        world.send(source.put("c", 4, "moved"), partition=1)
        assert world.found("id", "name") == [(1, "snapshot"), (4, "moved")]
        world.send(source.put("c", 2, "again"), source.put("u", 1, "changed"), source.change("t"))
        assert world.found("id", "name") == [(1, "changed"), (2, "again"), (4, "moved")]
        assert [kind for _, _, kind in world.dead()] == ["truncated"]
        # A change of before, sent again by a connector that was killed: its log position is older.
        source.lsn -= 3
        world.send(source.put("u", 1, "older"))
        assert world.found("id", "name")[0] == (1, "changed")
        check_verified(world)


@pytest.mark.heavy
def test_an_envelope_without_a_key_is_a_dead_letter(tmp_path: Path) -> None:
    source = Envelopes(plain_json)
    with memory_world(tmp_path, **ENVELOPE) as world:
        world.send(source.put("c", None, "none"), source.change("d", before={"name": "x"}), source.change("d"))
        assert [offset for _, offset, _ in world.dead()] == [0, 1, 2]
        assert world.rows() == []


@pytest.mark.parametrize("deletes", ["hard", "soft", "ignore"])
def test_a_delete_without_an_order_is_a_dead_letter(tmp_path: Path, deletes: str) -> None:
    """A source whose deletes state the key alone; the rows' own column orders them."""
    marked = [{"name": "_is_deleted", "type": "boolean"}] if deletes == "soft" else []
    options: dict[str, Any] = {
        "create": {"schema": [COLUMNS[0], {"name": "version", "type": "long"}, *marked]},
        "unwrap": "debezium",
        "upsert_key": ["id"],
        "upsert_order_by": ["version", "offset"],
        "upsert_deletes": deletes,
    }
    source = Envelopes(plain_json)
    with memory_world(tmp_path, **options) as world:
        world.send(*(source.change("c", after={"id": n, "version": 5}) for n in (1, 2)))
        world.send(source.change("d", before={"id": 1}), source.change("d", before={"id": 2, "version": 5}))
        names = ("id", *(c["name"] for c in marked))
        gone = {"hard": [], "soft": [(2, True)], "ignore": [(2,)]}[deletes]
        assert world.found(*names) == [(1, *([False] if marked else [])), *gone]
        assert world.dead() == ([] if deletes == "ignore" else [(0, 2, "null_order")])
        check_verified(world)


# -- SQL --------------------------------------------------------------------------------------------------------------

RECORD = [{"name": "number", "type": "long"}, {"name": "called", "type": "list<string>"}]
SQL = "select number as id, unnest(called) as name from record where number is null or number < 100"


def test_sql_names_the_key_and_a_record_has_one_row_at_most(tmp_path: Path) -> None:
    options = {"transform": SQL, "record_schema": RECORD, "upsert_deletes": "ignore"}
    with memory_world(tmp_path, create={"schema": COLUMNS[:2]}, upsert_key=["id"], **options) as world:

        def record(number: int | None, *called: str) -> tuple[str, str]:
            return "any", json.dumps({"number": number, "called": called})

        world.send(record(1, "a"), record(2, "b"), record(1, "c"), record(500, "left out"), record(3, "x", "y"))
        assert world.found("id", "name") == [(1, "c"), (2, "b")]
        world.send(record(2, "d"), record(3), record(None, "z"), ("any", None), record(2, "e", "f"))
        assert world.found("id", "name") == [(1, "c"), (2, "d")]
        assert world.dead() == [(0, 4, "several_rows"), (0, 7, "null_key"), (0, 9, "several_rows")]
        check_verified(world)


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_tombstones_go_past_sql(tmp_path: Path, deletes: str) -> None:
    marked = [{"name": "_is_deleted", "type": "boolean"}] if deletes == "soft" else []
    options = {"transform": "select upper(name) as name from record", "record_schema": [COLUMNS[1]]}
    columns = {"create": {"schema": [*COLUMNS[:2], *marked]}, "key": {"column": "id"}, "upsert_key": ["id"]}
    with memory_world(tmp_path, **columns, **options, upsert_deletes=deletes) as world:
        world.send(("1", '{"name": "a"}'), ("2", '{"name": "b"}'), ("1", None), ("3", None), ("3", '{"name": "c"}'))
        left = [(2, "B", *([False] if marked else [])), (3, "C", *([False] if marked else []))]
        removed = [(1, None, True)] if marked else []
        assert world.found("id", "name", *(c["name"] for c in marked)) == sorted(removed + left)
        check_verified(world)


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("selected", ["id, upper(name) as name, _lsn", "* replace (upper(name) as name)"])
def test_sql_over_envelopes_keeps_their_deletes(tmp_path: Path, deletes: str, selected: str) -> None:
    marked = [{"name": "_is_deleted", "type": "boolean"}] if deletes == "soft" else []
    source, schema = Envelopes(plain_json), ENVELOPE["create"]["schema"]
    options = {**ENVELOPE, "create": {"schema": [*schema, *marked]}, "upsert_deletes": deletes}
    sql = {"transform": f"select {selected} from record", "record_schema": [{**c, "required": False} for c in schema]}
    with memory_world(tmp_path, **options, **sql) as world:
        world.send(source.put("c", 1, "a"), source.put("c", 2, "b"), source.put("u", 1, "c"), *source.delete(2))
        world.send(source.put("c", 3, "d"), *source.delete(1))
        kept = [(3, "D", *([False] if marked else []))]
        dead = [(1, None, True), (2, None, True)] if marked else []
        assert world.found("id", "name", *(c["name"] for c in marked)) == dead + kept
        assert world.dead() == []
        check_verified(world)
