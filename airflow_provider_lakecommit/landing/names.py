# SPDX-License-Identifier: Apache-2.0
"""The error of a declaration with mistakes, and suggestions for unknown and unquoted names in it.

Contract: pure. Returns known names, nearest first, never more than requested.

A mistake is a text that ends with its code, as in ``replicas: 0 is not an integer [LC1117]``. All
mistakes of a declaration are reported together, one per line.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import Any

from airflow_provider_lakecommit.exceptions import SpecError

WITH_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
"""Matches the name of a class or function with its module."""
MOST_COMPARED = 500
"""Most names to compare, of about the same length: comparing takes time, and a topic may hold any number of names."""


def nearest(name: str, known: Collection[str], most: int = 3, alike: float = 0.0) -> tuple[str, ...]:
    """Return the most similar known names.

    :param alike: the least similarity, from 0 (any) to 1 (equal)
    """
    compared = sorted(known, key=lambda each: (abs(len(each) - len(name)), each))[:MOST_COMPARED]
    return tuple(difflib.get_close_matches(name, compared, n=most, cutoff=alike))


def meant(name: str, known: Collection[str]) -> str:
    """Return the end of a message that suggests a known name; empty if none is similar."""
    found = nearest(name, known, 1, 0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""


def unquoted(value: Any) -> str:
    """Return what YAML has read in place of a name without quotes, also in a tuple or as a key; empty for texts."""
    columns = value.get("columns") if isinstance(value, Mapping) else None
    inner = (*value, *(columns if isinstance(columns, list | tuple) else ())) if isinstance(value, Mapping) else value
    for each in inner if isinstance(inner, tuple) else (value,):
        if isinstance(each, int | float | date):
            of_words = "yes, on and true" if each else "no, off and false"
            what = of_words if isinstance(each, bool) else "this name"
            kind = "boolean" if isinstance(each, bool) else "date" if isinstance(each, date) else "number"
            return f"YAML reads {what} without quotes as the {kind} {each}: put the name in quotes [LC1342]"
    return ""


_CODED = re.compile(r"(.*) \[(LC\d{4})\]", re.DOTALL)


def mistaken(what: str, mistakes: Sequence[str]) -> SpecError:
    """Return the error of a declaration: a single mistake sets its code.

    :param what: name of the declaration, as in ``landing 'orders'``
    """
    if len(mistakes) == 1 and (found := _CODED.fullmatch(mistakes[0])) is not None:
        return SpecError(found[2], f"{what}: {found[1]}", tuple(mistakes))
    lines = "".join(f"\n- {one}" for one in mistakes)
    return SpecError("LC1001", f"{what} has {len(mistakes)} mistakes{lines}", tuple(mistakes))
