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

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.declared.names import meant
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decoder import Decoded, Decoder, Refusal, Reject, halved, put_back
from airflow_provider_lakecommit.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.records.fit import fitted, misfit
from airflow_provider_lakecommit.records.functions import add_function
from airflow_provider_lakecommit.records.guarded import PLACE, guard_divisors
from airflow_provider_lakecommit.records.overflow import overflown
from airflow_provider_lakecommit.records.row_wise import row_wise

__all__ = ["FAILED", "TransformDecoder", "given_by"]

FAILED = "transform_failed"
"""The kind of rejects in which the SQL itself failed."""
_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Nothing is spilled: what a block comes to is in memory anyway.
    "temp_directory": "",
}
_UNTOLD = '"NULL"'
"""The name of the type that nothing tells."""
_NESTED = ("list", "map", "struct")
_BROKEN = (duckdb.InternalError, duckdb.FatalException)
"""Errors after which the engine answers nothing more. A value may bring them, by a function with a defect."""
_OF_MEANS = duckdb.OperationalError
"""Want of memory: of many records at once, or of one that makes too much. All other errors are of values: conversions,
overflows, ``error('…')``, functions that raise, and some that have no class of their own.
"""


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
        self._functions = functions
        self._connection = _engine(functions)
        try:
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
        known = self._target.names
        given: dict[str, int] = {}
        wrong: list[str] = []
        # Behind the place of the record.
        for place, field in enumerate(_given(self._connection, self._sql, self._records.schema), 1):
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

    def _made(self, rows: pa.Table) -> pa.Table:
        """:raises Refusal: the SQL fails for one of the records, or for so many at once"""
        try:
            return _run(self._connection, self._sql, rows)
        except duckdb.InterruptException:
            raise
        except _BROKEN as e:
            self._connection.close()
            self._connection = _engine(self._functions)
            raise Refusal(FAILED, None, _said(e)) from e
        except _OF_MEANS as e:
            if rows.num_rows > 1:
                raise Refusal(FAILED, None, _said(e)) from e
            raise
        # A message may be cut off within a character.
        except (duckdb.Error, UnicodeDecodeError) as e:
            raise Refusal(FAILED, None, _said(e)) from e

    def _block(self, rows: pa.Table) -> Decoded:
        made = self._made(rows)
        places = made.column(0).to_numpy()
        if len(places) > 1 and (np.diff(places) < 0).any():
            order = np.argsort(places, kind="stable")
            made, places = made.take(order), places[order]
        refused = self._overflown(made, places, rows) | self._lacking(made, places)
        if refused:
            kept = ~np.isin(places, list(refused))
            made, places = made.filter(pa.array(kept)), places[kept]
        arrays = [
            fitted(_whole(made.column(self._columns[f.name])), f, f.name)
            if f.name in self._columns
            else pa.nulls(made.num_rows, f.type)
            for f in self._target
        ]
        there = np.zeros(rows.num_rows, bool)
        there[places] = True
        there[list(refused)] = True
        return Decoded(
            table=pa.Table.from_arrays(arrays, schema=self._target),
            records=places.tolist(),
            rejects=tuple(refused[i] for i in sorted(refused)),
            filtered=np.flatnonzero(~there).tolist(),
        )

    def _overflown(self, made: pa.Table, places: np.ndarray, rows: pa.Table) -> dict[int, Reject]:
        """The records that SQL alone made an infinite number of, each with the first such column."""
        found: dict[int, Reject] = {}
        for name, at in self._columns.items():
            for i in overflown(made.column(at), places, rows):
                why = f"column {name} is infinite or no number, and nothing in the record is: a number too large"
                found.setdefault(i, Reject(index=i, kind=FAILED, column=name, reason=why))
        return found

    def _lacking(self, made: pa.Table, places: np.ndarray) -> dict[int, Reject]:
        """The records with a row that lacks a required column, each with the first one that it lacks."""
        found: dict[int, Reject] = {}
        for field in self._target:
            if not field.nullable:
                column = made.column(self._columns[field.name])
                for place in places[np.asarray(column.is_null())].tolist() if column.null_count else ():
                    why = f"required column {field.name} is null"
                    found.setdefault(place, Reject(index=place, kind="missing_required", column=field.name, reason=why))
        return found


