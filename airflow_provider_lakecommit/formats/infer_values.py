# SPDX-License-Identifier: Apache-2.0
"""From sampled values to the columns of a `create` section, with notes on everything uncertain.

A type is never narrower than the sample: whole numbers are ``long``, fractions ``double`` (with the exact decimal in a
note), and a text becomes a date, time, timestamp or uuid only if (nearly) all sampled texts are some for the landing's
decoder. A column is required only if it was never missing or null in a large sample. Undecidable columns are left out
with a note. Numbers that may be times stay ``long``, with the rule in a note. Where records contradict each other the
most frequent kind wins; decoding the sample then finds the rejects.

Types of a schema refer to each other, so a short text may have more fields than any table. Beyond :data:`MOST_FIELDS`
in one column it is left out with a note.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema

from airflow_provider_lakecommit.exceptions import SpecError, TableError
from airflow_provider_lakecommit.formats.column_names import TakenNames, unusable
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.formats.sampled import Node, SampledValues
from airflow_provider_lakecommit.iceberg import columns_from_spec, create_from_spec

LONG = 2**63
MAX_DIGITS = 38
ROOM = 18
"""Least digits of an offered decimal: Parquet keeps them in eight bytes anyway."""
MAP_KEYS = 20
"""Keys from which an object with varying keys counts as a map."""
MOST_OTHERS, LEAST_LENGTH, FIRST = 50, 8, 3
"""One text in so many may be of another type than the column; texts of a type are at least so long; so many texts are
tried first."""
_ANY = "`string` takes any other text too"
_TEXT_TYPES = ("uuid", "date", "timestamptz", "timestamp", "time")
_EPOCHS = (("epoch_seconds", 1), ("epoch_millis", 10**3), ("epoch_micros", 10**6), ("epoch_nanos", 10**9))
_DECIMAL = re.compile(r"[+-]?[0-9]+\.[0-9]+")
"""With a point: whole numbers in texts are often identifiers with leading zeros."""
_HOLDS = "holds all sampled values exactly"
_YEARS = (946_684_800, 4_102_444_800)
"""From 2000 to 2100, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredColumn:
    """A column of `create` with its notes; without ``type`` it is left out.

    ``instead`` is another type that would hold the sample, ``rule`` how its times are written.
    """

    name: str
    type: Any
    required: bool
    notes: tuple[str, ...] = ()
    instead: str | None = None
    rule: str | None = None

    def to_dict(self) -> dict[str, Any]:
        required = {"required": True} if self.required else {}
        return {"name": self.name, "type": self.type, **required}

    @property
    def other(self) -> dict[str, Any] | None:
        return None if self.instead is None else {**self.to_dict(), "type": self.instead}


def infer(found: SampledValues, *, examples: bool = False) -> list[InferredColumn]:
    """Return the columns of the sample, in order of first appearance."""
    fields = found.root.fields
    unfit = _unfit_names(fields, top=True)
    return [_column(name, node, examples, unfit.get(name, "")) for name, node in fields.items()]


def schema_of(columns: Iterable[InferredColumn]) -> Schema | None:
    """Return the schema of the columns with a type; ``None`` if there is none."""
    typed = [c.to_dict() for c in columns if c.type is not None]
    return columns_from_spec(typed) if typed else None


def _unfit_names(fields: Mapping[str, Node], *, top: bool) -> dict[str, str]:
    """Return why some fields cannot be columns by their names. Of names that clash, the one with most values can."""
    taken, unfit = TakenNames(), dict[str, str]()
    for name in sorted(fields, key=lambda n: -sum(fields[n].kinds.values())):
        if why := unusable(name, top=top) or taken.clash(name):
            unfit[name] = why
        else:
            taken.add(name)
    return unfit


