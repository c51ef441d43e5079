# SPDX-License-Identifier: Apache-2.0
"""Table names made from topic names.

Contract: pure. A template has fields in braces: ``{topic}``, and the named groups of the pattern that the topic
matched. In their values every character other than a letter, digit or underscore becomes an underscore: dots would be
namespaces, and few engines take an unquoted hyphen. Case is kept.

Failure story: :func:`wrong_with_template` reports an unknown field before any topic is known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from string import Formatter
from typing import Any

from airflow_provider_lakecommit.landing.checks import CHECKS
from airflow_provider_lakecommit.landing.names import meant

TOPIC = "topic"
_OTHER = re.compile(r"[^A-Za-z0-9_]")


def fields_of(template: str) -> tuple[str, ...]:
    """Return the fields of a template.

    :raises ValueError: unbalanced braces
    """
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def filled_template(template: str, values: Mapping[str, str | None]) -> str:
    """Return the name for one topic. A group outside of the match is empty."""
    return template.format_map({name: _OTHER.sub("_", value or "") for name, value in values.items()})


def groups_of(pattern: str | None) -> tuple[str, ...]:
    """Return the named groups of a valid pattern."""
    return () if pattern is None else tuple(re.compile(pattern).groupindex)


def wrong_with_pattern(value: Any) -> str | None:
    """Return what is wrong with a regular expression, ``None`` if it is valid."""
    if not isinstance(value, str) or not value:
        return f"{value!r} is not a regular expression [LC1177]"
    try:
        re.compile(value)
    except re.error as e:
        return f"{value!r} is not a regular expression: {e} [LC1178]"
    return None


def wrong_with_template(template: Any, names: Collection[str], example: str = "a") -> str | None:
    """Return what is wrong with a table's template, ``None`` if it is valid.

    :param names: the known fields
    :param example: a sample value of a field
    """
    if not isinstance(template, str):
        return f"{template!r} is not a table name (namespace.table), with fields as in 'lake.{{topic}}' [LC1179]"
    try:
        found = fields_of(template)
    except ValueError as e:
        return f"{template!r} is not a template: {e} [LC1180]"
    for name in found:
        if name not in names:
            return (
                f"{template!r} has the unknown field {name!r}; allowed are "
                f"{', '.join(names) or 'none'}{meant(name, names)} [LC1181]"
            )
    return CHECKS["table"](template.format_map(dict.fromkeys(names, example)))
