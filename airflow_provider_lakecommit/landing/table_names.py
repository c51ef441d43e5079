# SPDX-License-Identifier: Apache-2.0
"""Names of tables that are made of names of topics.

Contract: pure. A template has fields in braces: ``{topic}``, and the named groups of the pattern that the topic
matched. In their place every character that is no letter, digit or underscore is an underscore: dots would be
namespaces, and few engines take a hyphen without quotes. Letters stay as they are, large or small.

Failure story: a template that names what there is not is told by :func:`wrong_with_template` before any topic is known.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from string import Formatter
from typing import Any

from airflow_provider_lakecommit.landing.checks import CHECKS
from airflow_provider_lakecommit.landing.names import meant

__all__ = ["TOPIC", "fields_of", "filled_template", "groups_of", "wrong_with_pattern", "wrong_with_template"]

TOPIC = "topic"
_OTHER = re.compile(r"[^A-Za-z0-9_]")


def fields_of(template: str) -> tuple[str, ...]:
    """What stands in braces.

    :raises ValueError: a brace without its other one
    """
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def filled_template(template: str, values: Mapping[str, str | None]) -> str:
    """The name for one topic. A group that took no part in the match is empty."""
    return template.format_map({name: _OTHER.sub("_", value or "") for name, value in values.items()})


def groups_of(pattern: str | None) -> tuple[str, ...]:
    """The named groups of a pattern that is one."""
    return () if pattern is None else tuple(re.compile(pattern).groupindex)


def wrong_with_pattern(value: Any) -> str | None:
    """What is wrong with a regular expression, ``None`` if nothing is."""
    if not isinstance(value, str) or not value:
        return f"{value!r} is not a regular expression [LC1177]"
    try:
        re.compile(value)
    except re.error as e:
        return f"{value!r} is not a regular expression: {e} [LC1178]"
    return None


def wrong_with_template(template: Any, names: Collection[str], example: str = "a") -> str | None:
    """What is wrong with a table's template, ``None`` if nothing is.

    :param names: of fields that there are
    :param example: what may stand in their place
    """
    if not isinstance(template, str):
        return f"{template!r} is not a table name (namespace.table), with fields as in 'lake.{{topic}}' [LC1179]"
    try:
        found = fields_of(template)
    except ValueError as e:
        return f"{template!r} is no template: {e} [LC1180]"
    for name in found:
        if name not in names:
            return (
                f"{template!r} names the field {name!r}; there is "
                f"{', '.join(names) or 'none'}{meant(name, names)} [LC1181]"
            )
    return CHECKS["table"](template.format_map(dict.fromkeys(names, example)))