def _column(name: str, node: Node, examples: bool, unfit: str) -> InferredColumn:
    notes = ColumnNotes(examples=examples)
    kind = _type(node, name, notes)
    if kind is not None and (why := unfit or _unusable(name, kind)):
        notes.log(name or "''", f"left out: {why}")
        kind = None
    instead, rule = notes.instead.get(name, (None, None)) if kind is not None else (None, None)
    return InferredColumn(
        name=name, type=kind, required=kind is not None and node.always, notes=tuple(notes), instead=instead, rule=rule
    )


def _unusable(name: str, kind: Any) -> str:
    """Return why a table or the decoder cannot have such a column."""
    try:
        schema, _, _ = create_from_spec({"schema": [{"name": name, "type": kind}]})
        JsonDecoder(schema)
    except (SpecError, TableError, ValueError) as e:
        return str(e)
    return ""


def _type(node: Node, path: str, notes: ColumnNotes) -> Any:
    kind = _kind(node, path, notes)
    match kind:
        case None:
            notes.log(
                path, f"left out: null in all {node.observed} values" if node.observed else "left out: always empty"
            )
            return None
        case "object":
            return _struct(node, path, notes)
        case "array":
            return _list(node, path, notes)
        case "text":
            return _text(node, path, notes)
        case "bool":
            return "boolean"
        case _:
            return _number(node, path, notes)


def _kind(node: Node, path: str, notes: ColumnNotes) -> str | None:
    """Return the most frequent kind of value; both kinds of numbers count as one."""
    counts = {k: n for k, n in node.kinds.items() if k not in ("int", "fraction")}
    if numbers := node.kinds.get("int", 0) + node.kinds.get("fraction", 0):
        counts["number"] = numbers
    if not counts:
        return None
    most = max(counts, key=lambda k: (counts[k], k))
    for kind in sorted(counts.keys() - {most}):
        names = ("int", "fraction") if kind == "number" else (kind,)
        locations = [location for name in names for location in node.locations.get(name, ())]
        notes.log(
            path,
            f"{counts[most]} values are of kind {most}; {counts[kind]} of kind {kind} are dead letters "
            f"({', '.join(locations)})",
        )
    return most


def is_map_in_disguise(node: Node) -> bool:
    """Return True if the keys of these objects vary as data does."""
    present = sum(inner.observed for inner in node.fields.values())
    return len(node.fields) >= MAP_KEYS and present < node.kinds["object"] * len(node.fields) / 2


def _struct(node: Node, path: str, notes: ColumnNotes) -> Any:
    parts, unfit = [], _unfit_names(node.fields, top=False)
    for name, inner in node.fields.items():
        kind = _type(inner, f"{path}.{name}", notes)
        if kind is not None and (why := unfit.get(name)):
            notes.log(f"{path}.{name}", f"left out: {why}")
        elif kind is not None:
            required = {"required": True} if inner.always else {}
            parts.append({"name": name, "type": kind, **required})
    if not parts:
        notes.log(path, "left out: none of its fields has a type")
        return None
    objects = node.kinds["object"]
    if is_map_in_disguise(node):
        types = {json.dumps(part["type"]) for part in parts}
        value = types.pop() if len(types) == 1 else "…"
        notes.log(
            path,
            f"{len(node.fields)} different keys in {objects} objects: if it is a map, use "
            f"{{map: {{key: string, value: {value}}}}}",
        )
    return {"struct": parts}


def _list(node: Node, path: str, notes: ColumnNotes) -> Any:
    inner = node.elements
    if inner is None or not inner.observed:
        notes.log(path, "left out: always an empty list")
        return None
    kind = _type(inner, f"{path}.element", notes)
    required = {"required": True} if inner.always else {}
    return None if kind is None else {"list": kind, **required}


