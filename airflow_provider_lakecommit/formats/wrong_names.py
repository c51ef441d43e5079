# SPDX-License-Identifier: Apache-2.0
"""Columns that stay null because the records spell their names in another case.

Names are case-sensitive, so such a field is an unknown one, and its column is null where it is optional. Nearly always
the column should have had its values.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.decoder import Decoded
from airflow_provider_lakecommit.formats.times import Suspects


def cased_names(decoded: Decoded) -> dict[str, Suspects]:
    """Return columns, also nested ones outside of lists and maps, whose records have a field of that name in another
    case: how many of the rows lack the column and may have the field.
    """
    found: dict[str, Suspects] = {}
    for path, count in decoded.ignored.items():
        *parents, name = path.split(".")
        rows = _within(decoded.table, parents)
        names = [] if rows is None else [f.name for f in rows.type]
        if rows is not None and (like := next((n for n in names if n.casefold() == name.casefold()), None)):
            lacking = pc.struct_field(rows, like).null_count - rows.null_count
            column = ".".join([*parents, like])
            found[column] = Suspects(min(count, lacking), len(rows) - rows.null_count, path)
    return found


def _within(table: pa.Table, parents: list[str]) -> pa.ChunkedArray | None:
    """Return the struct that has a field, where all rows are."""
    rows = table.to_struct_array()
    for name in parents:
        if not pa.types.is_struct(rows.type) or rows.type.get_field_index(name) < 0:
            return None
        rows = pc.struct_field(rows, name)
    return rows if pa.types.is_struct(rows.type) else None
