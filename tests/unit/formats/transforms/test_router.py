# SPDX-License-Identifier: Apache-2.0
"""Records to tables by a field, against a reading of each value alone by Python's own parser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from airflow_provider_lakecommit.formats.transforms.router import Block
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.decoders import block_decoder
from tests.support.effort import examples

ORDERS = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
REFUNDS = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "cents", LongType(), required=True))
TABLES = {"order": "s.orders", "": "s.orders", "refund": "s.refunds", "gone": "s.gone"}


def routed(values: Sequence[bytes], field: str = "type", other: str = "dead_letter") -> Block:
    landing = Landing(name="a", topics="a", table="s.orders", route={"field": field, "tables": TABLES, "other": other})
    decoder = block_decoder(landing, {"s.orders": ORDERS, "s.refunds": REFUNDS})
    block = decoder.decode(values)
    decoder.close()
    return block


def dispositions(block: Block) -> dict[int, Any]:
    """What became of each value, by its place; each has exactly one disposition."""
    found: list[tuple[int, Any]] = [(r.index, r.kind) for r in block.rejects]
    for table, decoded in block.tables.items():
        places = range(decoded.table.num_rows) if decoded.records is None else decoded.records
        assert list(places) == sorted(places), "records keep their order"
        rows = decoded.table.column("id").to_pylist()
        found += [(place, (table, row)) for place, row in zip(places, rows, strict=True)]
    out = dict(found)
    assert len(out) == len(found)
    assert block.landed(len(out)) == sorted(p for p, found in out.items() if isinstance(found, tuple))
    return out


def disposition(value: bytes, other: str) -> Any:
    """By the words of the contract alone."""
    try:
        record = json.loads(value)
    except ValueError:
        return "not_json"
    if not isinstance(record, dict):
        return "not_json"
    kind = record.get("type")
    table = TABLES.get(kind) if isinstance(kind, str) else None
    if table is None and other == "dead_letter":
        return "not_routed"
    table = table or other
    if table == "s.gone":
        return "missing_table"
    needed = {"s.orders": ("id",), "s.refunds": ("id", "cents")}[table]
    wrong = [n for n in ("id", "cents") if n in record and n in needed and not isinstance(record[n], int | None)]
    lacking = [n for n in needed if record.get(n) is None]
    return "wrong_value" if wrong else "missing_required" if lacking else (table, record["id"])


KINDS = st.sampled_from(["order", "", "refund", "gone", "gift", "Order", None, 7, True, [], {}, 1.5])
RECORDS = st.fixed_dictionaries(
    {}, optional={"type": KINDS, "id": st.sampled_from([1, 2, None, "x"]), "cents": st.sampled_from([1, None, "x"])}
)
VALUES = st.one_of(
    RECORDS.map(json.dumps), st.sampled_from(["", "{", "null", "[]", "7", '{"type": "order"', '"order"'])
)


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(st.lists(VALUES.map(str.encode), max_size=40), st.sampled_from(["dead_letter", "s.refunds"]))
def test_every_value_has_the_disposition_that_its_field_reports(values: list[bytes], other: str) -> None:
    assert dispositions(routed(values, other=other)) == {i: disposition(value, other) for i, value in enumerate(values)}


@pytest.mark.parametrize("field", ["a.b.c", "a"])
def test_a_field_may_be_within_objects(field: str) -> None:
    path = field.split(".")
    inner: Any = "refund"
    for name in reversed(path):
        inner = {name: inner}
    values = [json.dumps({"id": 1, "cents": 2, **inner}).encode(), b'{"id": 1, "a": {"b": 1}}', b'{"id": 2, "a": []}']
    assert dispositions(routed(values, field)) == {0: ("s.refunds", 1), 1: "not_routed", 2: "not_routed"}


def test_one_table_alone_costs_no_copy_of_the_values() -> None:
    values = [json.dumps({"type": "order", "id": i}).encode() for i in range(1000)]
    assert dispositions(routed(values)) == {i: ("s.orders", i) for i in range(1000)}


def test_a_long_text_is_printed_short() -> None:
    (reject,) = routed([json.dumps({"type": "x" * 9999}).encode()]).rejects
    assert len(reject.reason) < 200
