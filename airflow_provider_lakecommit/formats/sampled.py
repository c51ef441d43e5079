# SPDX-License-Identifier: Apache-2.0
"""What sampled JSON values look like: a tree of paths with the kinds seen at each, their counts and first places.

Numbers are kept by their text, never through a float. Nothing is concluded here
(:mod:`airflow_provider_lakecommit.formats.infer_values` does). Values that are no JSON object, or repeat a key, are
counted with their first places.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from airflow_provider_lakecommit.formats.alike import known_form
from airflow_provider_lakecommit.formats.decoder import Refusal

MAX_LOCATIONS = 3
MAX_DEPTH = 60
DIGITS = 17
LARGE = 500
"""Least number of values of which none is missing for a required column."""
_KINDS: tuple[tuple[type, str], ...] = ((bool, "bool"), (int, "int"), (Decimal, "fraction"), (str, "text"))


class _NotOurs(ValueError):
    """A text that the landing's own parser refuses too."""


@dataclass(slots=True)
class Numbers:
    """Bounds of the numbers at a path: digits before and after the point, smallest and largest number.

    :param exact: decimals without trailing zeros
    :param digits: the highest number of digits before and behind the point, of any sampled number
    """

    whole: int = 0
    scale: int = 0
    exact: int = 0
    digits: int = 0
    low: Decimal | None = None
    high: Decimal | None = None
    beyond_double: bool = False

    def add(self, value: Decimal) -> None:
        if not value.is_finite():
            return
        _, digits, power = value.as_tuple()
        exponent = int(power)
        zeros = len(digits) - len("".join(map(str, digits)).rstrip("0")) if exponent < 0 else 0
        whole = max(0, value.adjusted() + 1) if value else 0
        scale, exact = max(0, -exponent), -exponent - zeros if value else 0
        self.take(Numbers(whole, scale, exact, whole + scale, value, value, _beyond_double(value)))

    def take(self, other: Numbers) -> None:
        """Extend the bounds by another's."""
        self.whole, self.scale = max(self.whole, other.whole), max(self.scale, other.scale)
        self.exact, self.digits = max(self.exact, other.exact), max(self.digits, other.digits)
        self.low = min((n for n in (self.low, other.low) if n is not None), default=None)
        self.high = max((n for n in (self.high, other.high) if n is not None), default=None)
        self.beyond_double |= other.beyond_double


@dataclass(slots=True)
class Node:
    """All that was seen at one path. ``kinds`` counts values, ``parents`` the objects that could have had it."""

    observed: int = 0
    nulls: int = 0
    parents: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    locations: dict[str, list[str]] = field(default_factory=dict)
    numbers: Numbers = field(default_factory=Numbers)
    texts: list[str] = field(default_factory=list)
    fields: dict[str, Node] = field(default_factory=dict)
    elements: Node | None = None

    def add(self, value: Any, location: str) -> None:
        self.observed += 1
        if value is None:
            self.nulls += 1
            return
        kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else ""
        kind = kind or next(name for of, name in _KINDS if isinstance(value, of))
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if len(locations := self.locations.setdefault(kind, [])) < MAX_LOCATIONS and location not in locations:
            locations.append(location)
        if kind == "object":
            for name, inner in value.items():
                self.fields.setdefault(name, Node()).add(inner, location)
        elif kind == "array":
            self.elements = self.elements or Node()
            for inner in value:
                self.elements.add(inner, location)
        elif kind == "text":
            self.texts.append(value)
        elif kind != "bool":
            self.numbers.add(Decimal(value))

    @property
    def always(self) -> bool:
        return LARGE <= self.observed == self.parents and not self.nulls

    @classmethod
    def union(cls, nodes: Iterable[Node]) -> Node:
        """Return what was seen at any of these, as at one path; parents are unknown."""
        out = cls()
        for node in nodes:
            out._take(node)
        return out

    def _take(self, other: Node) -> None:
        self.observed += other.observed
        self.nulls += other.nulls
        for kind, n in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + n
            self.locations[kind] = list(dict.fromkeys((*self.locations.get(kind, ()), *other.locations[kind])))[
                :MAX_LOCATIONS
            ]
        self.numbers.take(other.numbers)
        self.texts += other.texts
        for name, inner in other.fields.items():
            self.fields.setdefault(name, Node())._take(inner)
        if other.elements is not None:
            self.elements = self.elements or Node()
            self.elements._take(other.elements)

    def settle(self, parents: int) -> None:
        """Set how many objects, or list elements, could have had each node."""
        self.parents = parents
        for inner in self.fields.values():
            inner.settle(self.kinds.get("object", 0))
        if self.elements is not None:
            self.elements.settle(self.elements.observed)


@dataclass(slots=True)
class SampledValues:
    """A sample. ``refused`` counts values that never give a row, by reason, with their first places."""

    root: Node
    values: int = 0
    tombstones: int = 0
    refused: dict[str, tuple[int, list[str]]] = field(default_factory=dict)

    def refuse(self, why: str, location: str) -> None:
        count, locations = self.refused.get(why, (0, []))
        self.refused[why] = (count + 1, locations if len(locations) >= MAX_LOCATIONS else [*locations, location])


def sample_values(
    sample: Iterable[tuple[str, bytes | None]],
    row_of: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda value: value,
) -> SampledValues:
    """Collect what record values look like, each with its place (``orders[3]@17``).

    :param row_of: returns the part of an object to collect, if any
    """
    found = SampledValues(root=Node())
    for location, value in sample:
        found.values += 1
        if value is None:
            found.tombstones += 1
            continue
        try:
            parsed = json.loads(
                value.decode(), parse_float=_number, parse_constant=_no_constant, object_pairs_hook=_once
            )
        except _NotOurs as e:
            found.refuse(str(e), location)
        except (ValueError, RecursionError):
            found.refuse(known_form(value, Refusal("not_json", None, "is not JSON")).reason, location)
        else:
            if not isinstance(parsed, dict):
                found.refuse("is not a JSON object", location)
            elif _depth(parsed) > MAX_DEPTH:
                found.refuse(f"is nested deeper than {MAX_DEPTH}", location)
            elif (row := row_of(parsed)) is not None:
                found.root.add(row, location)
    found.root.settle(found.root.observed)
    return found


def _beyond_double(value: Decimal) -> bool:
    """Return True if a double changes the number visibly; 17 digits identify any double."""
    _, digits, exponent = value.as_tuple()
    if exponent == 0:
        return len(digits) > DIGITS - 2 and Decimal(float(value)) != value
    return len(digits) > DIGITS and len("".join(map(str, digits)).strip("0")) > DIGITS


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        raise _NotOurs("has a key twice")
    return out


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise _NotOurs("has a number with a too large exponent") from None


def _no_constant(text: str) -> Any:
    raise _NotOurs(f"has the number {text}, which is not JSON")


def _depth(value: Any) -> int:
    """Return the depth without recursion: sampled values may be nested arbitrarily."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            inner for v in level for inner in (v.values() if isinstance(v, dict) else v if isinstance(v, list) else ())
        ]
    return deepest
