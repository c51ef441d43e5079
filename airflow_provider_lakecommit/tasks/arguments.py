# SPDX-License-Identifier: Apache-2.0
"""Arguments of operators, sensors and task groups, checked when a DAG is parsed.

Contract: a name that is not known is told with the one that may have been meant, all of them together. Nothing is read
and nothing heavy is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from airflow_provider_lakecommit.declared.names import meant
from airflow_provider_lakecommit.exceptions import SpecError

__all__ = ["is_stated", "mapping_of", "refuse_unknown", "texts_of"]

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
        raise SpecError(f"{owner.__name__} {whose!r}: unknown argument {told}")


def is_stated(*values: object) -> bool:
    """Are these values there when the DAG is parsed? A template and what another task returns are not."""
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
        raise SpecError(f"spark_conf={conf!r}: a mapping of Spark's settings, as {{'spark.executor.memory': '4g'}}")
    return conf if isinstance(conf, Mapping) else None


def _known(owner: type) -> Collection[str]:
    makers = [vars(each)["__init__"] for each in owner.__mro__ if "__init__" in vars(each) and each is not object]
    return {name for make in makers for name in inspect.signature(make).parameters} - set(_NOT_OURS)
