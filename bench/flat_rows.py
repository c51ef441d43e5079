# SPDX-License-Identifier: Apache-2.0
"""Rows without structs: 300 columns of all plain types, or six columns in about a hundred bytes.

Contract: :class:`FlatRows` has the schema of its rows for the table and for each format, and their values in each. The
cells of a column are mixed from the number of the record and that of the column; every other column of the wide rows
may be null, and is in one of three records.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from bench.orders import BASE_MS, BLOCK, SPREAD_MS, mixed

__all__ = ["NARROW", "WIDE", "FlatRows"]

TEXTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a plain type is called by a table, Arrow, Avro and Protobuf."""

    table: PrimitiveType
    arrow: pa.DataType
    avro: Any
    proto: str


KINDS = {
    "long": Kind(table=LongType(), arrow=pa.int64(), avro="long", proto="int64"),
    "int": Kind(table=IntegerType(), arrow=pa.int32(), avro="int", proto="int32"),
    "double": Kind(table=DoubleType(), arrow=pa.float64(), avro="double", proto="double"),
    "boolean": Kind(table=BooleanType(), arrow=pa.bool_(), avro="boolean", proto="bool"),
    "text": Kind(table=StringType(), arrow=pa.string(), avro="string", proto="string"),
    "time": Kind(
        table=TimestamptzType(),
        arrow=pa.timestamp("us", "UTC"),
        avro={"type": "long", "logicalType": "timestamp-millis"},
        proto="google.protobuf.Timestamp",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column; ``length`` is that of its texts."""

    name: str
    kind: str
    optional: bool = False
    length: int = 12

    @property
    def texts(self) -> list[str]:
        draw = random.Random(self.name)
        return ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=self.length)) for _ in range(TEXTS)]


class FlatRows:
    """The rows of these columns, of which the first two are `id` and `ts`."""

    def __init__(self, *columns: Column) -> None:
        self._columns = (Column(name="id", kind="long"), Column(name="ts", kind="time"), *columns)
        self._texts = {c.name: c.texts for c in self._columns if c.kind == "text"}

    @property
    def schema(self) -> Schema:
        """The table's."""
        fields = (
            NestedField(n, c.name, KINDS[c.kind].table, required=c.name == "id")
            for n, c in enumerate(self._columns, start=1)
        )
        return Schema(*fields)

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of instants."""
        return tuple(c.name for c in self._columns if c.kind == "time")

    @property
    def avro(self) -> dict[str, Any]:
        """The schema of Avro."""
        types = {c.name: ["null", KINDS[c.kind].avro] if c.optional else KINDS[c.kind].avro for c in self._columns}
        return {"type": "record", "name": "Row", "fields": [{"name": n, "type": kind} for n, kind in types.items()]}

    @property
    def proto(self) -> str:
        """The schema of Protobuf."""
        fields = (
            f"  {'optional ' if c.optional else ''}{KINDS[c.kind].proto} {c.name} = {n};"
            for n, c in enumerate(self._columns, start=1)
        )
        head = 'syntax = "proto3"; package bench; import "google/protobuf/timestamp.proto";'
        return "\n".join((head, "message Row {", *fields, "}"))

    def json_values(self, first: int, last: int, records: int) -> Iterator[bytes]:
        """As JSON, instants as milliseconds."""
        for row in self._rows(first, last, records):
            yield json.dumps(row, separators=(",", ":")).encode()

    def avro_values(self, first: int, last: int, records: int) -> Iterator[bytes]:
        """As Avro."""
        schema = fastavro.parse_schema(self.avro)
        for row in self._rows(first, last, records):
            out = BytesIO()
            fastavro.schemaless_writer(out, schema, row)
            yield out.getvalue()

    def protobuf_values(self, first: int, last: int, records: int) -> Iterator[bytes]:
        """As Protobuf."""
        kind: Any = GetMessageClass(message_named(file_of(self.proto), "bench.Row"))
        for row in self._rows(first, last, records):
            for name in self.times:
                if (ms := row[name]) is not None:
                    row[name] = {"seconds": ms // 1000, "nanos": ms % 1000 * 1_000_000}
            yield kind(**row).SerializeToString()

    def expected(self, first: int, last: int, records: int) -> pa.Table:
        """As rows of the table."""
        arrays = {}
        for c, (cells, nulls) in zip(self._columns, self._cells(first, last, records), strict=True):
            micros = cells * 1000 if c.kind == "time" else cells
            arrays[c.name] = pa.array(micros, KINDS[c.kind].arrow, mask=nulls)
        return pa.table(arrays)

    def _rows(self, first: int, last: int, records: int) -> Iterator[dict[str, Any]]:
        names = [c.name for c in self._columns]
        for start in range(first, last, BLOCK):
            columns = []
            for cells, nulls in self._cells(start, min(start + BLOCK, last), records):
                cells = cells.astype(object)
                if nulls is not None:
                    cells[nulls] = None
                columns.append(cells.tolist())
            for row in zip(*columns, strict=True):
                yield dict(zip(names, row, strict=True))

    def _cells(self, first: int, last: int, records: int) -> Iterator[tuple[Any, Any]]:
        """Values and nulls, column by column."""
        i = np.arange(first, last, dtype=np.uint64)
        for n, column in enumerate(self._columns):
            h = mixed(i * np.uint64(len(self._columns)) + np.uint64(n))
            nulls = (h >> np.uint64(50)) % np.uint64(3) == 0 if column.optional else None
            yield self._of_kind(column, i, h, records), nulls

    def _of_kind(self, column: Column, i: Any, h: Any, records: int) -> Any:
        if column.name == "id":
            return i.astype(np.int64)
        if column.name == "ts":
            return BASE_MS + (i.astype(np.float64) / max(records, 1) * SPREAD_MS).astype(np.int64)
        if column.kind == "text":
            return np.array(self._texts[column.name], object)[(h % np.uint64(TEXTS)).astype(np.int64)]
        if column.kind == "boolean":
            return h % np.uint64(2) == 1
        if column.kind == "double":
            return (h % np.uint64(1_000_000)).astype(np.float64) / 100
        if column.kind == "int":
            return (h % np.uint64(100_000)).astype(np.int32)
        ticks = (h % np.uint64(SPREAD_MS)).astype(np.int64)
        return ticks + BASE_MS if column.kind == "time" else ticks * 1000


def _wide(count: int) -> Iterator[Column]:
    kinds = tuple(KINDS)
    for n in range(count):
        kind = kinds[n % len(kinds)]
        yield Column(name=f"{kind}_{n}", kind=kind, optional=n // len(kinds) % 2 == 1)


NARROW = FlatRows(
    Column(name="device", kind="text", length=36),
    Column(name="message", kind="text", length=40),
    Column(name="reading", kind="double"),
    Column(name="flags", kind="int"),
)
WIDE = FlatRows(*_wide(298))
