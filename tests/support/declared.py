# SPDX-License-Identifier: Apache-2.0
"""Landings from options by their recorded, flat names, so that a test states options without their sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.landing.options import SECTION_KEYS, SECTIONS, from_flat, merged

__all__ = ["changed_landing", "landing_of", "nested", "nested_set"]

_KEYS = {name: {key for section, key in SECTION_KEYS.values() if section == name} for name in SECTIONS}


def nested(**values: Any) -> dict[str, Any]:
    """Return the options of a spec in their sections; an option that is in its section already stays there."""
    sections = {k: v for k, v in values.items() if k in SECTIONS and _is_section(k, v)}
    return merged(sections, from_flat({k: v for k, v in values.items() if k not in sections}))


def nested_set(**values: Any) -> dict[str, Any]:
    """Return the spec of a landing set with the options of its defaults and overrides in their sections."""
    inner = {"defaults": lambda v: nested(**v), "overrides": lambda v: [nested(**each) for each in v]}
    return {k: inner[k](v) if k in inner and v is not None else v for k, v in values.items()}


def landing_of(**values: Any) -> Landing:
    """Return the landing of these options."""
    return Landing(**nested(**values))


def changed_landing(landing: Landing, **values: Any) -> Landing:
    """Return a landing with these options changed."""
    return landing.changed(**nested(**values))


def _is_section(name: str, value: Any) -> bool:
    return isinstance(value, SECTIONS[name]) or (isinstance(value, Mapping) and value.keys() <= _KEYS[name])
