# SPDX-License-Identifier: Apache-2.0
"""Route each record to the table that a field of its value, or the name of its schema, selects.

The field is read for a whole block by the landing's format, as the only column of a table; then each table's decoder
gets its values, in order. Unreadable values are rejects of the format. Values without the field, or without a matching
table, go to ``other`` of the :class:`~airflow_provider_lakecommit.core.destinations.Route`. Nothing is dropped: records
for a missing table are rejects of kind ``missing_table``, unmatched ones of kind ``not_routed``.
Each value gives at least one row of at least one table, or is a reject, or is filtered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StringType, StructType

from airflow_provider_lakecommit.core import NOT_ROUTED, Route
from airflow_provider_lakecommit.formats.decoder import Decoded, Decoder, Reject, with_positions

MISSING_TABLE = "missing_table"
WRONG_KIND = "wrong_value"
"""The kind of rejects of a value whose field is no text."""
MOST_SHOWN = 60


class Router:
    """Decodes blocks for several tables.

    :param field: decodes values into :func:`field_schema` of the paths
    :param decoders: of the existing tables
    :param paths: where the field may be, in order of preference; by default the route's
    """

    def __init__(
        self, route: Route, field: Decoder, decoders: Mapping[str, Decoder], paths: Sequence[str] = ()
    ) -> None:
        self._route, self._field, self._decoders = route, field, dict(decoders)
        self._paths = tuple(paths) or (route.field,)
        self._column = route.field or None

    def decode(self, values: Sequence[bytes]) -> Block:
        by_route, rejects = self._dealt(values)
        tables: dict[str, Decoded] = {}
        filtered = list[int]()
        for table, mine in by_route.items():
            if (decoder := self._decoders.get(table)) is None:
                why = f"the record's table {table} does not exist"
                rejects += [_refused(int(i), MISSING_TABLE, self._column, why) for i in mine]
                continue
            decoded = _decoded(decoder, values, mine)
            rejects += decoded.rejects
            filtered += decoded.filtered
            tables[table] = replace(decoded, rejects=(), filtered=())
        return Block(tables=tables, rejects=tuple(sorted(rejects, key=lambda r: r.index)), filtered=sorted(filtered))

    def tables_of(self, values: Sequence[bytes]) -> dict[str, list[int]]:
        return {table: mine.tolist() for table, mine in self._dealt(values)[0].items()}

    def close(self) -> None:
        with ExitStack() as stack:
            for decoder in (self._field, *self._decoders.values()):
                stack.callback(decoder.close)

    def _dealt(self, values: Sequence[bytes]) -> tuple[dict[str, np.ndarray], list[Reject]]:
        found = self._field.decode(values)
        # The values that have rows in `found`, and by table the places of those among them.
        positions = np.asarray(range(len(values)) if found.records is None else found.records, np.int64)
        rejects = [r for r in found.rejects if r.kind != WRONG_KIND]
        other = {r.index: r.reason for r in found.rejects if r.kind == WRONG_KIND}
        by_route, unnamed = self._by_route(found, positions)
        no_text = f"{self._route.selector} is not a text"
        reasons = {i: f"{no_text}: {why}" for i, why in other.items()} | unnamed
        if reasons:
            if (table := self._route.other_table) is not None:
                mine = np.fromiter(reasons, np.int64, len(reasons))
                by_route[table] = np.sort(np.concatenate([by_route.get(table, mine[:0]), mine]))
            else:
                rejects += [_refused(i, NOT_ROUTED, self._column, why) for i, why in reasons.items()]
        return by_route, rejects

    def _by_route(self, found: Decoded, positions: np.ndarray) -> tuple[dict[str, np.ndarray], dict[int, str]]:
        """Return each table's value positions, and by position why others have no table."""
        route, columns = self._route, [_at(found.table, path) for path in self._paths]
        texts = (pc.coalesce(*columns) if len(columns) > 1 else columns[0]).combine_chunks().dictionary_encode()
        codes = np.asarray(pc.fill_null(texts.indices, -1))
        # By text the number of its table; and why it has none. The last is for values without a text.
        names, numbers, whys = dict[str, int](), list[int](), list[str]()
        for text in [*texts.dictionary.to_pylist(), None]:
            table = None if text is None else route.tables.get(text)
            numbers.append(-1 if table is None else names.setdefault(table, len(names)))
            whys.append("" if table else self._unnamed(text))
        of_value = np.asarray(numbers)[codes]
        without = of_value == -1
        unnamed = {
            position: whys[code]
            for position, code in zip(positions[without].tolist(), codes[without].tolist(), strict=True)
        }
        return {table: positions[of_value == number] for table, number in names.items()}, unnamed

    def _unnamed(self, text: str | None) -> str:
        route = self._route
        if text is None:
            has = "the schema of the record has no name" if route.by_schema else f"the value has no field {route.field}"
            return f"{has}, by which it is routed"
        shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
        return f"{route.selector} is {shown!r}, for which `route` names no table"


