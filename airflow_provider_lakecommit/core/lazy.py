# SPDX-License-Identifier: Apache-2.0
"""Lazy public names of a room: a module is loaded when one of its names is first used (PEP 562).

`__init__.pyi` beside an `__init__` lists the same names for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    :param modules: the names of each module, separated by spaces
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if (module := module_of.get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        return getattr(import_module(f"{package}.{module}"), name)

    return load
