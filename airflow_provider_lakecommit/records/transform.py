# SPDX-License-Identifier: Apache-2.0
"""Records through SQL to rows: a decoder around that of the format.

Contract: the format decodes values into the columns of ``record`` (`record_schema` of the landing); the SQL, which is
of one record each (:mod:`~airflow_provider_lakecommit.records.row_wise`), makes rows of them, in the order of their
records and of what it explodes; columns are the table's by name. A record of which no row comes is filtered. A block is
transformed as a whole; where that fails, halving finds the records, and each is a reject of its own. Records with a row
that lacks a required column are rejects with all of their rows.

DuckDB does the work within this process, on the Arrow data as they are (docs/adr/0058): one thread, UTC, without files,
network or extensions.

Failure story: SQL that is not of one record each, a column that the table lacks or that can never be the table's type,
a required column that nothing fills, a function that cannot be imported: all are a
:class:`~airflow_provider_lakecommit.exceptions.TableError` before a record is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from importlib import import_module
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.declared.names import meant
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decoder import Decoded, Decoder, Refusal, Reject, halved, put_back
from airflow_provider_lakecommit.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.records.fit import fitted, misfit
from airflow_provider_lakecommit.records.row_wise import PLACE, guard_divisors, row_wise

__all__ = ["FAILED", "TransformDecoder"]

FAILED = "transform_failed"
"""The kind of rejects in which the SQL itself failed."""
_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_OF_VALUES = (duckdb.DataError, duckdb.InvalidInputException)
"""Errors of DuckDB that a value brings: conversions, overflows, ``error('…')``, functions that raise."""


class TransformDecoder:
    """The :class:`~airflow_provider_lakecommit.formats.decoder.Decoder` of a table whose rows SQL makes.

    :param records: decodes values into the columns of ``record``; it is closed with this one
    :param schema: of the table
    :param skip: columns that are filled from elsewhere
    :param functions: further ones of the SQL, by name, each as ``module.function``
    """

    def __init__(
        self, records: Decoder, sql: str, schema: Schema, skip: Set[str], functions: Mapping[str, str]
    ) -> None:
        self._records = records
        self._target = pa.schema([f for f in arrow_schema(schema) if f.name not in skip])
        self._connection = duckdb.connect(":memory:", config=_ALONE)
        try:
            self._connection.execute("set TimeZone = 'UTC'")
            # A uuid as one, not as text.
            self._connection.execute("set arrow_lossless_conversion = true")
            guard_divisors(self._connection)
            for name, place in functions.items():
                _add_function(self._connection, name, place)
            self._connection.execute("set lock_configuration = true")
            self._sql = row_wise(self._connection, sql, records.schema.names, functions)
            self._columns = self._resolved()
        except BaseException:
            self._connection.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        """Schema of the decoded tables."""
        return self._target

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Rows and rejects of these values."""
        found = self._records.decode(values)
        rows = found.table

        def block(places: Sequence[int]) -> Decoded:
            return self._block(rows.slice(places[0], len(places)) if places else rows.slice(0, 0))

        made = halved(range(rows.num_rows), block)
        if found.records is None:
            return Decoded(
                table=made.table,
                records=made.records,
                rejects=made.rejects,
                filtered=made.filtered,
                ignored=found.ignored,
            )
        moved = put_back(made, found.records, found.rejects)
        return Decoded(
            table=moved.table,
            records=moved.records,
            rejects=moved.rejects,
            filtered=sorted([*moved.filtered, *found.filtered]),
            ignored=found.ignored,
        )

    def close(self) -> None:
        """Give back the engine."""
        self._connection.close()
        self._records.close()

    def _resolved(self) -> Mapping[str, int]:
        """Which of the columns that the SQL gives is which of the table's.

        :raises TableError: naming each that is none, or cannot be
        """
        try:
            made = self._run(pa.Table.from_batches([], self._records.schema)).schema
        except duckdb.Error as e:
            raise TableError(f"transform: {_said(e)}") from e
        known = self._target.names
        given: dict[str, int] = {}
        wrong: list[str] = []
        for place, field in enumerate(made):
            if field.name.startswith(PLACE):
                continue
            if field.name in given:
                wrong.append(f"it gives a column {field.name} twice")
            elif field.name not in known:
                near = meant(field.name, known) or "; name it by `as`, or leave it out"
                wrong.append(f"it gives a column {field.name!r}, which the table lacks{near}")
            elif misfit(field.type, self._target.field(field.name).type):
                wanted = self._target.field(field.name).type
                wrong.append(f"column {field.name} is {field.type}, in the table {wanted}: cast it to what is meant")
            given[field.name] = place
        wrong += [
            f"it does not give {f.name}, which the table requires"
            for f in self._target
            if not f.nullable and f.name not in given
        ]
        if wrong:
            raise TableError(f"transform: {'; '.join(wrong)}")
        return given

    def _run(self, rows: pa.Table) -> pa.Table:
        record = rows.append_column(PLACE, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
        self._connection.register("record", record)
        try:
            return self._connection.execute(self._sql).to_arrow_table()
        finally:
            self._connection.unregister("record")

    def _block(self, rows: pa.Table) -> Decoded:
        try:
            made = self._run(rows)
        except _OF_VALUES as e:
            raise Refusal(FAILED, None, _said(e)) from e
        places = made.column(0).to_numpy()
        if len(places) > 1 and (np.diff(places) < 0).any():
            order = np.argsort(places, kind="stable")
            made, places = made.take(order), places[order]
        lacking = self._lacking(made, places)
        if lacking:
            kept = ~np.isin(places, list(lacking))
            made, places = made.filter(pa.array(kept)), places[kept]
        arrays = [
            fitted(_whole(made.column(self._columns[f.name])), f, f.name)
            if f.name in self._columns
            else pa.nulls(made.num_rows, f.type)
            for f in self._target
        ]
        there = np.zeros(rows.num_rows, bool)
        there[places] = True
        there[list(lacking)] = True
        return Decoded(
            table=pa.Table.from_arrays(arrays, schema=self._target),
            records=places.tolist(),
            rejects=tuple(
                Reject(index=i, kind="missing_required", column=name, reason=f"required column {name} is null")
                for i, name in sorted(lacking.items())
            ),
            filtered=np.flatnonzero(~there).tolist(),
        )

    def _lacking(self, made: pa.Table, places: np.ndarray) -> dict[int, str]:
        """The records with a row that lacks a required column, each with the first one that it lacks."""
        found: dict[int, str] = {}
        for field in self._target:
            if not field.nullable:
                column = made.column(self._columns[field.name])
                for place in places[np.asarray(column.is_null())] if column.null_count else ():
                    found.setdefault(int(place), field.name)
        return found


def _add_function(connection: duckdb.DuckDBPyConnection, name: str, place: str) -> None:
    """:raises TableError: it cannot be imported, its types are not annotated, or DuckDB has one of that name"""
    module, _, function = place.rpartition(".")
    try:
        found: Callable[..., Any] = getattr(import_module(module), function)
    except (ImportError, AttributeError) as e:
        raise TableError(f"functions: {name} cannot be imported from {place}: {e}") from e
    known = connection.execute("select count(*) from duckdb_functions() where function_name = ?", [name]).fetchall()
    if known[0][0]:
        raise TableError(f"functions: SQL has a function {name} already, take another name")
    try:
        connection.create_function(name, found)
    except duckdb.Error as e:
        raise TableError(f"functions: {name} ({place}) cannot be used: {_said(e)}") from e


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """In one piece that begins at its begin."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _said(error: duckdb.Error) -> str:
    """The message without the drawing below it."""
    return str(error).split("\n", 1)[0].strip()
