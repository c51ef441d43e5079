# SPDX-License-Identifier: Apache-2.0
"""What a slice of an upserting landing writes: the last change of each key, and a tombstone file with deleted keys.

Contract: every record is counted. It gave a row, or a newer record of the slice superseded it, or it deletes a key, or
it is filtered or rejected as in any landing. A row without a complete key is a reject, and so are a record with several
rows, since SQL states no order of them, and a delete without a value in the order column: it would be older than the
row that it deletes. A delete is a tombstone (a
record without a value, whose key fills the key columns) or, with `transform.unwrap`, an envelope of a delete. With
``deletes: soft`` it is a row like any other; with ``hard`` it is a row of the tombstone file, which has the key, the
columns that order it, and no others; with ``ignore`` it is filtered.

Memory: :data:`BUFFER_BYTES` of rows. Beyond it, rows are written out as they are; the commit finds what later rows of
the slice supersede, as it does between slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, NestedField

from airflow_provider_lakecommit.core import TableTarget
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import Block, Decoded, Reject, with_positions
from airflow_provider_lakecommit.iceberg import FanoutWriter, Numbers, arrow_field, order_numbers
from airflow_provider_lakecommit.landing import HARD, IGNORE, IS_DELETED, MARK_COLUMNS, SOFT, Landing, wrong_columns
from airflow_provider_lakecommit.spark.report import marks_of

BUFFER_BYTES = 128 << 20
NO_KEY, NO_ORDER, REQUIRED, SEVERAL = "null_key", "null_order", "missing_required", "several_rows"
"""The kinds of rejects without a complete key, of deletes without an order, without another required value, and with
more than one row.
"""
_SPAN, _RANK = "__span", "__rank"


def check_upsert(landing: Landing, target: TableTarget) -> None:
    """Check that a landing can upsert into a table.

    :raises TableError: naming everything that it lacks
    """
    if not landing.upsert.key:
        return
    schema = Schema.model_validate_json(target.schema)
    wrong = [*wrong_columns(landing.upsert, {f.name: str(f.field_type) for f in schema.fields})]
    if not marks_of(landing, target.table, schema):
        wrong.append(
            f"upsert: the table lacks one of the columns {', '.join(MARK_COLUMNS)}, which order the changes of a key "
            "[LC5070]"
        )
    if target.format_version != 2:
        wrong.append(
            f"upsert: the table has format version {target.format_version}; position deletes need version 2 [LC5071]"
        )
    if landing.upsert.deletes == SOFT and landing.transform.unwrap is None:
        filled = {*landing.upsert.key, *landing.record_columns, IS_DELETED}
        required = [f.name for f in schema.fields if f.required and f.name not in filled]
        if required:
            wrong.append(
                f"upsert.deletes: a tombstone has no value for the required columns {', '.join(required)}: make them "
                "optional, or set `upsert.deletes: hard` [LC5072]"
            )
    if wrong:
        raise TableError("LC5073", "; ".join(wrong))


def tombstone_target(landing: Landing, target: TableTarget) -> TableTarget:
    """Return the table that tombstone files are written for: key and order columns of a target, in one partition."""
    schema = Schema.model_validate_json(target.schema)
    names = _order_columns(landing)
    own = Schema(*(f for f in schema.fields if f.name in (*landing.upsert.key, *names)), schema_id=target.schema_id)
    spec = UNPARTITIONED_PARTITION_SPEC.model_dump_json()
    return replace(target, schema=own.model_dump_json(), spec=spec, spec_id=0, sort_order="")


def _order_columns(landing: Landing) -> tuple[str, ...]:
    column = landing.upsert.order_column
    return (*((column,) if column else ()), *MARK_COLUMNS)


class UpsertDecoder:
    """Decodes records, tombstones included, to rows that say in :data:`IS_DELETED` whether they are deletes.

    :param schema: of the table
    """

    def __init__(self, landing: Landing, schema: Schema) -> None:
        self._deletes, self._key, self._order = landing.upsert.deletes, landing.upsert.key, landing.upsert.order_column
        self._by_tombstone = landing.transform.unwrap is None
        elsewhere = {*landing.record_columns, IS_DELETED}
        self._required = [f.name for f in schema.fields if f.required and f.name not in elsewhere]
        # A delete may lack everything but its key: what is required of live rows is checked here.
        fields = [f.model_copy(update={"required": False}) for f in schema.fields if f.name != IS_DELETED]
        number = max(schema.field_ids, default=0) + 1
        marked = [f for f in schema.fields if f.name == IS_DELETED]
        marked = marked or [NestedField(number, IS_DELETED, BooleanType(), required=False)]
        self.schema = Schema(*fields, *marked, schema_id=schema.schema_id)
        self._values = [f for f in self.schema.fields if f.name not in elsewhere]

    def decode(
        self,
        values: Sequence[bytes | None],
        decode: Callable[[Sequence[int]], Block],
        added: Callable[[Decoded], Decoded],
    ) -> Block:
        """Return the rows of records, and what became of the others.

        :param decode: decodes the values of some places, none of which is a tombstone
        :param added: adds the columns of keys and headers
        """
        there = [i for i, v in enumerate(values) if v is not None]
        none = [i for i, v in enumerate(values) if v is None]
        block = decode(there)
        (name, rows), *_ = block.tables.items()
        found = with_positions(replace(rows, rejects=block.rejects, filtered=block.filtered), there, ())
        rows = added(_single(found))
        if self._by_tombstone:
            rows = self._marked(rows, False)
        if none and self._by_tombstone and self._deletes != IGNORE:
            empty = pa.Table.from_arrays(
                [pa.nulls(len(none), arrow_field(f).type) for f in self._values],
                schema=pa.schema([arrow_field(f) for f in self._values]),
            )
            rows, none = self._joined(rows, self._marked(added(Decoded(table=empty, records=none)), True)), []
        rows = self._checked(replace(rows, filtered=sorted([*rows.filtered, *none])))
        left = replace(rows, rejects=(), filtered=())
        return Block(tables={name: left}, rejects=rows.rejects, filtered=rows.filtered)

    def _marked(self, rows: Decoded, deleted: bool) -> Decoded:
        """With :data:`IS_DELETED`, behind all other columns."""
        marks = pa.repeat(pa.scalar(deleted), rows.table.num_rows)
        return replace(rows, table=rows.table.append_column(arrow_field(self.schema.fields[-1]), marks))

    def _joined(self, rows: Decoded, deletes: Decoded) -> Decoded:
        """Return both in the order of their records."""
        positions = [*(rows.records or ()), *(deletes.records or ())]
        order = np.argsort(positions, kind="stable")
        table = pa.concat_tables([rows.table, deletes.table]).take(pa.array(order))
        rejects = sorted([*rows.rejects, *deletes.rejects], key=lambda r: r.index)
        return replace(rows, table=table, records=[positions[i] for i in order], rejects=tuple(rejects))

    def _checked(self, rows: Decoded) -> Decoded:
        """With rejects in place of rows without a key, and of live ones without a required value; ignored deletes are
        filtered.
        """
        table, positions = rows.table, list(rows.records or ())
        deleted = pc.fill_null(table.column(IS_DELETED), False).to_numpy()
        out: dict[int, Reject] = {}
        soft = self._deletes == SOFT
        for name in dict.fromkeys((*self._key, *self._required)):
            column = table.column(name)
            if not column.null_count:
                continue
            key = name in self._key
            bad = column.is_null().to_numpy() & (True if key or soft else ~deleted)
            kind, why = (NO_KEY, "is null, so it identifies no row") if key else (REQUIRED, "is missing or null")
            for i in np.flatnonzero(bad).tolist():
                reason = f"{'key' if key else 'required'} column {name} {why}"
                out.setdefault(i, Reject(index=positions[i], kind=kind, column=name, reason=reason))
        if self._order is not None:
            unknown = deleted & table.column(self._order).is_null().to_numpy()
            reason = f"delete without a value in {self._order}, by which `upsert.order_by` orders it: it deletes no row"
            for i in np.flatnonzero(unknown).tolist():
                out.setdefault(i, Reject(index=positions[i], kind=NO_ORDER, column=self._order, reason=reason))
        left_out = deleted if self._deletes == IGNORE else np.zeros(len(deleted), bool)
        if not out and not left_out.any():
            return rows
        filtered = [positions[i] for i in np.flatnonzero(left_out).tolist()]
        kept = [i for i in range(len(positions)) if i not in out and not left_out[i]]
        rejects = [*rows.rejects, *(r for i, r in out.items() if not left_out[i])]
        return replace(
            rows,
            table=table.take(pa.array(kept, pa.int64())),
            records=[positions[i] for i in kept],
            rejects=tuple(sorted(rejects, key=lambda r: r.index)),
            filtered=sorted([*rows.filtered, *filtered]),
        )


def _single(rows: Decoded) -> Decoded:
    """With rejects in place of records that gave several rows."""
    places = np.asarray(rows.records, np.int64)
    records, counts = np.unique(places, return_counts=True)
    if len(records) == len(places):
        return rows
    several = records[counts > 1]
    why = "`transform.sql` returns several rows for this record, and with `upsert` it can have only one"
    rejects = (*rows.rejects, *(Reject(index=int(i), kind=SEVERAL, column=None, reason=why) for i in several))
    kept = ~np.isin(places, several)
    return replace(
        rows,
        table=rows.table.filter(pa.array(kept)),
        records=places[kept].tolist(),
        rejects=tuple(sorted(rejects, key=lambda r: r.index)),
    )


class LastChanges:
    """The rows of a slice, of which only the last change of each key is written. ``superseded`` and ``deleted`` count
    records, by number of the span.

    :param target: the table
    :param tombstones: what is made by :func:`tombstone_target`
    """

    def __init__(self, landing: Landing, target: TableTarget, rows: FanoutWriter, tombstones: FanoutWriter) -> None:
        schema = Schema.model_validate_json(target.schema)
        self._key, self._order = [*landing.upsert.key], landing.upsert.order_column
        self._hard = landing.upsert.deletes == HARD
        self._rows, self._names = rows, [f.name for f in schema.fields]
        self._tombstones = tombstones
        self._deleted_names = [n for n in self._names if n in (*self._key, *_order_columns(landing))]
        self._blocks: list[pa.Table] = []
        self._bytes = 0
        self.superseded: Counter[int] = Counter()
        self.deleted: Counter[int] = Counter()

    def add(self, table: pa.Table, spans: Numbers) -> None:
        """Take rows in the schema of :class:`UpsertDecoder`, in the order of their records.

        :param spans: numbers of the spans that they are of
        """
        block = table.append_column(_SPAN, pa.array(spans, pa.int32()))
        self._blocks.append(block)
        self._bytes += block.nbytes
        if self._bytes > BUFFER_BYTES:
            self._reduce()
            if self._bytes > BUFFER_BYTES // 2:
                self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        self._reduce()
        for block in self._blocks:
            deleted = pc.fill_null(block.column(IS_DELETED), False)
            live = block
            if self._hard and pc.any(deleted, min_count=0).as_py():
                dead, live = block.filter(deleted), block.filter(pc.invert(deleted))
                self.deleted.update(dead.column(_SPAN).to_pylist())
                self._tombstones.write(dead.select(self._deleted_names))
            self._rows.write(live.select(self._names))
        self._blocks, self._bytes = [], 0

    def _reduce(self) -> None:
        """Keep the last change of each key, of the rows that wait."""
        if not self._blocks:
            return
        rows = pa.concat_tables(self._blocks)
        last = self._last(rows)
        if len(last) < rows.num_rows:
            old = np.setdiff1d(np.arange(rows.num_rows), last, assume_unique=True)
            self.superseded.update(rows.column(_SPAN).take(pa.array(old)).to_pylist())
            rows = rows.take(pa.array(last))
        self._blocks, self._bytes = [rows], rows.nbytes

    def _last(self, rows: pa.Table) -> Numbers:
        by = ["kafka_offset", *([self._order] if self._order else ())]
        order = np.lexsort([_ordering(rows.column(name)) for name in by])
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        keyed = pa.table([*map(_stored, rows.select(self._key).columns), rank], [*self._key, _RANK])
        newest = keyed.group_by(self._key, use_threads=False).aggregate([(_RANK, "max")])
        return np.sort(order[newest.column(f"{_RANK}_max").to_numpy()])


def _stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as they are compared: a UUID as its bytes."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    return pa.chunked_array([c.storage for c in column.chunks], column.type.storage_type)


def _ordering(column: pa.ChunkedArray) -> Numbers:
    array = column.combine_chunks()
    return order_numbers(pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array)
