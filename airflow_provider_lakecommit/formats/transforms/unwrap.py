# SPDX-License-Identifier: Apache-2.0
"""Change envelopes, as Debezium writes them, to their rows.

Any format with structs decodes the envelope as a table in which ``before`` and ``after`` are structs of the row's
columns. The row is ``after``, or ``before`` of a delete; further columns come from the envelope
(:data:`~airflow_provider_lakecommit.landing.transform_checks.COLUMNS`). JSON may be wrapped again in ``schema`` and
``payload``. Each change is one row, in order. Rules for times and encodings are those of the row's columns, and may not
contradict the schema in JSON. Unknown fields are counted for rows.

Values that are no change of a row (truncation, log messages, heartbeats, schema changes, transaction markers, missing
images) are rejects that name it; so are rows that lack a required column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import IcebergType, NestedField, StringType, StructType, TimestampType, TimestamptzType

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.column_rules import no_column
from airflow_provider_lakecommit.formats.decoder import BaseDecoder, Decoded, Decoder, Reject, with_positions
from airflow_provider_lakecommit.formats.transforms.connect_schema import EnvelopeSchemas
from airflow_provider_lakecommit.formats.transforms.fit import whole
from airflow_provider_lakecommit.iceberg import arrow_schema
from airflow_provider_lakecommit.landing import DELETED, IMAGES, PAYLOAD

NO_CHANGE = "no_change"
TRUNCATED = "truncated"
Make = Callable[[Schema, FormatOptions], Decoder]
_BEFORE, _AFTER = "before", "after"
_FIELDS = ("op", "ddl", "status")
"""Fields that identify the kind of a value."""


class UnwrapDecoder(BaseDecoder):
    """The :class:`~airflow_provider_lakecommit.formats.decoder.Decoder` of a table whose rows are in envelopes.

    :param make: makes the format's decoder for a schema; they are closed with this one
    :param schema: the columns that are filled from the records
    :param columns: those filled from the envelope, with their paths
    :raises TableError: a column of the envelope has an impossible type, or nothing is left for the row
    """

    def __init__(self, make: Make, schema: Schema, columns: Mapping[str, str], options: FormatOptions) -> None:
        if options.unknown_fields != "ignore":
            raise TableError(
                "LC4044",
                "transform.unwrap: for fields in an envelope only `columns.unknown_fields: ignore` is possible",
            )
        self._schema = arrow_schema(schema)
        there = {f.name: f for f in schema.fields}
        _check_rules(options, there)
        self._taken = {name: path for name, path in columns.items() if name in there}
        self._row = [f for f in schema.fields if f.name not in self._taken]
        if not self._row:
            raise TableError("LC4045", "unwrap: the table has no column for a field of the row")
        self._wraps = options.format == "json"
        self._schemas = EnvelopeSchemas(self._row, options)
        self._there, self._options, self._make = there, options, make
        self._decoder = self._reading((_BEFORE, _AFTER))
        self._of_after: Decoder | None = None

    def decode(self, values: Sequence[bytes]) -> Decoded:
        wrong = list(self._schemas.wrong(values)) if self._wraps else []
        if not wrong:
            return self._decoded(values)
        left = sorted(set(range(len(values))) - {reject.index for reject in wrong})
        return with_positions(self._decoded([values[i] for i in left]), left, wrong)

    def _decoded(self, values: Sequence[bytes]) -> Decoded:
        found = self._decoder.decode(values)
        decoded = self._row_of_each(found, len(values))
        again = [r.index for r in found.rejects if self._image_and_name(r.column or "")[0] == _BEFORE]
        return self._by_after(decoded, values, again) if again else decoded

    def _row_of_each(self, found: Decoded, values: int) -> Decoded:
        made = self._unwrapped(found.table)
        positions = range(values) if found.records is None else found.records
        rejects = [replace(reject, column=self._column_of(reject.column)) for reject in found.rejects]
        return replace(with_positions(made, positions, rejects), ignored=self._ignored(found.ignored))

    def _by_after(self, decoded: Decoded, values: Sequence[bytes], again: Sequence[int]) -> Decoded:
        """Add the rows of changes refused for ``before`` where the row is ``after``.

        A former image must not block the new one. What still gives no row keeps its first reason, unless ``after`` is
        refused.
        """
        if self._of_after is None:
            self._of_after = self._reading((_AFTER,))
        found = self._row_of_each(self._of_after.decode([values[i] for i in again]), len(again))
        found = with_positions(found, again, ())
        worse = {r.index: r for r in found.rejects if r.kind != NO_CHANGE}
        positions = [*(decoded.records if decoded.records is not None else ()), *(found.records or ())]
        order = np.argsort(positions)
        rows = set(found.records or ())
        return replace(
            decoded,
            table=pa.concat_tables([decoded.table, found.table]).take(pa.array(order)),
            records=[positions[i] for i in order],
            rejects=tuple(worse.get(r.index, r) for r in decoded.rejects if r.index not in rows),
            ignored=decoded.ignored + found.ignored,
        )

    def close(self) -> None:
        for decoder in (self._decoder, self._of_after):
            if decoder is not None:
                decoder.close()

    def _reading(self, images: Collection[str]) -> Decoder:
        fields = [*self._envelope(images)]
        if self._wraps:
            fields.append(_optional(PAYLOAD, StructType(*fields)))
        rules = {**self._units(), **self._options.timestamps}
        described = replace(
            self._options,
            timestamps=dict(self._moved(rules, images)),
            encodings=dict(self._moved(self._options.encodings, images)),
        )
        return self._make(assign_fresh_schema_ids(Schema(*fields)), described)

    def _envelope(self, images: Collection[str]) -> Iterator[NestedField]:
        row = StructType(*(_optional(f.name, f.field_type) for f in self._row))
        for image in images:
            yield _optional(image, row)
        tree: dict[str, IcebergType | dict[str, IcebergType]] = {name: StringType() for name in _FIELDS}
        for name, path in self._taken.items():
            kind = self._there[name].field_type
            root, _, inner = path.partition(".")
            if path == DELETED:
                if str(kind) != "boolean":
                    raise TableError(
                        "LC4046", f"unwrap: column {name} is true for deleted rows: it must be boolean, not {kind}"
                    )
            elif not inner:
                tree.setdefault(root, kind)
                if root == "op" and not isinstance(kind, StringType):
                    raise TableError(
                        "LC4047", f"unwrap: column {name} is filled from op: it must be string, not {kind}"
                    )
            else:
                branch = tree.setdefault(root, {})
                if not isinstance(branch, dict) or "." in inner or branch.setdefault(inner, kind) != kind:
                    raise TableError(
                        "LC4048", f"unwrap: columns: {path!r} of column {name} conflicts with another column"
                    )
        for name, branch in tree.items():
            if isinstance(branch, dict):
                branch = StructType(*(_optional(inner, kind) for inner, kind in branch.items()))
            yield _optional(name, branch)

    def _moved(self, rules: Mapping[str, str], images: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the rules of the row's columns for each image, and those of the envelope's."""
        for path, rule in rules.items():
            name, dot, rest = path.partition(".")
            at = [self._taken[name]] if name in self._taken else [f"{image}.{name}" for image in images]
            for position in at:
                yield f"{position}{dot}{rest}", rule
                if self._wraps:
                    yield f"{PAYLOAD}.{position}{dot}{rest}", rule

    def _units(self) -> dict[str, str]:
        found = {name: _UNITS.get(path.rpartition(".")[2]) for name, path in self._taken.items()}
        times = (TimestampType, TimestamptzType)
        return {n: unit for n, unit in found.items() if unit and isinstance(self._there[n].field_type, times)}

    def _unwrapped(self, table: pa.Table) -> Decoded:
        parts = {f.name: whole(table.column(f.name)) for f in table.schema}
        if self._wraps:
            inner = parts.pop(PAYLOAD)
            wrapped = inner.is_valid()
            if pc.any(wrapped, min_count=0).as_py():
                parts = {name: _chosen(wrapped, _within(inner, name), array) for name, array in parts.items()}
        ops = parts["op"].to_pylist()
        after = parts[_AFTER]
        before = parts[_BEFORE] if _BEFORE in parts else pa.nulls(len(after), after.type)
        deleted = pc.fill_null(pc.equal(parts["op"], "d"), False)
        image = _chosen(deleted, before, after)
        lacks_image = np.asarray(image.is_null())
        rejects = {
            i: _no_row(op, {name: parts[name][i].as_py() for name in ("ddl", "status")})
            for i, op in enumerate(ops)
            if op not in IMAGES or lacks_image[i]
        }
        columns = {f.name: _within(image, f.name) for f in self._row}
        for name, path in self._taken.items():
            columns[name] = deleted if path == DELETED else _at(parts, path)
        for field in self._schema:
            if not field.nullable:
                for i in pc.indices_nonzero(columns[field.name].is_null()).to_pylist():
                    why = f"required column {field.name} is missing or null"
                    rejects.setdefault(i, Reject(index=i, kind="missing_required", column=field.name, reason=why))
        arrays = [columns[f.name] for f in self._schema]
        kept = [i for i in range(table.num_rows) if i not in rejects]
        made = pa.Table.from_arrays(
            [a.cast(f.type) if a.type != f.type else a for a, f in zip(arrays, self._schema, strict=True)],
            schema=self._schema,
        )
        if not rejects:
            return Decoded(table=made)
        described = tuple(replace(reject, index=i) for i, reject in sorted(rejects.items()))
        return Decoded(table=made.take(pa.array(kept, pa.int64())), records=kept, rejects=described)

    def _ignored(self, found: Counter[str]) -> Counter[str]:
        """Return the fields of rows, by their names in these: each record has them once."""
        out: Counter[str] = Counter()
        for path, count in found.items():
            image, name = self._image_and_name(path)
            if image == _AFTER and name:
                out[name] += count
        return out

    def _column_of(self, path: str | None) -> str | None:
        image, name = self._image_and_name(path or "")
        return name if image in (_BEFORE, _AFTER) and name else path

    def _image_and_name(self, path: str) -> tuple[str, str]:
        image, _, name = path.removeprefix(f"{PAYLOAD}." if self._wraps else "").partition(".")
        return image, name