def _text(node: Node, path: str, notes: ColumnNotes) -> str:
    texts = list(dict.fromkeys(node.texts))
    for kind in _TEXT_TYPES:
        if (others := _others(node.texts, kind)) * MOST_OTHERS <= len(node.texts):
            are = f"{len(node.texts) - others} of {len(node.texts)}" if others else f"all {len(node.texts)}"
            rest = f"the other {others} are dead letters; `string` takes any text" if others else _ANY
            notes.log(path, f"{are} sampled texts are of type {kind}; {rest}", node)
            return kind
    if texts and all(map(_DECIMAL.fullmatch, texts)):
        parts = [text.lstrip("+-").partition(".") for text in texts]
        exact = _decimal(max(len(whole) for whole, _, _ in parts), max(len(rest) for _, _, rest in parts))
        if exact is not None and not _others(texts, exact, 0):
            notes.log(path, f"all {len(node.texts)} sampled texts are numbers: {exact} {_HOLDS}", node)
            notes.instead[path] = (exact, None)
    return "string"


def _decimal(whole: int, scale: int) -> str | None:
    """Return the decimal for so many digits before and after the point, with room for more."""
    digits = max(whole + scale, 1)
    return f"decimal({max(digits, ROOM)}, {scale})" if digits <= MAX_DIGITS else None


def _others(texts: Sequence[str], kind: str, least: int = LEAST_LENGTH) -> int:
    """Return how many texts are not of a type; all of them if the first ones are not."""
    counts = Counter(text for text in texts if len(text) >= least)
    schema, _, _ = create_from_spec({"schema": [{"name": "c", "type": kind}]})
    decoder, some = JsonDecoder(schema), [*counts]
    values = [json.dumps({"c": text}).encode() for text in some]
    # Most columns are not dates: a few values are enough.
    if len(decoder.decode(values[:FIRST]).rejects) == len(values[:FIRST]):
        return len(texts)
    wrong = sum(counts[some[reject.index]] for reject in decoder.decode(values).rejects)
    return wrong + len(texts) - counts.total()


def _number(node: Node, path: str, notes: ColumnNotes) -> str:
    numbers = node.numbers
    low, high = numbers.low or 0, numbers.high or 0
    if "fraction" in node.kinds:
        if (exact := _decimal(numbers.whole, numbers.scale)) is not None:
            notes.log(path, f"{exact} {_HOLDS}; a double is the nearest binary fraction")
            notes.instead[path] = (exact, None)
        return "double"
    if not -LONG <= low <= high < LONG:
        if numbers.whole <= MAX_DIGITS:
            notes.log(path, "some whole numbers exceed a long")
            return f"decimal({MAX_DIGITS}, 0)"
        notes.log(path, "some whole numbers exceed every exact type; a double rounds them")
        return "double"
    for rule, unit in _EPOCHS:
        if _YEARS[0] * unit <= low <= high < _YEARS[1] * unit:
            kind = "timestamptz_ns" if rule == "epoch_nanos" else "timestamptz"
            notes.log(path, f"may be a time: if so, use type {kind} and `timestamps: {{{json.dumps(path)}: {rule}}}`")
            notes.instead[path] = (kind, rule)
    return "long"


MOST_FIELDS = 5_000
"""Most fields in one column, at all levels."""


class _TooManyFieldsError(Exception):
    """A column would have more fields than any table."""


class ColumnNotes(list[str]):
    """The notes of a column; ``examples`` allows values in them. ``instead`` has other types by path, with a rule."""

    def __init__(self, *notes: str, examples: bool = False) -> None:
        super().__init__(notes)
        self.examples, self.left = examples, MOST_FIELDS
        self.instead: dict[str, tuple[str, str | None]] = {}

    def log(self, path: str, text: str, node: Node | None = None) -> None:
        shown = f", such as {json.dumps(node.texts[0])}" if self.examples and node is not None and node.texts else ""
        self.append(f"{path}: {text}{shown}")

    def one_more(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooManyFieldsError


def column_of(name: str, make: Callable[[ColumnNotes], Any], *, required: bool = False) -> InferredColumn:
    """Return a column with its notes.

    :param make: returns its type, or ``None``
    """
    notes = ColumnNotes()
    try:
        kind = make(notes)
    except _TooManyFieldsError:
        kind, notes = None, ColumnNotes(f"{name}: left out: it has more than {MOST_FIELDS:,} fields")
    return InferredColumn(name=name, type=kind, required=required and kind is not None, notes=tuple(notes))