def given_by(sql: str, record: pa.Schema, functions: Mapping[str, str]) -> pa.Schema:
    """The columns that SQL gives, whatever table they are for. Where nothing tells a type, as of ``null`` or of what is
    in an empty list, it is Arrow's ``null``.

    :param record: the columns of ``record``
    :raises TableError: it is not of one record each, or cannot be run
    """
    with _engine(functions) as connection:
        ready = row_wise(connection, sql, record.names, functions)
        given = _given(connection, ready, record)
        texts = _types(connection, ready, record, len(given))
        return pa.schema([_told(connection, f, text) for f, text in zip(given, texts, strict=True)])


def _engine(functions: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    """One that has nothing but these functions.

    :raises TableError: one of them cannot be imported
    """
    connection = duckdb.connect(":memory:", config=_ALONE)
    try:
        connection.execute("set TimeZone = 'UTC'")
        # A uuid as one, not as text.
        connection.execute("set arrow_lossless_conversion = true")
        # The first goes into a scan of Arrow's data, for which a number that is none is greater than no other. The
        # second works out at once what is asked twice, also where it is within `try(…)`, or behind what is not null.
        connection.execute("set disabled_optimizers = 'filter_pushdown,common_subexpressions'")
        guard_divisors(connection)
        for name, place in functions.items():
            add_function(connection, name, place)
        connection.execute("set lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def _run(connection: duckdb.DuckDBPyConnection, sql: str, rows: pa.Table) -> pa.Table:
    record = rows.append_column(PLACE, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    connection.register("record", record)
    try:
        return connection.execute(sql).to_arrow_table()
    finally:
        connection.unregister("record")


def _given(connection: duckdb.DuckDBPyConnection, sql: str, record: pa.Schema) -> pa.Schema:
    """The columns that it gives, without the place of the record, which is the first."""
    try:
        made = _run(connection, sql, pa.Table.from_batches([], record)).schema
    except duckdb.Error as e:
        raise TableError(f"transform: {_said(e)}") from e
    return pa.schema(list(made)[1:])


def _types(connection: duckdb.DuckDBPyConnection, sql: str, record: pa.Schema, columns: int) -> list[str]:
    """The types of its columns as the engine has them within: an ``integer`` leaves it where it knows of none."""
    names = [f"c{n}" for n in range(columns + 1)]
    kinds = ", ".join(f"typeof({name})" for name in names[1:])
    outer = f"select {kinds} from (values (1)) left join ({sql}\n) as given({', '.join(names)}) on true"
    return [column[0].as_py() for column in _run(connection, outer, pa.Table.from_batches([], record)).columns]


def _told(connection: duckdb.DuckDBPyConnection, field: pa.Field, text: str) -> pa.Field:
    """A column whose type has the name ``text``, with what nothing tells of it as that."""
    if _UNTOLD in text:
        # Fields without names are of no type that can be parsed, nor of one that a column has.
        with suppress(duckdb.InvalidInputException):
            return field.with_type(_without(field.type, connection.sqltype(text)))
    return field


def _without(given: pa.DataType, kind: DuckDBPyType) -> pa.DataType:
    """A type without those within it that nothing tells."""
    within: list[Any] = [child for _, child in kind.children] if kind.id in _NESTED else []
    match kind.id, within:
        case "null", _:
            return pa.null()
        case "list", [element]:
            return pa.list_(_without(given.value_type, element))
        case "map", [key, value]:
            # No key of Arrow's is a null.
            return pa.null() if key.id == "null" else pa.map_(given.key_type, _without(given.item_type, value))
        case "struct", fields:
            return pa.struct([f.with_type(_without(f.type, k)) for f, k in zip(given, fields, strict=True)])
    return given


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """In one piece that begins at its begin."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _said(error: duckdb.Error | UnicodeDecodeError) -> str:
    """The message without the drawing below it; of a block's records, never empty."""
    if isinstance(error, UnicodeDecodeError):
        return bytes(error.object).decode(errors="backslashreplace")
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
