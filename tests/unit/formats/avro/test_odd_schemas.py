# SPDX-License-Identifier: Apache-2.0
"""Schemas that a registry should not have taken, and records that are none by them: named, and no other is harmed."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.avro import items, nested
from airflow_provider_lakecommit.formats.avro.block import MOST_EMPTY
from airflow_provider_lakecommit.formats.avro.decode_avro import AvroDecoder
from airflow_provider_lakecommit.formats.avro.infer import avro_columns
from airflow_provider_lakecommit.formats.avro.writer import DEEPEST, writer_type
from airflow_provider_lakecommit.formats.decoder import Decoded
from airflow_provider_lakecommit.formats.registry.schema_source import AVRO, RegisteredSchema, SchemaKey
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from tests.support.avro_shapes import encoded


class OneSchema:
    """A registry with one schema, whatever that is."""

    def __init__(self, text: str) -> None:
        self._text = text

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        return RegisteredSchema(key=key, kind=AVRO, text=self._text)


def record(*fields: Any, name: str = "R", namespace: str | None = None) -> dict[str, Any]:
    where = {} if namespace is None else {"namespace": namespace}
    return {"type": "record", "name": name, **where, "fields": [{"name": n, "type": t} for n, t in fields]}


def read(schema: Any, columns: list[Any], *payloads: bytes) -> Decoded:
    """Framed payloads, by a schema as JSON or as it is."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    table = create_from_spec({"schema": columns})[0]
    decoder = AvroDecoder(table, FormatOptions(format="avro"), registry=OneSchema(text))
    return decoder.decode([b"\x00\x00\x00\x00\x07" + payload for payload in payloads])


OWN = [{"name": "a", "type": "long"}, {"name": "f", "type": "binary"}, {"name": "d", "type": "decimal(9, 2)"}]
FIXED = {"type": "fixed", "name": "F"}
DEEP = "int"
for _ in range(DEEPEST + 1):
    DEEP = {"type": "array", "items": DEEP}  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(("f", {**FIXED, "size": "x"})), "a fixed size of 'x' bytes"),
        (record(("f", {**FIXED, "size": -1})), "a fixed size of -1 bytes"),
        (record(("f", {**FIXED, "size": 1.5})), "a fixed size of 1.5 bytes"),
        (record(("f", {**FIXED, "size": 2**40})), f"a fixed size of {2**40} bytes"),
        (record(("f", {**FIXED, "size": 10**30})), "a fixed size of"),
        (record(("f", FIXED)), "is not an Avro schema"),
        (record((3, "int")), "a field with the name 3"),
        (record(("f", ["int", "null", "int"])), "a union with int in it twice"),
        (record(("f", DEEP)), f"types nested more than {DEEPEST} deep"),
        (record(("f", {"type": "array"})), "is not an Avro schema"),
        ({"type": "record", "name": "R", "fields": None}, "is not an Avro schema"),
        (record(("a", "int"), ("a", "long")), "is not an Avro schema: type R has the field a twice"),
        (record(("a", "E")), "is not an Avro schema: unknown type 'E'"),
        (record(("a", {"type": "enum", "name": "E", "symbols": [1]})), "an enum has symbols that are not texts"),
        (
            record(
                ("a", {"type": "enum", "name": "E", "symbols": ["x"]}),
                ("b", {"type": "enum", "name": "E", "symbols": ["y"]}),
            ),
            "type E has two different definitions",
        ),
        ("[" * 100_000, "is not an Avro schema"),
        ("", "is not an Avro schema"),
        ("5", "is not an Avro schema"),
    ],
)
def test_a_schema_that_is_none_rejects_its_records_by_name(schema: Any, message: str) -> None:
    found = read(schema, OWN, b"\x02" * 6)
    (reject,) = found.rejects
    assert (found.table.num_rows, reject.kind) == (0, "wrong_schema")
    assert reject.reason.startswith("schema id 7: the schema")
    assert message in reject.reason


def test_a_decimal_with_a_scale_that_no_number_has_rejects_its_records() -> None:
    endless = {"type": "bytes", "logicalType": "decimal", "precision": 10**12, "scale": 10**11}
    (reject,) = read(record(("d", endless)), OWN, b"\x02\x01").rejects
    assert (reject.kind, reject.column) == ("wrong_value", "d")
    assert "the table has decimal(9, 2)" in reject.reason


