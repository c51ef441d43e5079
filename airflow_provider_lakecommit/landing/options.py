# SPDX-License-Identifier: Apache-2.0
"""Options of a landing by their place, and by the names under which they are recorded.

Contract: pure. Everything recorded or sent (jobs, bundles, XCom, hashes) has each option under one flat name, which
stays when the option moves: :data:`SECTION_KEYS` maps that name to the section and the key. :func:`to_flat` and
:func:`from_flat` convert.

Failure story: an unknown key is reported with the nearest known one, a key of another section with its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from airflow_provider_lakecommit.landing.names import mistaken, nearest
from airflow_provider_lakecommit.landing.sections import (
    FLAT,
    Backpressure,
    Columns,
    Connections,
    DeadLetters,
    Format,
    Maintain,
    Publish,
    Transform,
    Upsert,
    Window,
)


def _refusing(name: str, section: type[Any]) -> type[Any]:
    """Return the section, in which an unknown argument is a :class:`SpecError` with the option's place, not a
    ``TypeError``.
    """
    make: Callable[..., None] = section.__init__

    @wraps(make)
    def checked(self: Any, /, **values: Any) -> None:
        if wrong := _unknown(name, values):
            raise mistaken("landing", wrong)
        make(self, **values)

    section.__init__ = checked
    return section


SECTIONS: Mapping[str, type[Any]] = {
    "format": _refusing("format", Format),
    "transform": _refusing("transform", Transform),
    "columns": _refusing("columns", Columns),
    "upsert": _refusing("upsert", Upsert),
    "dead_letters": _refusing("dead_letters", DeadLetters),
    "window": _refusing("window", Window),
    "backpressure": _refusing("backpressure", Backpressure),
    "maintain": _refusing("maintain", Maintain),
    "publish": _refusing("publish", Publish),
    "connections": _refusing("connections", Connections),
}
"""The sections by the name of their field."""
ALONE: Mapping[str, str] = {"format": "name"}
"""Sections that may be stated as the text of this key alone."""
_KEYS = {name: tuple(f.name for f in dataclasses.fields(kind)) for name, kind in SECTIONS.items()}
SECTION_KEYS: Mapping[str, tuple[str, str]] = {
    f.metadata.get(FLAT, f.name): (name, f.name) for name, kind in SECTIONS.items() for f in dataclasses.fields(kind)
}
"""Where each option of a section is, by the name under which it is recorded."""
_FLAT_NAMES = {path: name for name, path in SECTION_KEYS.items()}
TOP = (*("name", "topics", "table", "timestamps"), *("evolve", "create", "route", "dead_letter_table"))
"""Options of a landing that are in no section."""
_BY_KEY = {key: (section, key) for section, key in reversed([*SECTION_KEYS.values()])}


def label(name: str) -> str:
    """An option as messages name it, by the name under which it is recorded: ``window.groups``."""
    section, *key = SECTION_KEYS.get(name, (name,))
    return section if key == [ALONE.get(section)] else ".".join((section, *key))


def hint(key: str, known: Iterable[str], section: str = "") -> str:
    """The end of a message about an unknown key: its place, or the nearest known key; empty where none is like it.

    :param known: the keys that are allowed where it was found
    :param section: the section where it was found
    """
    if key not in ALONE and (path := SECTION_KEYS.get(key) or _BY_KEY.get(key)) is not None:
        return f" (it is `{_place(*path)}`)"
    if section and (key in TOP or key in SECTIONS):
        return f" (it is `{key}`, outside of `{section}`)"
    found = nearest(key, {*known, *SECTION_KEYS, *_BY_KEY}, 1, 0.6)
    if not found:
        return ""
    meant = repr(found[0]) if found[0] in known else f"`{_place(*(SECTION_KEYS.get(found[0]) or _BY_KEY[found[0]]))}`"
    return f" (did you mean {meant}?)"


def _place(section: str, key: str) -> str:
    return f"{section}: {{{ALONE[section]}: …, {key}: …}}" if section in ALONE else f"{section}: {key}"


def section_of(name: str, value: Any) -> tuple[Any, list[str]]:
    """The section that a value states, and what is wrong with it: the section as it is, a mapping of some of its keys,
    or ``None``.
    """
    kind = SECTIONS[name]
    if isinstance(value, kind) or value is None:
        return kind() if value is None else value, []
    if name in ALONE and isinstance(value, str):
        return kind(**{ALONE[name]: value}), []
    if not isinstance(value, Mapping):
        return kind(), [f"{name}: {value!r} is not a mapping of {', '.join(_KEYS[name])}{_own_name(name)} [LC1149]"]
    return kind(**{key: each for key, each in value.items() if key in _KEYS[name]}), _unknown(name, value)


def _unknown(section: str, values: Iterable[Any]) -> list[str]:
    known = _KEYS[section]
    return [
        f"{section}: unknown key {key!r}{hint(str(key), known, section) or _own_name(section)} [LC1150]"
        for key in values
        if key not in known
    ]


def _own_name(section: str) -> str:
    """Where an option is that has the name of a section."""
    return f" (the value of the option is `{': '.join(SECTION_KEYS[section])}`)" if section in SECTION_KEYS else ""


def to_flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options by the names under which they are recorded, from options in sections."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name in SECTIONS and _is_section(name, value):
            out |= {_FLAT_NAMES.get((name, key), f"{name}.{key}"): each for key, each in _items(name, value)}
        else:
            out[name] = value
    return out


def from_flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options in sections, from options by the names under which they are recorded."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name in SECTION_KEYS:
            section, key = SECTION_KEYS[name]
            out.setdefault(section, {})[key] = value
        else:
            out[name] = value
    for name, key in ALONE.items():
        if isinstance(stated := out.get(name), dict) and stated.keys() == {key}:
            out[name] = stated[key]
    return out


def merged(*options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a landing from several mappings, a later one first; of a section each key by itself."""
    out: dict[str, Any] = {}
    for each in options:
        for name, value in each.items():
            if name in SECTIONS and _is_section(name, value) and _is_section(name, out.get(name)):
                out[name] = dict([*_items(name, out.get(name)), *_items(name, value)])
            else:
                out[name] = value
    return out


def _is_section(name: str, value: Any) -> bool:
    return value is None or isinstance(value, Mapping | SECTIONS[name]) or (name in ALONE and isinstance(value, str))


def _items(name: str, section: Any) -> list[tuple[str, Any]]:
    """The stated keys of a section; of one that is an object those that differ from their default."""
    if section is None:
        return []
    if isinstance(section, str):
        return [(ALONE[name], section)]
    if isinstance(section, Mapping):
        return [*section.items()]
    default = type(section)()
    return [
        (f.name, v) for f in dataclasses.fields(section) if (v := getattr(section, f.name)) != getattr(default, f.name)
    ]
