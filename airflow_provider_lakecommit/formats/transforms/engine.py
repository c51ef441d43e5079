# SPDX-License-Identifier: Apache-2.0
"""The engine of SQL between record and row: in this process, isolated, one thread, UTC.

:func:`engine` reaches no file, network or extension, and has the landing's own functions. SQL calls them with their
annotated types, never with nulls; ``None`` is null. An answer of another type is refused, as the engine would convert
1.7 to 2. Functions that cannot be imported, lack annotations or have the name of an SQL function are a
:class:`~airflow_provider_lakecommit.exceptions.TableError` before a record is read. An ``Exception`` or ``SystemExit``
is the record's error. Others, such as ``KeyboardInterrupt``, come from outside: they are kept for the caller, since the
engine would turn them into errors of records, or null within ``try(…)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from importlib import import_module
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import FunctionNullHandling
from duckdb.sqltypes import DuckDBPyType

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.transforms.guarded import POSITION, add_suspecting, guard_divisors
from airflow_provider_lakecommit.formats.transforms.row_wise import row_wise

_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Nothing is spilled. A block that needs more is halved, and a single record that does is rejected.
    "temp_directory": "",
    "memory_limit": "512MiB",
}
_NULL_TYPE = '"NULL"'
"""The name of an unknown type."""
_NESTED = ("list", "map", "struct")


def given_by(sql: str, record: pa.Schema, functions: Mapping[str, str]) -> pa.Schema:
    """Return the columns that SQL gives, for any table; unknown types are Arrow's ``null``.

    :param record: the columns of ``record``
    :raises TableError: it cannot be run, or does not treat each record by itself
    """
    with engine(functions, []) as connection:
        ready, _ = row_wise(connection, sql, record.names, functions)
        given = columns_of(connection, ready, record)
        texts = _types(connection, ready, record, len(given))
        return pa.schema([_typed(connection, f, text) for f, text in zip(given, texts, strict=True)])


def engine(functions: Mapping[str, str], stopped: list[BaseException]) -> duckdb.DuckDBPyConnection:
    """Return an engine with only these functions.

    :param stopped: takes outside exceptions during one of them
    """
    connection = duckdb.connect(":memory:", config=_ALONE)
    try:
        connection.execute("set TimeZone = 'UTC'")
        # A uuid as one, not as text.
        connection.execute("set arrow_lossless_conversion = true")
        # The first pushes filters into scans of Arrow's data, which order NaN differently. The second computes repeated
        # expressions at once, even within `try(…)` or behind a null check.
        connection.execute("set disabled_optimizers = 'filter_pushdown,common_subexpressions'")
        guard_divisors(connection)
        add_suspecting(connection)
        for name, path in functions.items():
            add_function(connection, name, path, stopped)
        connection.execute("set lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection


def run(connection: duckdb.DuckDBPyConnection, sql: str, rows: pa.Table) -> pa.Table:
    """Run checked SQL on some records; the first column has their places."""
    record = rows.append_column(POSITION, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
    connection.register("record", record)
    try:
        return connection.execute(sql).to_arrow_table()
    finally:
        connection.unregister("record")


def columns_of(connection: duckdb.DuckDBPyConnection, sql: str, record: pa.Schema) -> pa.Schema:
    """Return the columns of the SQL, without the leading place."""
    try:
        made = run(connection, sql, pa.Table.from_batches([], record)).schema
    except duckdb.Error as e:
        raise TableError("LC4030", f"transform: {error_text(e)}") from e
    return pa.schema(list(made)[1:])


def _types(connection: duckdb.DuckDBPyConnection, sql: str, record: pa.Schema, columns: int) -> list[str]:
    """Return the engine's own types of the columns: it gives an ``integer`` where it knows none."""
    names = [f"c{n}" for n in range(columns + 1)]
    kinds = ", ".join(f"typeof({name})" for name in names[1:])
    outer = f"select {kinds} from (values (1)) left join ({sql}\n) as given({', '.join(names)}) on true"
    return [column[0].as_py() for column in run(connection, outer, pa.Table.from_batches([], record)).columns]


def _typed(connection: duckdb.DuckDBPyConnection, field: pa.Field, text: str) -> pa.Field:
    """Return a column with unknown parts of its type as null."""
    if _NULL_TYPE in text:
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


def error_text(error: duckdb.Error | UnicodeDecodeError) -> str:
    """Return the message without the drawing below it, never empty."""
    if isinstance(error, UnicodeDecodeError):
        return bytes(error.object).decode(errors="backslashreplace")
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


_ANSWERS: Mapping[Any, type] = {int: Integral, float: Real, str: str, bool: bool, bytes: bytes}
"""The required types of results, by annotation."""
_TYPES = "bool, int, float, str, bytes, and lists and dicts of them,"


def add_function(connection: duckdb.DuckDBPyConnection, name: str, path: str, stopped: list[BaseException]) -> None:
    """Register a function for SQL.

    :param stopped: takes outside exceptions during the function
    """
    module, _, function = path.rpartition(".")
    try:
        found = getattr(import_module(module), function)
    except Exception as e:  # any error of the user's module
        raise TableError("LC4031", f"functions: {name} cannot be imported from {path}: {e}") from e
    if not inspect.isroutine(found):
        raise TableError("LC4032", f"functions: {name} ({path}) is not a function but a {type(found).__name__}")
    known = connection.execute("select count(*) from duckdb_functions() where function_name = ?", [name]).fetchall()
    if known[0][0]:
        raise TableError("LC4033", f"functions: SQL already has a function {name}, use another name")
    try:
        connection.create_function(name, _answering(found, stopped), null_handling=FunctionNullHandling.SPECIAL)
    except (duckdb.Error, TypeError, NameError) as e:
        raise TableError(
            "LC4034",
            f"functions: {name} ({path}) cannot be used: {str(e).splitlines()[0]} (annotate arguments and result: "
            f"{_TYPES} can be a result)",
        ) from e


def _answering(function: Callable[..., Any], stopped: list[BaseException]) -> Callable[..., Any]:
    """Return the function with checked results; it is not called with nulls, nor after it was stopped."""
    stated = get_type_hints(function).get("return")

    @wraps(function)
    def asked(*args: Any) -> Any:
        if None in args or stopped:
            return None
        try:
            answer = function(*args)
        except (Exception, SystemExit):
            raise
        except BaseException as e:
            stopped.append(e)
            raise
        if answer is not None and not _is(answer, stated):
            raise TypeError(f"it returned {_shown(answer)}, but is annotated with {stated}")
        return answer

    return asked


def _is(answer: Any, stated: Any) -> bool:
    origin, of = get_origin(stated), get_args(stated)
    if origin in (Union, UnionType):
        return any(_is(answer, each) for each in of if each is not NoneType)
    if origin is list:
        return isinstance(answer, list | tuple) and all(each is None or _is(each, of[0]) for each in answer)
    if origin is dict:
        return isinstance(answer, Mapping) and all(
            _is(key, of[0]) and (each is None or _is(each, of[1])) for key, each in answer.items()
        )
    if stated is float and isinstance(answer, Integral):
        return float(answer) == answer
    return isinstance(answer, _ANSWERS.get(stated, object))


def _shown(answer: Any) -> str:
    kind = type(answer).__name__
    return f"{kind} {repr(answer)[:100]}" if isinstance(answer, list | tuple | Mapping | int) else kind