PARTS = [
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 5}, b"\x02\x07", b"\x07"),
    ({"type": "bytes", "logicalType": "decimal", "precision": "4"}, b"\x02\x07", b"\x07"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": -1}, b"\x02\x07", b"\x07"),
    ({"type": "bytes", "logicalType": "decimal", "precision": True}, b"\x02\x07", b"\x07"),
    ({**FIXED, "size": 2, "logicalType": "decimal", "precision": 5}, b"\x00\x07", b"\x00\x07"),
    ({**FIXED, "size": 0, "logicalType": "decimal", "precision": 1}, b"", b""),
    ({"type": "string", "logicalType": "decimal", "precision": 1, "scale": 2}, b"\x02\x07", b"\x07"),
]


@pytest.mark.parametrize(("stated", "written", "value"), PARTS)
def test_a_logical_type_that_is_not_valid_is_the_type_that_it_is_of(stated: Any, written: bytes, value: bytes) -> None:
    found = read(record(("f", stated), ("a", "long")), OWN[:2], written + b"\x0e")
    assert found.rejects == ()
    assert found.table.to_pylist() == [{"a": 7, "f": value}]


INNER = {"type": "enum", "name": "E", "symbols": ["grün"]}


@pytest.mark.parametrize(
    ("namespace", "first", "second"),
    [
        (None, INNER, INNER),
        (None, INNER, {**INNER, "doc": "the same again"}),
        (None, "E", INNER),
        ("n", {**INNER, "namespace": ""}, "E"),
        ("n", {**INNER, "namespace": None}, "n.E"),
        ("n", {**INNER, "name": "m.E", "namespace": "passed.over"}, "m.E"),
        ("n", {"type": "array", "items": INNER}, {"type": "E"}),
    ],
)
def test_a_name_means_what_registries_take_it_for(namespace: str | None, first: Any, second: Any) -> None:
    column = {"name": "f", "type": "string"}
    found = read(record(("x", first), ("f", second), namespace=namespace), [column], b"\x00\x00")
    assert (found.table.to_pylist(), found.rejects, found.ignored) == ([{"f": "grün"}], (), {"x": 1})


def test_types_within_types_are_counted_through_their_names() -> None:
    fields: list[Any] = [("a", "long")]
    inner: Any = "int"
    for n in range(12):
        of = inner
        for _ in range(DEEPEST - 10):
            of = {"type": "array", "items": of}
        fields.append((f"f{n}", ["null", record(("x", of), name=f"R{n}")]))
        inner = f"R{n}"
    (reject,) = read(record(*fields), OWN, b"\x0e" + b"\x00" * 11 + b"\x02" * 2000).rejects
    assert reject.reason == f"schema id 7: the schema has types nested more than {DEEPEST} deep"


def test_items_whose_length_is_less_than_nothing_reject_their_record() -> None:
    schema = record(("x", {"type": "array", "items": "long"}), ("a", "long"))
    found = read(schema, OWN, b"\x01\x01\x04\x00\x0e", b"\x01\x02\x04\x00\x0e")
    assert [(r.index, r.kind) for r in found.rejects] == [(0, "not_avro")]
    assert found.table.column("a").to_pylist() == [7]


def test_columns_are_made_of_what_has_a_value() -> None:
    schema = record(("a", "long"), ("n", []), ("f", {**FIXED, "size": 0}), ("x", {"type": "array", "items": "F"}))
    columns = avro_columns(writer_type(json.dumps(schema)))
    assert [(c.name, c.type, c.notes) for c in columns] == [
        ("a", "long", ()),
        ("n", None, ("n: left out: always null",)),
        ("f", None, ("f: left out: fixed F has no bytes",)),
        ("x", None, ("x.element: left out: fixed F has no bytes",)),
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "bytes", "precision": 5, "scale": 2046},
        {"type": "bytes", "precision": 5, "scale": -2},
        {"type": "bytes", "precision": 0},
        {**FIXED, "size": 2, "precision": 9},
    ],
)
@pytest.mark.parametrize("within", [lambda kind: kind, lambda kind: ["null", kind]])
def test_a_decimal_that_can_be_none_is_read_as_its_bytes(odd: dict[str, Any], within: Any) -> None:
    schema = record(("a", "long"), ("f", within({**odd, "logicalType": "decimal"})))
    plain = record(("a", "long"), ("f", within(odd)))
    value = b"xy" if not isinstance(plain["fields"][1]["type"], list) else (1, b"xy")
    found = read(schema, OWN[:2], encoded(plain, {"a": 7, "f": value}))
    assert (found.rejects, found.table.to_pylist()) == ((), [{"a": 7, "f": b"xy"}])


