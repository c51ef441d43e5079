# SPDX-License-Identifier: Apache-2.0
"""Functions of a landing's own that its SQL may call.

Contract: each is imported from where the landing says, and SQL gets it with the types that it is annotated with. Of a
null it is not asked: the answer is null, as of most functions of SQL; ``None`` as its answer is null too. An answer of
another type than the annotated one is refused: the engine would make of it what it can, and of 1.7 a 2.

Failure story: what cannot be imported, is no function, is not annotated or has the name of one that SQL has, is a
:class:`~airflow_provider_lakecommit.exceptions.TableError` before a record is read. What a function raises is the
record's: the engine gives it on as an error of the block.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from numbers import Integral, Real
from typing import Any, get_type_hints

import duckdb
from duckdb.func import FunctionNullHandling

from airflow_provider_lakecommit.exceptions import TableError

__all__ = ["add_function"]

_ANSWERS: Mapping[Any, type] = {int: Integral, float: Real, str: str, bool: bool, bytes: bytes}
"""By an annotation what an answer has to be."""


def add_function(connection: duckdb.DuckDBPyConnection, name: str, place: str) -> None:
    """Have SQL know a function.

    :param place: as ``module.function``
    :raises TableError: it cannot be imported, its types are not annotated, or SQL has one of that name
    """
    module, _, function = place.rpartition(".")
    try:
        found = getattr(import_module(module), function)
    except Exception as e:  # what a module of the user raises when it is imported
        raise TableError(f"functions: {name} cannot be imported from {place}: {e}") from e
    if not inspect.isroutine(found):
        raise TableError(f"functions: {name} ({place}) is no function but a {type(found).__name__}")
    known = connection.execute("select count(*) from duckdb_functions() where function_name = ?", [name]).fetchall()
    if known[0][0]:
        raise TableError(f"functions: SQL has a function {name} already, take another name")
    try:
        connection.create_function(name, _answering(found), null_handling=FunctionNullHandling.SPECIAL)
    except (duckdb.Error, TypeError, NameError) as e:
        raise TableError(f"functions: {name} ({place}) cannot be used: {str(e).splitlines()[0]}") from e


def _answering(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its answers looked at, and not asked of nulls."""
    stated = get_type_hints(function).get("return")
    wanted = _ANSWERS.get(stated, object)

    @wraps(function)
    def asked(*args: Any) -> Any:
        if None in args:
            return None
        answer = function(*args)
        if answer is not None and not isinstance(answer, wanted):
            raise TypeError(f"it gave {type(answer).__name__}, and is annotated with {stated}")
        return answer

    return asked
