# SPDX-License-Identifier: Apache-2.0
"""Arguments of operators, sensors and task groups, checked when a DAG is parsed.

Contract: a name that is not known is told with the one that may have been meant, all of them together. Nothing is read
and nothing heavy is imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import meant

__all__ = ["check_arguments", "filled", "is_stated", "mapping_of", "one_of", "refuse_unknown", "texts_of"]

T = TypeVar("T")

_NOT_OURS = ("self", "args", "kwargs")
_TEMPLATED = ("{{", "{%", "{#")


def refuse_unknown(owner: type, given: Mapping[str, Any], whose: str) -> None:
    """Whether all arguments are known to the class or to one that it is made from.

    :param whose: how a person finds it
    :raises SpecError: naming all that are not
    """
    known = _known(owner)
    # Airflow hands on some of its own, whose names begin so.
    if strange := [name for name in given if name not in known and not name.startswith("_")]:
        told = ", ".join(f"{name!r}{meant(name, known)}" for name in strange)
        raise SpecError("LC8348", f"{owner.__name__} {whose!r}: unknown argument {told}")


def one_of(name: object, known: Collection[str], what: str) -> str:
    """Return a name that is known.

    :param what: what it is the name of, for the error
    :raises SpecError: it is not, with the nearest one
    """
    if isinstance(name, str) and name in known:
        return name
    near = meant(name, known) if isinstance(name, str) else ""
    raise SpecError("LC8349", f"{what}: {name!r} is not one of {', '.join(known)}{near}")


def check_arguments(kind: type[Any], arguments: Any, whose: str) -> None:
    """Check what can be checked when a DAG is parsed: names, missing ones, and values that are no templates.

    :param kind: dataclass whose fields are the arguments
    :param whose: which task and which operation, for the error
    :raises SpecError: naming all that is wrong
    """
    if not isinstance(arguments, Mapping):
        if is_stated(arguments):
            raise SpecError("LC8350", f"{whose}: arguments={arguments!r} is not a mapping of names and values")
        return
    fields = {each.name: each for each in dataclasses.fields(kind)}
    wrong = [f"unknown argument {name!r}{meant(str(name), fields)}" for name in arguments if name not in fields]
    wrong += [f"missing argument {name!r}" for name, each in fields.items() if name not in arguments and _needed(each)]
    types_of = typing.get_type_hints(kind)
    for name in fields.keys() & arguments.keys():
        value = arguments[name]
        if isinstance(value, Mapping) or is_stated(value):
            try:
                _taken(types_of[name], value)
            except ValueError as e:
                wrong.append(f"{name}={value!r}: {e}")
    if wrong:
        takes = ", ".join(fields) or "no arguments"
        raise SpecError("LC8351", f"{whose}: {'; '.join(sorted(wrong))}; it takes {takes}")


def filled(kind: type[T], arguments: Any, whose: str) -> T:
    """Return the arguments as their dataclass, once their templates are filled.

    :raises SpecError: naming what is wrong
    """
    if not isinstance(arguments, Mapping):
        raise SpecError("LC8350", f"{whose}: arguments={arguments!r} is not a mapping of names and values")
    check_arguments(kind, arguments, whose)
    types_of = typing.get_type_hints(kind)
    return kind(**{name: _taken(types_of[name], value) for name, value in arguments.items()})


def _needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _taken(kind: Any, value: Any) -> Any:
    """Return a value of a type. What a template made a text of is read as what the argument is.

    :raises ValueError: it is of none
    """
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    kinds = typing.get_args(kind) if union else (kind,)
    plain = [typing.get_origin(each) or each for each in kinds]
    if any(_is_a(value, each) for each in plain):
        return value
    if isinstance(value, str):
        text = value.strip()
        if type(None) in plain and text in ("", "None"):
            return None
        if bool in plain and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if int in plain and text.isdecimal():
            return int(text)
    raise ValueError(f"{' or '.join(_name_of(each) for each in plain)} is needed")


def _is_a(value: Any, kind: Any) -> bool:
    """Return True for a value of a type; a text is no sequence, and a truth value no number."""
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, str):
        return kind is str
    return (kind in (int, float) and isinstance(value, int)) or isinstance(value, kind)


def _name_of(kind: Any) -> str:
    return _NAMES.get(kind, getattr(kind, "__name__", str(kind)))


_NAMES = {
    str: "a text",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    type(None): "None",
    Sequence: "a list",
    Mapping: "a mapping",
    timedelta: "a timedelta",
}


def is_stated(*values: object) -> bool:
    """Return True if these values are known when the DAG is parsed; templates and results of other tasks are not."""
    return all(_is_stated(value) for value in values)


def _is_stated(value: object) -> bool:
    if isinstance(value, str):
        return not any(mark in value for mark in _TEMPLATED)
    if isinstance(value, list | tuple | set | frozenset):
        return is_stated(*value)
    return value is None or isinstance(value, int | float | timedelta)


def texts_of(value: str | Iterable[str] | None) -> list[str]:
    """Several texts, or one that has them with commas between."""
    found = value.split(",") if isinstance(value, str) else value or ()
    return [text for each in found if (text := str(each).strip())]


def mapping_of(conf: Any) -> Mapping[str, Any] | None:
    """Spark settings, where they are there when the DAG is parsed.

    :raises SpecError: it is neither a mapping nor what may become one
    """
    if not (conf is None or isinstance(conf, Mapping)) and is_stated(conf):
        raise SpecError(
            "LC8352", f"spark_conf={conf!r}: a mapping of Spark's settings, as {{'spark.executor.memory': '4g'}}"
        )
    return conf if isinstance(conf, Mapping) else None


def _known(owner: type) -> Collection[str]:
    makers = [vars(each)["__init__"] for each in owner.__mro__ if "__init__" in vars(each) and each is not object]
    return {name for make in makers for name in inspect.signature(make).parameters} - set(_NOT_OURS)