def _counted(*counts: int) -> bytes:
    """Blocks of so many items of no bytes."""
    return b"".join(encoded("long", count) for count in (*counts, 0))


@pytest.mark.parametrize("inner", ["null", {"type": "record", "name": "E", "fields": []}, {**FIXED, "size": 0}])
def test_items_of_no_bytes_are_accepted_so_many_in_a_record_and_no_more(inner: Any) -> None:
    schema = record(("a", "long"), ("x", {"type": "array", "items": {"type": "array", "items": inner}}))
    columns = [OWN[0], {"name": "x", "type": {"list": {"list": "binary"}}}]
    half = MOST_EMPTY // 2
    most = b"\x0e\x06" + _counted(half) + _counted(half - 1, 1) + _counted() + b"\x00"
    more = b"\x0e\x06" + _counted(half) + _counted(half - 1, 1) + _counted(1) + b"\x00"
    lists = columns if inner == "null" else OWN[:1]
    found = read(schema, lists, most, more, most, b"\x0e\x02" + _counted(2**40))
    assert list(found.records or ()) == [0, 2]
    assert [(r.index, r.kind) for r in found.rejects] == [(1, "not_avro"), (3, "not_avro")]
    if inner == "null":
        assert [len(each) for each in found.table.column("x").to_pylist()[0]] == [half, half, 0]


ITEM = record(
    ("n", ["null", "string"]), ("m", {"type": "map", "values": {"type": "array", "items": "double"}}), name="I"
)


def _item(n: int) -> dict[str, Any]:
    return {"n": (1, f"text {n}") if n % 3 else (0, None), "m": {"a": [0.5] * (n % 4), "b": []}}


@pytest.mark.heavy(but=("map-200-2",))
@pytest.mark.parametrize("step", [0, 2, 100])
@pytest.mark.parametrize("many", [3, 200])
@pytest.mark.parametrize("kind", ["array", "map"])
def test_the_items_of_a_long_array_are_the_same_as_of_a_short_one(
    kind: str, many: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "STEP", step)
    of = "items" if kind == "array" else "values"
    schema = record(
        ("a", "long"), ("x", {"type": kind, of: ITEM}), ("y", {"type": kind, of: {**ITEM, "name": "J"}}), ("z", "long")
    )
    names = [str(n) for n in range(many)]
    value: Any = [_item(n) for n in range(many)] if kind == "array" else {name: _item(int(name)) for name in names}
    short = value[:2] if kind == "array" else {name: value[name] for name in names[:2]}
    made = [encoded(schema, {"a": n, "x": x, "y": x, "z": n}) for n, x in enumerate((short, value, short, value))]
    numbers = {"map": {"key": "string", "value": {"list": "double"}}}
    struct = {"struct": [{"name": "n", "type": "string"}, {"name": "m", "type": numbers}]}
    target = {"list": struct} if kind == "array" else {"map": {"key": "string", "value": struct}}
    columns = [OWN[0], {"name": "x", "type": target}, {"name": "z", "type": "long"}]
    found = read(schema, columns, *made[:2], made[1][:-40], *made[2:])
    assert [(r.index, r.kind) for r in found.rejects] == [(2, "not_avro")]
    rows = found.table.column("x").to_pylist()
    assert rows == [rows[0], rows[1], rows[0], rows[1]]
    values = rows[1] if kind == "array" else [item for _, item in rows[1]]
    assert [item["n"] for item in values] == [f"text {n}" if n % 3 else None for n in range(many)]
    assert [dict(item["m"]) for item in values] == [{"a": [0.5] * (n % 4), "b": []} for n in range(many)]
    assert found.table.column("z").to_pylist() == [0, 1, 2, 3]
    assert found.ignored == {"y": 4}


