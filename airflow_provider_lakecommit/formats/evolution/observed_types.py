# SPDX-License-Identifier: Apache-2.0
"""From sampled JSON values to wanted columns, relative to a table.

A new field gets a type that holds every sampled value: ``long`` for whole numbers, ``double`` if some have a fraction,
``string`` for all texts. A field whose values disagree is left out with a reason; one without a value waits. An
existing column keeps its type while the decoder takes the values, gets the wider type if only the width is lacking, and
is otherwise a misfit with counts and places.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UnknownType,
)

from airflow_provider_lakecommit.core import DEFAULTS, FormatOptions
from airflow_provider_lakecommit.formats.evolution.changes import MAX_DIGITS, Finding, left_out, misfit, without_value
from airflow_provider_lakecommit.formats.evolution.inferred import InferredTypes
from airflow_provider_lakecommit.formats.evolution.paths import Path, dotted, plain
from airflow_provider_lakecommit.formats.infer_values import is_map_in_disguise
from airflow_provider_lakecommit.formats.sampled import Node, Numbers, SampledValues
from airflow_provider_lakecommit.formats.time_values import WHOLE_NUMBERS

_INT, _LONG = 2**31, 2**63
_FLOAT = Decimal("3.4028235677973366e38")
"""Smaller numbers round to 32-bit floats."""
_DOUBLE = Decimal("1.7976931348623158e308")
_NUMBERS = {"int", "fraction"}
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_TYPE_NAMES: Mapping[str, str] = {
    "bool": "a boolean",
    "int": "a whole number",
    "fraction": "a number with a fraction",
    "text": "a text",
    "object": "an object",
    "array": "a list",
}


def observed_types(
    schema: Schema, found: SampledValues, options: FormatOptions = DEFAULTS, origin: str = ""
) -> InferredTypes:
    """Return the columns that the sample needs in a table with this schema."""
    scan = _Scan(options)
    columns = StructType(*scan.fields(schema.as_struct(), found.root, ()))
    return InferredTypes(columns=columns, origin=origin, left_out=tuple(scan.left_out), misfits=tuple(scan.misfits))


@dataclass(slots=True)
class _Scan:
    options: FormatOptions
    left_out: list[Finding] = field(default_factory=list)
    misfits: list[Finding] = field(default_factory=list)
    _ids: count[int] = field(default_factory=lambda: count(1))

    def fields(self, own: StructType, node: Node, path: Path) -> list[NestedField]:
        """Return the wanted fields of objects for which the table has a struct."""
        by_name = {f.name: f.field_type for f in own.fields}
        out = []
        for name, inner in node.fields.items():
            at = (*path, name)
            kind = self.own(by_name[name], inner, at) if name in by_name else self.new(inner, at)
            if kind is not None:
                out.append(NestedField(next(self._ids), name, kind, required=False))
        for one in own.fields:
            inner = node.fields.get(one.name, Node())
            if one.required and (lack := node.kinds.get("object", 0) - (inner.observed - inner.nulls)):
                how = f"missing or null in {lack}"
                self.misfits.append(without_value(dotted((*path, one.name)), one.field_type, how))
        return out

    def own(self, kind: IcebergType, node: Node, path: Path) -> IcebergType | None:
        if isinstance(kind, StructType):
            self._check(kind, node, path, {"object"})
            return StructType(*self.fields(kind, node, path))
        if isinstance(kind, ListType):
            self._check(kind, node, path, {"array"})
            element = None if node.elements is None else self.own(kind.element_type, node.elements, (*path, "element"))
            return ListType(next(self._ids), element or kind.element_type, element_required=False)
        if isinstance(kind, MapType):
            self._check(kind, node, path, {"object"})
            value = self.own(kind.value_type, Node.union(node.fields.values()), (*path, "value"))
            key, of = next(self._ids), next(self._ids)
            return MapType(key, kind.key_type, of, value or kind.value_type, value_required=False)
        self._check(kind, node, path, _taken_by(kind, self.options.timestamps.get(".".join(path), "")))
        return self._number(kind, node, path)

    def new(self, node: Node, path: Path) -> IcebergType | None:
        """Return the type of a field that the table lacks; ``None`` if no value shows it."""
        kinds = set(node.kinds)
        if not kinds:
            return None
        if len(kinds) > 1 and kinds != _NUMBERS:
            self._leave(path, f"its values disagree: {_text(node, kinds)}")
            return None
        match max(kinds):
            case "bool":
                return BooleanType()
            case "text":
                return StringType()
            case "object":
                return self._struct(node, path)
            case "array":
                inner = None if node.elements is None else self.new(node.elements, (*path, "element"))
                return None if inner is None else ListType(next(self._ids), inner, element_required=False)
            case _:
                return self._new_number(node, path, kinds)

    def _struct(self, node: Node, path: Path) -> IcebergType | None:
        if is_map_in_disguise(node):
            names = len(node.fields)
            self._leave(path, f"{names} names in {node.kinds['object']} objects are probably a map: add it by hand")
            return None
        inner = self.fields(StructType(), node, path)
        return StructType(*inner) if inner else None

    def _new_number(self, node: Node, path: Path, kinds: set[str]) -> IcebergType | None:
        low, high = _bounds(node)
        if kinds == {"int"}:
            if -_LONG <= low <= high < _LONG:
                return LongType()
            self._leave(path, "some whole numbers exceed a long")
            return None
        if not -_DOUBLE <= low <= high <= _DOUBLE:
            self._leave(path, "some numbers exceed a double")
            return None
        if node.numbers.beyond_double:
            self._leave(path, "a double would round some of its numbers; add a decimal by hand")
            return None
        return DoubleType()

    def _leave(self, path: Path, why: str) -> None:
        self.left_out.append(left_out(dotted(path), why))

    def _check(self, kind: IcebergType, node: Node, path: Path, taken: set[str]) -> None:
        if strange := set(node.kinds) - taken:
            self._misfit(kind, path, _text(node, strange))

    def _misfit(self, kind: IcebergType, path: Path, what: str) -> None:
        self.misfits.append(misfit(dotted(path), plain(kind), what))

    def _number(self, kind: IcebergType, node: Node, path: Path) -> IcebergType:
        low, high = _bounds(node)
        match kind:
            case IntegerType() if not -_INT <= low <= high < _INT and -_LONG <= low <= high < _LONG:
                return LongType()
            case IntegerType() | LongType() if not -_LONG <= low <= high < _LONG:
                self._misfit(kind, path, "a whole number beyond a long")
            case FloatType() | DoubleType() if not -_DOUBLE <= low <= high <= _DOUBLE:
                self._misfit(kind, path, "a number beyond a double")
            case FloatType() if not -_FLOAT < low <= high < _FLOAT:
                return DoubleType()
            case DecimalType():
                return self._decimal(kind, node, path)
        return kind

    def _decimal(self, kind: DecimalType, node: Node, path: Path) -> IcebergType:
        """Return the decimal, by the digits of numbers and texts: JSON keeps exact numbers as texts."""
        unscaled = ".".join(path) in self.options.encodings
        exact = [
            _unscaled(text, kind.scale) if unscaled else Decimal(text) if _DECIMAL.fullmatch(text) else None
            for text in node.texts
        ]
        if none := exact.count(None):
            self._misfit(kind, path, f"a text that is not a number in {none}")
        found = Numbers()
        found.take(node.numbers)
        for number in filter(None, exact):
            found.add(number)
        # Zeros behind the last digit that counts need room while a number is read.
        digits = max(found.whole + kind.scale, found.digits)
        if found.exact > kind.scale:
            self._misfit(kind, path, f"a number with {found.exact} decimals")
        elif found.whole + kind.scale > MAX_DIGITS:
            self._misfit(kind, path, f"a number with {found.whole} digits before the point")
        elif digits > MAX_DIGITS:
            self._misfit(kind, path, f"a number that is written with {found.digits} digits")
        elif digits > kind.precision:
            return DecimalType(digits, kind.scale)
        return kind


def _unscaled(text: str, scale: int) -> Decimal | None:
    """Return the decimal that is kept as base64 of a whole number's bytes."""
    try:
        whole = Decimal(int.from_bytes(b64decode(text, validate=True), signed=True))
    except ValueError:
        return None
    return Decimal((whole.as_tuple().sign, whole.as_tuple().digits, -scale))


def _taken_by(kind: IcebergType, rule: str) -> set[str]:
    """Return the kinds of JSON values of which the decoder takes at least some for this type."""
    match kind:
        case BooleanType():
            return {"bool"}
        case IntegerType() | LongType():
            return {"int"}
        case FloatType() | DoubleType():
            return _NUMBERS
        case StringType():
            return {"text"}
        case UnknownType():
            return {*_TYPE_NAMES}
        case DecimalType():
            return _NUMBERS | {"text"}
        case _:
            return {"int"} if rule in WHOLE_NUMBERS else {"text"}


def _bounds(node: Node) -> tuple[Decimal, Decimal]:
    return node.numbers.low or Decimal(0), node.numbers.high or Decimal(0)


def _text(node: Node, kinds: Iterable[str]) -> str:
    """Return kinds of values with counts and places, the most frequent first."""
    most = sorted(kinds, key=lambda kind: (-node.kinds[kind], kind))
    return ", ".join(f"{_TYPE_NAMES[kind]} in {node.kinds[kind]} ({', '.join(node.locations[kind])})" for kind in most)
