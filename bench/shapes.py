# SPDX-License-Identifier: Apache-2.0
"""The shapes of records that formats are compared with: one set of rows, in each of the formats.

Contract: record ``i`` of a shape is a pure function of ``i`` and the number of records; its values in all formats are
the same row, which :attr:`Shape.expected` tells without any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform

from bench import avro_orders, flat_rows, orders, protobuf_orders

__all__ = ["ORDERS", "SHAPES", "Shape"]

Values = Callable[[int, int, int], Iterator[bytes]]
"""The values of records ``first..last-1`` of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rows of one table. ``records`` is how many are landed where nothing else is said; ``values`` are without the
    framing of a registry, by format; ``times`` are the columns that JSON has as milliseconds.
    """

    name: str
    records: int
    schema: Schema
    times: tuple[str, ...]
    avro: Mapping[str, Any]
    proto: str
    message: str
    values: Mapping[str, Values]
    expected: Callable[[int, int, int], pa.Table]

    @property
    def by_day(self) -> PartitionSpec:
        """Partitioned by the day of `ts`."""
        return PartitionSpec(PartitionField(self.schema.find_field("ts").field_id, 1000, DayTransform(), "ts_day"))


def _flat(name: str, records: int, rows: flat_rows.FlatRows) -> Shape:
    return Shape(
        name=name,
        records=records,
        schema=rows.schema,
        times=rows.times,
        avro=rows.avro,
        proto=rows.proto,
        message="bench.Row",
        values={"json": rows.json_values, "avro": rows.avro_values, "protobuf": rows.protobuf_values},
        expected=rows.expected,
    )


ORDERS = Shape(
    name="orders",
    records=2_000_000,
    schema=orders.SCHEMA,
    times=("ts",),
    avro=avro_orders.AVRO,
    proto=protobuf_orders.PROTO,
    message="bench.Order",
    values={"json": orders.values, "avro": avro_orders.values, "protobuf": protobuf_orders.values},
    expected=orders.expected,
)
SHAPES = {
    "orders": ORDERS,
    "narrow": _flat("narrow", 2_000_000, flat_rows.NARROW),
    "wide": _flat("wide", 100_000, flat_rows.WIDE),
}
