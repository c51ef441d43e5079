# SPDX-License-Identifier: Apache-2.0
"""The engine of SQL between record and row: within this process, alone, in one thread, in UTC.

Contract: :func:`engine` reaches no file, network or extension, and has the landing's own functions. A record's place
comes first in what :func:`run` gives. :func:`given_by` tells the columns of SQL by its types, for whatever table.

Failure story: a function that cannot be imported and SQL that cannot be run are a
:class:`~airflow_provider_lakecommit.exceptions.TableError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.transforms.functions import add_function
from airflow_provider_lakecommit.formats.transforms.guarded import PLACE, guard_divisors
from airflow_provider_lakecommit.formats.transforms.row_wise import row_wise
from airflow_provider_lakecommit.formats.transforms.suspects import add_suspecting

_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Nothing is spilled: what a block comes to is in memory anyway. With more than this, the block is halved, and a
    # single record that needs as much is rejected.
    "temp_directory": "",
    "memory_limit": "512MiB",
}
_UNTOLD = '"NULL"'
"""The name of an unknown type."""
_NESTED = ("list", "map", "struct")


def given_by(sql: str, record: pa.Schema, functions: Mapping[str, str]) -> pa.Schema:
    """The columns that SQL gives, whatever table they are for. Where nothing tells a type, as of ``null`` or of what is
    in an empty list, it is Arrow's ``null``.

    :param record: the columns of ``record``
    :raises TableError: it is not of one record each, or cannot be run
    """
    with engine(functions, []) as connection:
        ready = row_wise(connection, sql, record.names, functions).sql
        given = columns_of(connection, ready, record)
        texts = _types(connection, ready, record, len(given))
        return pa.schema([_told(connection, f, text) for f, text in zip(given, texts, strict=True)])


def engine(functions: Mapping[str, str], stopped: list[BaseException]) -> duckdb.DuckDBPyConnection:
    """Return an engine with only these functions.

    :param stopped: takes outside exceptions during one of them
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
        add_suspecting(connection)
        for name, place in functions.items():
            add_function(connection, name, place, stopped)
        connection.execute("set lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def run(connection: duckdb.DuckDBPyConnection, sql: str, rows: pa.Table) -> pa.Table:
    """What SQL that was looked at makes of some records, behind their places among these."""
    record = rows.append_column(PLACE, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    connection.register("record", record)
    try:
        return connection.execute(sql).to_arrow_table()
    finally:
        connection.unregister("record")


def columns_of(connection: duckdb.DuckDBPyConnection, sql: str, record: pa.Schema) -> pa.Schema:
    try:
        made = run(connection, sql, pa.Table.from_batches([], record)).schema
    except duckdb.Error as e:
        raise TableError("LC4030", f"transform: {said(e)}") from e
    return pa.schema(list(made)[1:])


def _types(connection: duckdb.DuckDBPyConnection, sql: str, record: pa.Schema, columns: int) -> list[str]:
    """The types of its columns as the engine has them within: an ``integer`` leaves it where it knows of none."""
    names = [f"c{n}" for n in range(columns + 1)]
    kinds = ", ".join(f"typeof({name})" for name in names[1:])
    outer = f"select {kinds} from (values (1)) left join ({sql}\n) as given({', '.join(names)}) on true"
    return [column[0].as_py() for column in run(connection, outer, pa.Table.from_batches([], record)).columns]


def _told(connection: duckdb.DuckDBPyConnection, field: pa.Field, text: str) -> pa.Field:
    """A column whose type has the name ``text``, with what nothing tells of it as that."""
    if _UNTOLD in text:
        # Fields without names are of no type that can be parsed, nor of one that a column has.
        with suppress(duckdb.InvalidInputException):
            return field.with_type(_untyped(field.type, connection.sqltype(text)))
    return field


def _untyped(given: pa.DataType, kind: DuckDBPyType) -> pa.DataType:
    within: list[Any] = [child for _, child in kind.children] if kind.id in _NESTED else []
    match kind.id, within:
        case "null", _:
            return pa.null()
        case "list", [element]:
            return pa.list_(_untyped(given.value_type, element))
        case "map", [key, value]:
            # No key of Arrow's is a null.
            return pa.null() if key.id == "null" else pa.map_(given.key_type, _untyped(given.item_type, value))
        case "struct", fields:
            return pa.struct([f.with_type(_untyped(f.type, k)) for f, k in zip(given, fields, strict=True)])
    return given


def said(error: duckdb.Error | UnicodeDecodeError) -> str:
    """The message without the drawing below it; of a block's records, never empty."""
    if isinstance(error, UnicodeDecodeError):
        return bytes(error.object).decode(errors="backslashreplace")
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
