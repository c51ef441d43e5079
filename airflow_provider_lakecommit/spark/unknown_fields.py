# SPDX-License-Identifier: Apache-2.0
"""Fields of the records that the table lacks: counted exactly, per path.

Contract: a path is counted once for each value that is not ``null``; what is inside an unknown field is not looked at.
List elements add ``.element`` and map values ``.value``, as in the table's own column names; the keys of a map are no
fields. Maps are lists of pairs here, as the parser gets them. Two ways, the same counts: from the types that the
parser inferred for a block (:func:`count_inferred`, fast), and by reading each record in Python (:func:`count_parsed`),
where the fields of a block contradict each other. Inferring builds nested types as deep as the data, so it is only for
blocks that :func:`shallow` has bounded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.spark.columns import Column, Refusal

__all__ = ["count_inferred", "count_parsed", "paths_of", "shallow"]

DEEPEST = 256


def shallow(values: Sequence[bytes]) -> bool:
    """Whether no value can be nested deeper than Arrow's types can bear: a depth needs as many opening brackets."""
    array = pa.array(values, pa.binary())
    opened = pc.add(pc.count_substring(array, b"{"), pc.count_substring(array, b"["))
    return bool(pc.max(opened).as_py() <= DEEPEST)


def count_inferred(columns: Iterable[Column], array: pa.Array, at: str = "") -> Counter[str]:
    """Unknown fields of a struct array that was parsed with inference."""
    known = {c.name: c for c in columns}
    counts: Counter[str] = Counter()
    for i in range(array.type.num_fields):
        name = array.type.field(i).name
        child = array.field(i)
        if name not in known:
            counts[at + name] += len(child) - child.null_count
            continue
        inner, path = _elements(known[name], child, at + name)
        if inner is not None:
            counts += count_inferred(inner.children, path[1], path[0])
    return +counts


def _elements(column: Column, array: pa.Array, path: str) -> tuple[Column | None, tuple[str, pa.Array]]:
    """Through lists and maps to the struct below, if there is one."""
    while pa.types.is_list(array.type):
        if column.is_map:
            values = array.values.field(array.values.type.get_field_index("value"))
            column, array, path = column.children[1], values, f"{path}.value"
        else:
            column, array, path = column.children[0], array.values, f"{path}.element"
    return (column if pa.types.is_struct(array.type) else None), (f"{path}.", array)


def count_parsed(columns: Sequence[Column], values: Iterable[bytes]) -> Counter[str]:
    """The same for values that inference cannot take, one by one.

    :raises Refusal: a value is not one JSON object, or too deep to know
    """
    counts: Counter[str] = Counter()
    for value in values:
        counts.update(paths_of(columns, value, nulls=False))
    return counts


def paths_of(columns: Sequence[Column], value: bytes, *, nulls: bool = True) -> list[str]:
    """The unknown fields of one value.

    :param nulls: whether a field that is ``null`` is told too
    :raises Refusal: the value is not one JSON object, or too deep to know
    """
    try:
        return list(_walk(columns, json.loads(value), "", nulls))
    except ValueError as e:
        raise Refusal("not_json", None, f"the value is not valid JSON: {e}") from e
    except RecursionError as e:
        raise Refusal("not_json", None, "the value has unknown fields and is nested too deep to count them") from e


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