def _decoded(decoder: Decoder, values: Sequence[bytes], positions: np.ndarray) -> Decoded:
    if len(positions) == len(values):
        decoded = decoder.decode(values)
        every = range(len(values)) if decoded.records is None else decoded.records
        return replace(decoded, records=every)
    mine = positions.tolist()
    return with_positions(decoder.decode([values[i] for i in mine]), mine, ())


def _refused(position: int, kind: str, column: str | None, reason: str) -> Reject:
    return Reject(index=position, kind=kind, column=column, reason=reason.encode(errors="backslashreplace").decode())


def field_schema(paths: Sequence[str]) -> Schema:
    """Return a table with only the routing text, at each path where it may be."""
    numbers, fields = count(1), list[NestedField]()
    for path in paths:
        kind: IcebergType = StringType()
        for name in reversed(path.split(".")):
            field = NestedField(next(numbers), name, kind)
            kind = StructType(field)
        fields.append(field)
    return Schema(*fields)


def _at(table: pa.Table, path: str) -> pa.ChunkedArray:
    first, *within = path.split(".")
    column = table.column(first)
    for name in within:
        column = pc.struct_field(column, name)
    return column


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The rows by table, each with its unknown fields; rejects and filtered values are those of all tables."""

    tables: Mapping[str, Decoded]
    rejects: tuple[Reject, ...] = ()
    filtered: Sequence[int] = ()

    @property
    def ignored(self) -> Counter[str]:
        return sum((decoded.ignored for decoded in self.tables.values()), Counter[str]())

    def extended(self, by: Callable[[str, Decoded], Decoded]) -> Block:
        """Return the block with keys, headers and metadata added to the rows of each table, which may reject more."""
        made = {name: by(name, decoded) for name, decoded in self.tables.items()}
        more = [reject for decoded in made.values() for reject in decoded.rejects]
        return replace(
            self,
            tables={n: replace(decoded, rejects=()) for n, decoded in made.items()},
            rejects=tuple(sorted([*self.rejects, *more], key=lambda r: r.index)) if more else self.rejects,
        )

    def landed(self, values: int) -> Sequence[int]:
        """Return the positions of values that gave a row, in order.

        :param values: how many there are
        """
        positions: set[int] = set()
        for decoded in self.tables.values():
            if decoded.records is None:
                return range(values)
            positions.update(decoded.records)
        return sorted(positions)


class BlockDecoder(Protocol):
    """Decodes blocks of values for the tables of a landing. Keeps no rows."""

    def decode(self, values: Sequence[bytes]) -> Block:
        """Decode these values, none of which is a tombstone."""

    def close(self) -> None:
        """Release its resources."""


class OneTable:
    def __init__(self, table: str, decoder: Decoder) -> None:
        self._table, self._decoder = table, decoder

    def decode(self, values: Sequence[bytes]) -> Block:
        decoded = self._decoder.decode(values)
        rows = replace(decoded, rejects=(), filtered=())
        return Block(tables={self._table: rows}, rejects=decoded.rejects, filtered=decoded.filtered)

    def close(self) -> None:
        self._decoder.close()