@pytest.mark.parametrize("corruption", [b"", b"\x02", b"\x01\x10\x02q", b"\x03\x02", b"\x80" * 11])
@pytest.mark.parametrize(("setting", "number"), [("STEP", 0), ("STEP", 100), ("PIECE", 3)])
@pytest.mark.parametrize("inner", ["string", "long", "boolean"])
def test_blocks_of_few_items_are_the_items_of_one(
    inner: str, setting: str, number: int, corruption: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of one item, then of two with their length, and what is no block any more."""
    monkeypatch.setattr(items, setting, number)
    one = {"string": b"\x02q", "long": b"\x0e", "boolean": b"\x01"}[inner]
    two = b"\x03" + encoded("long", 2 * len(one)) + 2 * one
    schema = record(("x", {"type": "array", "items": inner}), ("y", {"type": "array", "items": inner}), ("a", "long"))
    columns = [OWN[0], {"name": "x", "type": {"list": inner}}]
    array = (b"\x02" + one) * 5 + two * 3
    good = (array + b"\x00") * 2 + b"\x0e"
    found = read(schema, columns, good, array + corruption, b"\x00\x00\x10", array + b"\x00" + array + corruption, good)
    assert [(r.index, r.kind) for r in found.rejects] == [(1, "not_avro"), (3, "not_avro")]
    assert found.table.column("a").to_pylist() == [7, 8, 7]
    value = {"string": "q", "long": 7, "boolean": True}[inner]
    assert found.table.column("x").to_pylist() == [[value] * 11, [], [value] * 11]
    assert found.ignored == {"y": 3}


def test_a_record_of_arrays_in_arrays_is_not_read_item_by_item(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step for each of 90,000 items took half a minute."""
    steps = 0

    def counted(*given: Any, own: Any = items.each_item) -> Any:
        nonlocal steps
        for each in own(*given):
            steps += 1
            yield each

    monkeypatch.setattr(nested, "each_item", counted)
    schema = record(("x", {"type": "array", "items": {"type": "array", "items": "string"}}))
    row = encoded("long", 300) + b"\x02q" * 300 + b"\x00"
    columns = [{"name": "x", "type": {"list": {"list": "string"}}}]
    found = read(schema, columns, encoded("long", 300) + row * 300 + b"\x00")
    assert found.table.column("x").to_pylist() == [[["q"] * 300] * 300]
    assert steps < 1000


def _grown(times: int, leaf: list[dict[str, Any]]) -> dict[str, Any]:
    """A schema of a few kilobytes whose types, each written out, are 2 ** times."""
    inner: Any = {"type": "record", "name": "L0", "fields": leaf}
    for n in range(times):
        inner = record(("a", inner), ("b", f"L{n}"), name=f"L{n + 1}")
    return inner  # type: ignore[no-any-return]


@pytest.mark.parametrize("leaf", [[], [{"name": "n", "type": "null"}], [{"name": "n", "type": "int"}]])
def test_types_that_name_each_other_many_times_cost_no_more_than_their_text(leaf: list[Any]) -> None:
    schema = record(("a", "long"), ("x", ["null", _grown(70, leaf)]))
    found = read(schema, OWN, b"\x0e\x00", b"\x0e\x02")
    rows = found.table.column("a").to_pylist()
    assert rows == ([7, 7] if leaf != [{"name": "n", "type": "int"}] else [7])


@pytest.mark.heavy
def test_a_fixed_of_less_than_nothing_does_not_end_the_process() -> None:
    """It once read what is before the record, and that of another process's memory at last."""
    code = """if True:
        from tests.unit.formats.avro.test_odd_schemas import FIXED, OWN, read, record
        print(read(record(("f", {**FIXED, "size": -1})), OWN, b"0" * 9).rejects[0].kind)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "wrong_schema"), done.stderr


V1 = record(("n", "int"), name="Order", namespace="shop.v1")
V2 = record(("t", "string"), name="Order", namespace="shop.v2")
TWO_ORDERS = record(("u", ["null", V1, V2]))


def test_types_of_a_union_with_the_same_name_are_called_by_their_complete_names() -> None:
    inferred = avro_columns(writer_type(json.dumps(TWO_ORDERS)))
    columns = [c.to_dict() for c in inferred]
    assert [f["name"] for f in columns[0]["type"]["struct"]] == ["shop_v1_Order", "shop_v2_Order"]
    found = read(TWO_ORDERS, columns, b"\x02\x0a", b"\x04\x02x", b"\x00")
    assert found.rejects == ()
    assert found.table.column("u").to_pylist() == [
        {"shop_v1_Order": {"n": 5}, "shop_v2_Order": None},
        {"shop_v1_Order": None, "shop_v2_Order": {"t": "x"}},
        None,
    ]


def test_a_name_that_two_types_of_a_union_have_is_refused_where_one_comes() -> None:
    order = {"struct": [{"name": "n", "type": "int"}, {"name": "t", "type": "string"}]}
    found = read(
        TWO_ORDERS,
        [{"name": "u", "type": {"struct": [{"name": "Order", "type": order}]}}],
        b"\x02\x0a",
        b"\x00",
        b"\x04\x02x",
    )
    assert found.table.column("u").to_pylist() == [None]
    message = "several types of the union have the name Order: name this field"
    assert [(r.index, r.kind, r.reason.partition(": ")[2]) for r in found.rejects] == [
        (i, "wrong_value", f"{message} {name} (schema id 7)")
        for i, name in ((0, "shop_v1_Order"), (2, "shop_v2_Order"))
    ]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_type_without_a_namespace_keeps_its_column_next_to_one_of_the_same_name(order: tuple[int, ...]) -> None:
    plain = record(("n", "int"), name="Order")
    types = [(plain, b"\x0a"), (V2, b"\x02x")]
    schema = record(("u", ["null", *(types[n][0] for n in order)]))
    values = [bytes([2 * order.index(n) + 2]) + value for n, (_, value) in enumerate(types)]
    own = {"name": "Order", "type": {"struct": [{"name": "n", "type": "int"}]}}
    found = read(schema, [{"name": "u", "type": {"struct": [own]}}], *values, b"\x00")
    assert found.table.column("u").to_pylist() == [{"Order": {"n": 5}}, {"Order": None}, None]
    assert (found.rejects, found.ignored) == ((), {"u.shop_v2_Order": 1})


@pytest.mark.parametrize(("required", "rows"), [("int", [0, 2]), ("long", [2])])
def test_a_required_field_for_one_type_of_a_union_rejects_the_others(required: str, rows: list[int]) -> None:
    members = [{"name": n, "type": n, "required": n == required} for n in ("int", "string", "long")]
    schema = record(("u", ["null", "int", "string"]))
    found = read(schema, [{"name": "u", "type": {"struct": members}}], b"\x02\x0e", b"\x04\x02q", b"\x00")
    assert list(found.records or ()) == rows
    assert {(r.kind, r.column) for r in found.rejects} == {("missing_required", f"u.{required}")}


@pytest.mark.parametrize("scale", [0, 2])
@pytest.mark.parametrize(
    ("number", "taken"),
    [
        (10**38 - 1, True),
        (1 - 10**38, True),
        (10**38, False),
        (-(10**38), False),
        (2**127 - 1, False),
        (1 - 2**127, False),
        (-(2**127), False),
        (-(2**127) - 1, False),
    ],
)
@pytest.mark.parametrize("padding", [0, 4])
def test_a_decimal_has_38_digits(number: int, taken: bool, scale: int, padding: int) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    octets = number.to_bytes((number.bit_length() + 8) // 8 + padding, "big", signed=True)
    value = encoded(record(("d", "bytes")), {"d": octets})
    good = encoded(record(("d", "bytes")), {"d": b"\x05"})
    found = read(record(("d", kind)), [{"name": "d", "type": f"decimal(38, {scale})"}], good, value, good)
    if taken:
        assert found.table.column("d").to_pylist()[1] == Decimal(f"{number}E-{scale}")
    else:
        assert [(r.index, r.kind) for r in found.rejects] == [(1, "wrong_value")]
