# SPDX-License-Identifier: Apache-2.0
"""Values that no change of their table makes fit: dead letters, or a reason to stop the landing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.types import StructType

from airflow_provider_lakecommit.formats.evolution.paths import Path, dotted, plain

_REQUIRED = "make it optional by hand if nulls are valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Values that the table cannot take, whatever change is allowed."""

    column: str
    in_table: str
    in_records: str
    why: str = ""

    def __str__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        return f"column {self.column} is {self.in_table} in the table and {self.in_records} in the records{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A schema whose records never become rows, whatever the table."""

    schema: str
    why: str
    column: str = ""

    def __str__(self) -> str:
        return f"{self.schema}: {self.why}"


def without_value(column: str, kind: str, how: str) -> Misfit:
    """Return the misfit of a required column without values."""
    return Misfit(column=column, in_table=f"required {kind}", in_records=how, why=_REQUIRED)


def lacking(own: StructType, inferred: StructType, above: Path = ()) -> Iterator[Misfit]:
    """Yield required columns that the writers' schema lacks: their records have no value for them."""
    there = {f.name: f.field_type for f in inferred.fields}
    for one in own.fields:
        path, kind = (*above, one.name), one.field_type
        if one.name not in there:
            if one.required:
                yield without_value(dotted(path), plain(kind), "missing")
        elif isinstance(kind, StructType) and isinstance(inner := there[one.name], StructType):
            yield from lacking(kind, inner, path)
