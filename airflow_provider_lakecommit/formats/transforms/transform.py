# SPDX-License-Identifier: Apache-2.0
"""Records through SQL to rows: a decoder around that of the format.

The format decodes values into the columns of ``record`` (`transform.record_schema`). The SQL makes rows of each record,
in order; its columns are matched to the table's by name. Records without a row are filtered. A block is transformed at
once; if that fails, a second query names suspects (:mod:`~airflow_provider_lakecommit.formats.transforms.guarded`),
which are tried alone, and the rest is halved. A record with a row that lacks a required column, or has a value that its
column cannot take, is rejected with all of its rows. DuckDB works on the Arrow data in this process (decision 0058).

Wrong SQL, columns that the table lacks or that can never have its type, and functions that cannot be imported are
:class:`~airflow_provider_lakecommit.exceptions.TableError` before a record is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decoder import (
    BaseDecoder,
    Decoded,
    Decoder,
    Refusal,
    Reject,
    halved,
    with_positions,
)
from airflow_provider_lakecommit.formats.transforms.engine import columns_of, engine, error_text, run
from airflow_provider_lakecommit.formats.transforms.fit import fitted, misfit, overflown, refused_values, whole
from airflow_provider_lakecommit.formats.transforms.row_wise import row_wise
from airflow_provider_lakecommit.iceberg import arrow_schema
from airflow_provider_lakecommit.landing import meant

FAILED = "transform_failed"
"""The kind of rejects in which the SQL itself failed."""
_BROKEN = (duckdb.InternalError, duckdb.FatalException)
"""Errors after which the engine is unusable; a defective function may cause them for one value."""
_OF_MEANS = duckdb.OperationalError
"""Lack of memory, for many records at once or on this machine. All other errors are of values."""


class TransformDecoder(BaseDecoder):
    """The :class:`~airflow_provider_lakecommit.formats.decoder.Decoder` of a table whose rows SQL makes.

    :param records: decodes values into the columns of ``record``; it is closed with this one
    :param skip: columns that are filled from elsewhere
    :param functions: further functions of the SQL, by name, each as ``module.function``
    :param beside: columns of the records that the SQL does not see; a row gets them from its record
    """

    def __init__(
        self,
        records: Decoder,
        sql: str,
        schema: Schema,
        skip: Set[str],
        functions: Mapping[str, str],
        beside: Collection[str] = (),
    ) -> None:
        self._records, self._beside = records, beside
        self._observed = pa.schema([f for f in records.schema if f.name not in beside])
        self._schema = pa.schema([f for f in arrow_schema(schema) if f.name not in skip])
        self._functions = functions
        # What came from outside while one of them was at work.
        self._stopped: list[BaseException] = []
        self._connection = engine(functions, self._stopped)
        try:
            self._sql, self._suspects = row_wise(self._connection, sql, self._observed.names, functions)
            self._columns = self._resolved()
        except BaseException:
            self._connection.close()
            raise

    def decode(self, values: Sequence[bytes]) -> Decoded:
        found = self._records.decode(values)
        rows = found.table

        def block(positions: Sequence[int]) -> Decoded:
            return self._block(_of(rows, positions))

        def failing(positions: Sequence[int], _refusal: Refusal) -> Mapping[int, Refusal]:
            return self._failing(_of(rows, positions))

        made = halved(range(rows.num_rows), block, alike=failing, most_alike=rows.num_rows)
        if found.records is None:
            return replace(made, ignored=found.ignored)
        moved = with_positions(made, found.records, found.rejects)
        return replace(moved, filtered=sorted([*moved.filtered, *found.filtered]), ignored=found.ignored)

    def close(self) -> None:
        self._connection.close()
        self._records.close()

    def _resolved(self) -> Mapping[str, int]:
        """Return the position in the SQL of each table column that it fills."""
        known = self._schema.names
        given: dict[str, int] = {}
        wrong: list[str] = []
        # Behind the place of the record.
        for position, field in enumerate(columns_of(self._connection, self._sql, self._observed), 1):
            if field.name in given:
                wrong.append(f"it returns column {field.name} twice")
            elif field.name not in known:
                near = meant(field.name, known) or "; rename it with `as`, or leave it out"
                wrong.append(f"it returns column {field.name!r}, which the table lacks{near}")
            elif misfit(field.type, self._schema.field(field.name).type):
                target = self._schema.field(field.name).type
                wrong.append(f"column {field.name} is {field.type}, but {target} in the table: cast it")
            given[field.name] = position
        wrong += [
            f"it does not return {f.name}, which the table requires"
            for f in self._schema
            if not f.nullable and f.name not in given
        ]
        if wrong:
            raise TableError("LC4043", f"transform: {'; '.join(wrong)}")
        return given

    def _failing(self, rows: pa.Table) -> dict[int, Refusal]:
        try:
            suspects = self._query(self._suspects, rows).column(0).to_pylist()
        except Refusal:
            return {}
        found: dict[int, Refusal] = {}
        for i in suspects:
            try:
                self._query(self._sql, rows.slice(i, 1))
            except Refusal as refusal:
                found[i] = refusal
        return found

    def _query(self, sql: str, rows: pa.Table) -> pa.Table:
        try:
            return run(self._connection, sql, rows.select(self._observed.names))
        except duckdb.InterruptException:
            raise
        except _BROKEN as e:
            self._connection.close()
            self._connection = engine(self._functions, self._stopped)
            raise Refusal(FAILED, None, error_text(e)) from e
        except _OF_MEANS as e:
            if rows.num_rows > 1 or isinstance(e, duckdb.OutOfMemoryException):
                raise Refusal(FAILED, None, error_text(e)) from e
            raise
        # A message may be cut off within a character.
        except (duckdb.Error, UnicodeDecodeError) as e:
            raise Refusal(FAILED, None, error_text(e)) from e
        finally:
            if self._stopped:
                raise self._stopped.pop()

    def _block(self, rows: pa.Table) -> Decoded:
        made = self._query(self._sql, rows)
        positions = made.column(0).to_numpy()
        if len(positions) > 1 and (np.diff(positions) < 0).any():
            order = np.argsort(positions, kind="stable")
            made, positions = made.take(order), positions[order]
        refused = self._overflown(made, positions, rows) | self._lacking(made, positions)
        made, positions = _without(refused, made, positions)
        try:
            arrays = self._fitted(made, positions, rows)
        except Refusal:
            unfit = self._unfit(made, positions)
            made, positions = _without(unfit, made, positions)
            arrays = self._fitted(made, positions, rows)
            refused |= unfit
        there = np.zeros(rows.num_rows, bool)
        there[positions] = True
        there[list(refused)] = True
        return Decoded(
            table=pa.Table.from_arrays(arrays, schema=self._schema),
            records=positions.tolist(),
            rejects=tuple(refused[i] for i in sorted(refused)),
            filtered=np.flatnonzero(~there).tolist(),
        )

    def _fitted(self, made: pa.Table, positions: np.ndarray, rows: pa.Table) -> list[pa.Array]:
        def column(field: pa.Field) -> pa.Array:
            if field.name in self._columns:
                return fitted(whole(made.column(self._columns[field.name])), field, field.name)
            if field.name in self._beside:
                return whole(rows.column(field.name).take(pa.array(positions, pa.int64())))
            return pa.nulls(made.num_rows, field.type)

        return [column(field) for field in self._schema]

    def _unfit(self, made: pa.Table, positions: np.ndarray) -> dict[int, Reject]:
        found: dict[int, Reject] = {}
        for field in (f for f in self._schema if f.name in self._columns):
            column = whole(made.column(self._columns[field.name]))
            for position, refusal in refused_values(column, field, positions).items():
                found.setdefault(position, Reject.of(position, refusal))
        return found

    def _overflown(self, made: pa.Table, positions: np.ndarray, rows: pa.Table) -> dict[int, Reject]:
        """Return the records with an infinite number only from the SQL, each with the first such column."""
        found: dict[int, Reject] = {}
        for name, at in self._columns.items():
            for i in overflown(made.column(at), positions, rows):
                why = f"column {name} is infinite or not a number, unlike the record: a number is too large"
                found.setdefault(i, Reject(index=i, kind=FAILED, column=name, reason=why))
        return found

    def _lacking(self, made: pa.Table, positions: np.ndarray) -> dict[int, Reject]:
        found: dict[int, Reject] = {}
        for field in self._schema:
            if not field.nullable:
                column = made.column(self._columns[field.name])
                for position in positions[np.asarray(column.is_null())].tolist() if column.null_count else ():
                    why = f"required column {field.name} is null"
                    found.setdefault(
                        position, Reject(index=position, kind="missing_required", column=field.name, reason=why)
                    )
        return found


def _of(rows: pa.Table, positions: Sequence[int]) -> pa.Table:
    if positions and positions[-1] - positions[0] == len(positions) - 1:
        return rows.slice(positions[0], len(positions))
    return rows.take(pa.array(positions, pa.int64()))


def _without(refused: Mapping[int, Reject], made: pa.Table, positions: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    if not refused:
        return made, positions
    kept = ~np.isin(positions, list(refused))
    return made.filter(pa.array(kept)), positions[kept]
