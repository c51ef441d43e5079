# SPDX-License-Identifier: Apache-2.0
"""Rows with the columns filled from record keys and headers.

Contract: decoded values get further columns, and perhaps fewer rows: a record rejected for its key or header loses all
its rows. Records whose value was rejected or gave no row are skipped. A key whose schema is named in a header is read
after it. The columns are in the order of the table's schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import WITH_REGISTRY
from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats import (
    KEY_HEADER,
    Decoded,
    Refusal,
    Reject,
    SchemaRegistry,
    needed,
    registry_of,
    with_header,
)
from airflow_provider_lakecommit.iceberg import arrow_field
from airflow_provider_lakecommit.kafka import headers_of
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.dead_letters import Record
from airflow_provider_lakecommit.spark.record_parts import RecordPart, parts_of


def registry_for(landing: Landing, format: str, kafka: Mapping[str, Any] | None) -> SchemaRegistry | None:
    """Return the registry of a format that needs one.

    :param kafka: settings of the source, with a registry's; ``None`` if nothing is decoded
    :raises RegistryError: the settings have no usable registry
    """
    if kafka is None or format not in WITH_REGISTRY:
        return None
    try:
        return needed(registry_of(kafka), landing.name, format)
    except SpecError as e:
        # The plan has checked them: a mistake here is not caused by a record.
        raise RegistryError("LC5008", str(e)) from None


def key_columns(landing: Landing, schema: Schema, kafka: Mapping[str, Any] | None = None) -> KeyColumns:
    """Return the filler of a table's columns from keys and headers.

    :param kafka: as for :func:`registry_for`
    :raises TableError: the table lacks such a column, or it cannot be filled
    :raises RegistryError: as :func:`registry_for`
    """
    stated = bool(landing.columns.key.get("schema"))
    registry = None if stated else registry_for(landing, landing.columns.key.get("format", ""), kafka)
    parts = parts_of(schema, landing.format_options, landing.columns.key, landing.columns.headers, registry)
    return KeyColumns(schema, parts, framed_keys=registry is not None)


class KeyColumns:
    """A landing's options on keys and headers, for one table.

    :param framed_keys: True if keys name registry schemas
    """

    def __init__(self, schema: Schema, parts: Sequence[RecordPart], *, framed_keys: bool = False) -> None:
        self._schema, self._parts, self._framed_keys = schema, parts, framed_keys
        self._headers = framed_keys or any(part.header is not None for part in self._parts)

    def added(self, decoded: Decoded, records: Sequence[Record]) -> Decoded:
        """Return the rows with these columns.

        :param records: the records of the decoded values
        """
        if not self._parts:
            return decoded
        of_rows = np.asarray(range(len(records)) if decoded.records is None else decoded.records, np.int64)
        landed, rows = np.unique(of_rows, return_inverse=True)
        columns, refused, ignored = dict[str, pa.Array](), dict[int, Refusal](), Counter[str]()
        keys = [records[i].key() for i in landed]
        headers = [headers_of(records[i]) or () for i in landed] if self._headers else [()] * len(landed)
        if self._framed_keys:
            keys = [k if k is None else with_header(k, own, KEY_HEADER) for k, own in zip(keys, headers, strict=True)]
        for part in self._parts:
            some, bad, more = part.filled([part.of(key, own) for key, own in zip(keys, headers, strict=True)])
            columns |= some
            refused = bad | refused
            ignored += more
        # A field of the value with the name of such a column is not missing in the table.
        ignored.update({p: n for p, n in decoded.ignored.items() if p.partition(".")[0] not in columns})
        kept = np.array([i not in refused for i in range(len(landed))], bool)[rows]
        table = _with(decoded.table, {n: c.take(pa.array(rows)) for n, c in columns.items()}, self._schema, kept)
        rejects = [*decoded.rejects, *(Reject.of(int(landed[i]), why) for i, why in refused.items())]
        return replace(
            decoded,
            table=table,
            records=decoded.records if kept.all() else of_rows[kept].tolist(),
            rejects=tuple(sorted(rejects, key=lambda r: r.index)),
            ignored=ignored,
        )

    def close(self) -> None:
        """Release the resources of the parts' decoders."""
        for part in self._parts:
            part.close()


def _with(
    table: pa.Table, columns: dict[str, pa.Array], schema: Schema, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> pa.Table:
    """Return the table with further columns and only the kept rows."""
    mask = None if kept.all() else pa.array(kept)

    def of(name: str) -> pa.Array:
        column = columns[name] if name in columns else table.column(name)
        return column if mask is None else column.filter(mask)

    fields = [f for f in schema.fields if f.name in columns or f.name in table.column_names]
    return pa.Table.from_arrays([of(f.name) for f in fields], schema=pa.schema([arrow_field(f) for f in fields]))
