# SPDX-License-Identifier: Apache-2.0
"""Count unknown fields exactly, by path.

A path is counted once per value that is not ``null``; the inside of an unknown field is not counted. List elements add
``.element``, map values ``.value``; map keys are no fields. Counts come from the types that the parser inferred
(:func:`count_inferred`, fast), or from each record in Python (:func:`count_parsed`) where fields contradict each other
or names hardly repeat. Inference needs memory for names times records, so :func:`inferable` bounds its pieces and
:func:`varied` tells when Python is cheaper.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.columns import Column
from airflow_provider_lakecommit.formats.decoder import Decoded, Refusal
from airflow_provider_lakecommit.formats.time_values import Suspects

DEEPEST = 256
MOST_MEMBERS = 1 << 13
"""Most members of a value for inference."""
PROBE_CELLS, MOST_CELLS = 1 << 22, 1 << 25
"""Names times records of the first piece, which shows whether names vary, and of others: at most 270 MB."""
VARIED = 256
"""Unknown columns of a piece from which Python is cheaper."""


def inferable(values: Sequence[bytes], probed: bool) -> Iterator[tuple[int, int]]:
    """Yield the values in pieces whose types can be inferred within bounds.

    :param probed: whether names were few so far
    """
    array = pa.array(values, pa.binary())
    opened = pc.add(pc.count_substring(array, b"{"), pc.count_substring(array, b"["))
    members = pc.count_substring(array, b":").to_numpy()
    if pc.max(opened).as_py() > DEEPEST or members.max() > MOST_MEMBERS:
        raise Refusal("unknown_field", None, "too deep or too wide to infer types")
    before = np.concatenate(([0], np.cumsum(members, dtype=np.int64)))
    start, most = 0, MOST_CELLS if probed else PROBE_CELLS
    while start < len(values):
        cells = (before[start + 1 :] - before[start]) * np.arange(1, len(values) - start + 1)
        end = start + max(1, int(np.searchsorted(cells, most, side="right")))
        yield start, end
        start, most = end, MOST_CELLS


def varied(kind: pa.DataType, known: pa.DataType) -> bool:
    """Return True if an inferred type has so many more columns that inference does not pay."""
    return _columns_in(kind) - _columns_in(known) > VARIED


def _columns_in(kind: pa.DataType) -> int:
    return 1 + sum(_columns_in(kind.field(i).type) for i in range(kind.num_fields))


def count_inferred(columns: Iterable[Column], array: pa.Array, at: str = "") -> Counter[str]:
    """Return the unknown fields of a struct array that was parsed with inference."""
    known = {c.name: c for c in columns}
    counts: Counter[str] = Counter()
    for i in range(array.type.num_fields):
        name = array.type.field(i).name
        child = array.field(i)
        if name not in known:
            counts[at + name] += len(child) - child.null_count
            continue
        column, path = known[name], at + name
        while pa.types.is_list(child.type):
            child = child.values
            if column.is_map:
                column, child, path = column.children[1], child.field("value"), f"{path}.value"
            else:
                column, path = column.children[0], f"{path}.element"
        if pa.types.is_struct(child.type):
            counts += count_inferred(column.children, child, f"{path}.")
    return +counts


def count_parsed(columns: Sequence[Column], values: Iterable[bytes]) -> Counter[str]:
    """Return the same for values that inference cannot take, one by one."""
    counts: Counter[str] = Counter()
    for value in values:
        counts.update(paths_of(columns, value, nulls=False))
    return counts


def paths_of(columns: Sequence[Column], value: bytes, *, nulls: bool = True) -> list[str]:
    """Return the unknown fields of one value.

    :param nulls: include fields that are ``null``
    """
    try:
        return list(_walk(columns, json.loads(value), "", nulls))
    except ValueError as e:
        raise Refusal("not_json", None, f"the value is not valid JSON: {e}") from e
    except RecursionError as e:
        raise Refusal("not_json", None, "the value has unknown fields and is nested too deeply to count them") from e


def _walk(columns: Iterable[Column], record: dict[str, Any], at: str, nulls: bool) -> Iterator[str]:
    known = {c.name: c for c in columns}
    for name, value in record.items():
        if name in known:
            yield from _within(known[name], value, at + name, nulls)
        elif nulls or value is not None:
            yield at + name


def _within(column: Column, value: Any, path: str, nulls: bool) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _walk(column.children, value, f"{path}.", nulls)
    elif isinstance(value, list) and column.is_map:
        for pair in value:
            yield from _within(column.children[1], pair["value"], f"{path}.value", nulls)
    elif isinstance(value, list) and column.children:
        for element in value:
            yield from _within(column.children[0], element, f"{path}.element", nulls)


def cased_names(decoded: Decoded) -> dict[str, Suspects]:
    """Return columns, also nested ones outside of lists and maps, whose records have a field of that name in another
    case: how many of the rows lack the column and may have the field.

    Names are case-sensitive, so such a field is an unknown one, and its column is null where it is optional. Nearly
    always the column should have had its values.
    """
    found: dict[str, Suspects] = {}
    for path, count in decoded.ignored.items():
        *parents, name = path.split(".")
        rows = _rows_at(decoded.table, parents)
        names = [] if rows is None else [f.name for f in rows.type]
        if rows is not None and (like := next((n for n in names if n.casefold() == name.casefold()), None)):
            lacking = pc.struct_field(rows, like).null_count - rows.null_count
            column = ".".join([*parents, like])
            found[column] = Suspects(min(count, lacking), len(rows) - rows.null_count, path)
    return found


def _rows_at(table: pa.Table, parents: list[str]) -> pa.ChunkedArray | None:
    """Return the struct that has a field, where all rows are."""
    rows = table.to_struct_array()
    for name in parents:
        if not pa.types.is_struct(rows.type) or rows.type.get_field_index(name) < 0:
            return None
        rows = pc.struct_field(rows, name)
    return rows if pa.types.is_struct(rows.type) else None