_UNITS = {"ts_ms": "epoch_millis", "ts_us": "epoch_micros", "ts_ns": "epoch_nanos"}


def _no_row(op: str | None, described: Mapping[str, str | None]) -> Reject:
    if op == "t":
        return Reject(index=0, kind=TRUNCATED, column=None, reason="op t: the source's table was truncated")
    if op in IMAGES:
        image = IMAGES[op]
        hint = "; the source omits deleted rows (in PostgreSQL: set REPLICA IDENTITY)" if op == "d" else ""
        return Reject(index=0, kind=NO_CHANGE, column=None, reason=f"op {op} has no `{image}`{hint}")
    if op == "m":
        what = "a message in the source's log"
    elif op is not None:
        what = f"of the unknown op {op[:20]!r}"
    elif described["ddl"] is not None:
        what = "a schema change"
    elif described["status"] is not None:
        what = "the begin or end of a transaction"
    else:
        what = "not an envelope: it has no `op`, like heartbeats and rows that are already unwrapped"
    return Reject(index=0, kind=NO_CHANGE, column=None, reason=f"the value is {what}")


def _check_rules(options: FormatOptions, there: Collection[str]) -> None:
    wrong = [
        no_column(key, path, there)
        for key, rules in {"timestamps": options.timestamps, "encodings": options.encodings}.items()
        for path in rules
        if path.partition(".")[0] not in there
    ]
    if wrong:
        raise TableError("LC4049", "; ".join(wrong))


def _optional(name: str, kind: IcebergType) -> NestedField:
    # Numbered anew with all that it is in.
    return NestedField(field_id=0, name=name, field_type=kind, required=False)


def _chosen(mask: pa.Array, these: pa.Array, others: pa.Array) -> pa.Array:
    """Choose from two arrays of any type, by position."""
    positions = np.arange(len(mask))
    return pa.concat_arrays([these, others]).take(
        pa.array(np.where(np.asarray(mask), positions, len(mask) + positions))
    )


def _within(array: pa.Array, name: str) -> pa.Array:
    return pc.struct_field(array, [array.type.get_field_index(name)])


def _at(parts: Mapping[str, pa.Array], path: str) -> pa.Array:
    root, _, inner = path.partition(".")
    return _within(parts[root], inner) if inner else parts[root]
