# SPDX-License-Identifier: Apache-2.0
"""Arguments of operators, sensors and task groups, checked when a DAG is parsed.

Contract: a name that is not known is told with the one that may have been meant, all of them together. Nothing is read
and nothing heavy is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from airflow_provider_lakecommit.declared.names import meant
from airflow_provider_lakecommit.exceptions import SpecError

__all__ = ["refuse_unknown"]

_NOT_OURS = ("self", "args", "kwargs")


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


def _known(owner: type) -> Collection[str]:
    makers = [vars(each)["__init__"] for each in owner.__mro__ if "__init__" in vars(each) and each is not object]
    return {name for make in makers for name in inspect.signature(make).parameters} - set(_NOT_OURS)
