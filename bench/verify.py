# SPDX-License-Identifier: Apache-2.0
"""A landed table against its source, row by row and column by column.

Contract: :func:`differences` compares every cell with what the generator says it must be; an empty answer means that
the table holds each record exactly once and exactly as it was made, and that the manifests count what the files hold.
"""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from bench.shapes import ORDERS, SHAPES, Shape

__all__ = ["Found", "differences", "verify"]

BLOCK = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is wrong with a table, and what it is made of."""

    wrong: tuple[str, ...]
    files: int
    bytes: int


def verify(catalog: Mapping[str, str], name: str, records: int, shape: Shape = ORDERS) -> Found:
    """Look at a table in a process of its own: what it takes to compare all rows is nobody's memory."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(_verify, (dict(catalog), name, records, shape.name))


def _verify(catalog: dict[str, str], name: str, records: int, shape: str) -> Found:
    table = load_catalog("lakecommit", **catalog).load_table(name)
    files = [task.file for task in table.scan().plan_files()]
    return Found(
        wrong=tuple(differences(table, records, SHAPES[shape])),
        files=len(files),
        bytes=sum(f.file_size_in_bytes for f in files),
    )


def differences(table: Table, records: int, shape: Shape) -> list[str]:
    """What is wrong with the table, the first finding of each kind."""
    rows = table.scan().to_arrow().sort_by("id")
    counted = sum(task.file.record_count for task in table.scan().plan_files())
    wrong = [] if rows.num_rows == records else [f"{rows.num_rows} rows, {records} were produced"]
    if counted != rows.num_rows:
        wrong.append(f"the manifests count {counted} rows, the files hold {rows.num_rows}")
    for first in range(0, min(rows.num_rows, records), BLOCK):
        last = min(first + BLOCK, records)
        if found := _block(rows.slice(first, last - first), shape.expected(first, last, records)):
            return [*wrong, *found]
    return wrong


def _block(rows: pa.Table, wanted: pa.Table) -> list[str]:
    columns = [c for c in wanted.column_names if not rows[c].cast(wanted[c].type).equals(wanted[c])]
    return [_first(c, rows, wanted) for c in columns]


def _first(column: str, rows: pa.Table, wanted: pa.Table) -> str:
    pairs = zip(rows[column].to_pylist(), wanted[column].to_pylist(), wanted["id"].to_pylist(), strict=False)
    for found, due, order in pairs:
        if found != due:
            return f"{column} of record {order} is {found!r}, not {due!r}"
    return f"{column}: {len(rows)} values, {len(wanted)} are due"
