# SPDX-License-Identifier: Apache-2.0
"""A landing's own functions for its SQL.

SQL calls them with their annotated types, never with nulls; ``None`` is null. An answer of another type is refused, as
the engine would convert 1.7 to 2. Functions that cannot be imported, lack annotations or have the name of an SQL
function are a :class:`~airflow_provider_lakecommit.exceptions.TableError` before a record is read. An ``Exception`` or
``SystemExit`` is the record's error. Others, such as ``KeyboardInterrupt``, come from outside: they are kept for the
caller, since the engine would turn them into errors of records, or null within ``try(…)``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import duckdb
from duckdb.func import FunctionNullHandling

from airflow_provider_lakecommit.exceptions import TableError

_ANSWERS: Mapping[Any, type] = {int: Integral, float: Real, str: str, bool: bool, bytes: bytes}
"""The required types of results, by annotation."""
_TYPES = "bool, int, float, str, bytes, and lists and dicts of them,"


def add_function(connection: duckdb.DuckDBPyConnection, name: str, path: str, stopped: list[BaseException]) -> None:
    """Register a function for SQL.

    :param path: its ``module.function``
    :param stopped: takes outside exceptions during the function
    :raises TableError: it cannot be imported, lacks annotations, or SQL has one of that name
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
