# SPDX-License-Identifier: Apache-2.0
"""Arguments of operators, sensors and task groups, checked when a DAG is parsed.

Contract: one error names all unknown arguments, each with the nearest known one. Nothing is read and nothing heavy is
imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import meant
from airflow_provider_lakecommit.operations import is_stated

T = TypeVar("T")

_NOT_OURS = ("self", "args", "kwargs")


def refuse_unknown(owner: type, given: Mapping[str, Any], task: str) -> None:
    """Check that all arguments are known to the class or to one of its bases.

    :param task: name of the task, for the error
    :raises SpecError: naming all unknown arguments
    """
    known = _known(owner)
    # Airflow passes some arguments of its own, with this prefix.
    if strange := [name for name in given if name not in known and not name.startswith("_")]:
        unknown = ", ".join(f"{name!r}{meant(name, known)}" for name in strange)
        raise SpecError("LC8348", f"{owner.__name__} {task!r}: unknown argument {unknown}")


def one_of(name: object, known: Collection[str], what: str) -> str:
    """Return a known name; the error has the meaning of the name, and the nearest one."""
    if isinstance(name, str) and name in known:
        return name
    near = meant(name, known) if isinstance(name, str) else ""
    raise SpecError("LC8349", f"{what}: {name!r} is not one of {', '.join(known)}{near}")


def check_arguments(kind: type[Any], arguments: Any, task: str) -> None:
    """Check what can be checked when a DAG is parsed: names, missing ones, and values that are not templates.

    :param kind: dataclass whose fields are the arguments
    :param task: task and operation, for the error
    """
    if not isinstance(arguments, Mapping):
        if is_stated(arguments):
            raise SpecError("LC8350", f"{task}: arguments={arguments!r} is not a mapping of names and values")
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
        raise SpecError("LC8351", f"{task}: {'; '.join(sorted(wrong))}; it takes {takes}")


def filled(kind: type[T], arguments: Any, task: str) -> T:
    """Return the arguments as their dataclass, once their templates are filled."""
    if not isinstance(arguments, Mapping):
        raise SpecError("LC8350", f"{task}: arguments={arguments!r} is not a mapping of names and values")
    check_arguments(kind, arguments, task)
    types_of = typing.get_type_hints(kind)
    return kind(**{name: _taken(types_of[name], value) for name, value in arguments.items()})


def _needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _taken(kind: Any, value: Any) -> Any:
    """Return a value as its type. A text from a template is parsed as the argument's type."""
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
    names = (_NAMES.get(each, getattr(each, "__name__", str(each))) for each in plain)
    raise ValueError(f"use {' or '.join(names)}")


def _is_a(value: Any, kind: Any) -> bool:
    """Return True for a value of a type; a text is not a sequence, and a boolean is not a number."""
    if isinstance(value, bool):
        return kind is bool
    if isinstance(value, str):
        return kind is str
    return (kind in (int, float) and isinstance(value, int)) or isinstance(value, kind)


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


def mapping_of(conf: Any) -> Mapping[str, Any] | None:
    """Return Spark settings that are known when the DAG is parsed.

    :raises SpecError: neither a mapping nor a template
    """
    if not (conf is None or isinstance(conf, Mapping)) and is_stated(conf):
        raise SpecError(
            "LC8352", f"spark_conf={conf!r}: use a mapping of Spark settings, e.g. {{'spark.executor.memory': '4g'}}"
        )
    return conf if isinstance(conf, Mapping) else None


def _known(owner: type) -> Collection[str]:
    makers = [vars(each)["__init__"] for each in owner.__mro__ if "__init__" in vars(each) and each is not object]
    return {name for make in makers for name in inspect.signature(make).parameters} - set(_NOT_OURS)
