# SPDX-License-Identifier: Apache-2.0
"""Decide how a table must change to take its records' columns.

:func:`evolution` compares wanted columns with the table's, by name, and returns *changes* (a new optional column, a
wider type), *misfits* (no allowed change makes the table take the values) and *left out* fields with reasons.

Nothing is dropped, renamed, made required or narrower; ids and map keys stay. A path that an older schema of the table
has, but the current one lacks, was dropped or renamed by a user and is not restored. More new columns at once than
:attr:`Limits.columns` are probably names that are data, so none is added; columns of schemas have :data:`OF_SCHEMAS`.

============================ ================================ ==========================================
the table has                wanted is                        result
============================ ================================ ==========================================
nothing of that name         a type with at least one leaf    added, optional at every level
the same type, or a wider    anything that it holds           unchanged
``int``                      ``long``                         widened, if allowed
``float``                    ``double``                       widened, if allowed
``decimal(p, s)``            more digits before the point     widened to them, up to 38 digits in all
a struct, list or map        one of the same kind             compared inside, except for a map's key
anything                     anything else                    misfit
============================ ================================ ==========================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    UnknownType,
)

from airflow_provider_lakecommit.formats.column_names import TakenNames, unusable
from airflow_provider_lakecommit.formats.evolution.paths import Path, dotted, parts_of, paths_in, plain

MAX_DIGITS = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new optional column with everything in it, whose ids mean nothing; with ``before`` a wider type for one."""

    path: Path
    kind: IcebergType
    before: PrimitiveType | None = None

    @property
    def adds(self) -> bool:
        return self.before is None

    def __str__(self) -> str:
        if self.adds:
            return f"add {dotted(self.path)} {plain(self.kind)}"
        return f"widen {dotted(self.path)} from {self.before} to {self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Why a table does not take a field of the records; without ``column``, why no table takes the records."""

    column: str = ""
    text: str

    def __str__(self) -> str:
        return self.text


def left_out(column: str, why: str) -> Finding:
    return Finding(column=column, text=f"{column} is not added: {why}")


def misfit(column: str, in_table: str, in_records: str, why: str = "") -> Finding:
    text = f"column {column} is {in_table} in the table and {in_records} in the records"
    return Finding(column=column, text=f"{text} ({why})" if why else text)


def without_value(column: str, kind: IcebergType, how: str) -> Finding:
    return misfit(column, f"required {plain(kind)}", how, "make it optional by hand if nulls are valid")


def lacking(own: StructType, inferred: StructType, above: Path = ()) -> Iterator[Finding]:
    """Yield required columns that the writers' schema lacks: their records have no value for them."""
    there = {f.name: f.field_type for f in inferred.fields}
    for one in own.fields:
        path, kind = (*above, one.name), one.field_type
        if one.name not in there:
            if one.required:
                yield without_value(dotted(path), kind, "missing")
        elif isinstance(kind, StructType) and isinstance(inner := there[one.name], StructType):
            yield from lacking(kind, inner, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Most columns that one window adds, and that a table may get, nested ones included; deepest path."""

    columns: int = 100
    table: int = 2_000
    depth: int = 10


OF_SCHEMAS = Limits(columns=Limits().table)
"""Limits for columns named by a schema: their names are no data."""
UNLIMITED = Limits(columns=1 << 30, table=1 << 30, depth=1 << 30)
"""No changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSide:
    """A table's format version, the ids that its partitioning, order or identifier use, former paths, and the names of
    its present and former partition fields.
    """

    version: int = 2
    bound: frozenset[int] = frozenset()
    gone: frozenset[Path] = frozenset()
    parts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """The changes, and what is not changed."""

    changes: tuple[Change, ...] = ()
    misfits: tuple[Finding, ...] = ()
    left_out: tuple[Finding, ...] = ()


def evolution(
    schema: Schema,
    inferred: StructType,
    *,
    widen: bool,
    side: TableSide | None = None,
    skip: Set[str] = frozenset(),
    limits: Limits | None = None,
) -> Evolution:
    """Return the changes after which the table takes the wanted columns, as far as possible.

    :param skip: top-level columns that are filled from elsewhere
    """
    scan = _Scan(widen=widen, side=side or TableSide(), limits=limits or Limits())
    scan.struct(schema.as_struct(), [f for f in inferred.fields if f.name not in skip], ())
    return scan.within_limits(len(schema.field_ids))


@dataclass(slots=True, kw_only=True)
class _Scan:
    widen: bool
    side: TableSide
    limits: Limits
    changes: list[Change] = field(default_factory=list)
    misfits: list[Finding] = field(default_factory=list)
    left_out: list[Finding] = field(default_factory=list)

    def struct(self, own: StructType, inferred: Iterable[NestedField], path: Path) -> None:
        by_name = {f.name: f for f in own.fields}
        taken = TakenNames()
        for name in by_name:
            taken.add(name)
        for one in inferred:
            at = (*path, one.name)
            if one.name in by_name:
                self._type(by_name[one.name], one.field_type, at)
            elif (kind := self._addable(one, at, taken)) is not None:
                taken.add(one.name)
                self.changes.append(Change(path=at, kind=kind))

    def _type(self, own: NestedField, inferred: IcebergType, path: Path) -> None:
        kind = own.field_type
        if isinstance(kind, StructType) and isinstance(inferred, StructType):
            self.struct(kind, inferred.fields, path)
        elif isinstance(kind, ListType) and isinstance(inferred, ListType):
            self._type(kind.element_field, inferred.element_type, (*path, "element"))
        elif isinstance(kind, MapType) and isinstance(inferred, MapType):
            if not holds(kind.key_type, inferred.key_type):
                self._misfit((*path, "key"), kind.key_type, inferred.key_type, "map keys cannot be changed")
            self._type(kind.value_field, inferred.value_type, (*path, "value"))
        elif not holds(kind, inferred):
            self._wider(own, inferred, path)

    def _wider(self, own: NestedField, inferred: IcebergType, path: Path) -> None:
        kind, wide = own.field_type, _widened(own.field_type, inferred)
        if wide is None or not isinstance(kind, PrimitiveType):
            self._misfit(path, kind, inferred, "")
        elif not self.widen:
            self._misfit(path, kind, inferred, f'evolve="widen" would make it {wide}')
        elif own.field_id in self.side.bound:
            why = f"the table's partitioning, order or identifier uses it: make it {wide} by hand"
            self._misfit(path, kind, inferred, why)
        else:
            self.changes.append(Change(path=path, kind=wide, before=kind))

    def _misfit(self, path: Path, own: IcebergType, inferred: IcebergType, why: str) -> None:
        self.misfits.append(misfit(dotted(path), plain(own), plain(inferred), why))

    def _leave(self, path: Path, why: str) -> None:
        self.left_out.append(left_out(dotted(path), why))

    def _addable(self, one: NestedField, path: Path, taken: TakenNames) -> IcebergType | None:
        """Return the type of a new column without impossible parts; ``None`` if nothing is left."""
        if (why := unusable(one.name, top=len(path) == 1)) is not None:
            self._leave(path, why)
        elif ".".join(path).casefold() in self.side.parts:
            # Java's library loads no such table.
            self._leave(path, "a partition field of the table has that name; add it by hand under another name")
        elif (why := taken.clash(one.name)) is not None:
            self._leave(path, why)
        elif path in self.side.gone:
            self._leave(path, "the table once had it, and it was dropped or renamed; add it by hand to restore it")
        elif len(path) > self.limits.depth:
            self._leave(path, f"it is nested more than {self.limits.depth} deep")
        else:
            return self._kind(one.field_type, path)
        return None

    def _kind(self, kind: IcebergType, path: Path) -> IcebergType | None:
        if isinstance(kind, StructType):
            taken = TakenNames()
            fields = []
            for one in kind.fields:
                inner = self._addable(one, (*path, one.name), taken)
                if inner is not None:
                    taken.add(one.name)
                    fields.append(NestedField(one.field_id, one.name, inner, required=False, doc=one.doc))
            return StructType(*fields) if fields else None
        if isinstance(kind, ListType):
            element = self._kind(kind.element_type, (*path, "element"))
            return None if element is None else ListType(kind.element_id, element, element_required=False)
        if isinstance(kind, MapType):
            if not isinstance(kind.key_type, PrimitiveType):
                self._leave(path, f"a map with keys of type {plain(kind.key_type)}")
                return None
            value = self._kind(kind.value_type, (*path, "value"))
            return None if value is None else MapType(kind.key_id, kind.key_type, kind.value_id, value, False)
        if isinstance(kind, UnknownType):
            self._leave(path, "its type is unknown")
        elif (needs := kind.minimum_format_version()) > self.side.version:
            self._leave(path, f"type {kind} needs format version {needs}, the table has {self.side.version}")
        else:
            return kind
        return None

    def within_limits(self, columns: int) -> Evolution:
        """Return the result, without new columns if there are too many."""
        added = [c for c in self.changes if c.adds]
        many, most = sum(1 + sum(1 for _ in paths_in(parts_of(c.kind))) for c in added), self.limits
        if many > most.columns or (many and columns + many > most.table):
            limit = f"{most.columns} in one window" if many > most.columns else f"{most.table} in the table"
            why = f"{many} new columns exceed the limit of {limit}: if the names are not data, add them by hand"
            self.left_out += [left_out(dotted(c.path), why) for c in added]
            self.changes = [c for c in self.changes if not c.adds]
        return Evolution(changes=tuple(self.changes), misfits=tuple(self.misfits), left_out=tuple(self.left_out))


def holds(own: IcebergType, inferred: IcebergType) -> bool:
    """Return True if a column accepts all values of a type unchanged."""
    match own, inferred:
        case _, UnknownType():
            return True
        case (LongType(), IntegerType()) | (DoubleType(), FloatType()):
            return True
        case DecimalType(), DecimalType():
            return inferred.scale <= own.scale and _whole(inferred) <= _whole(own)
        case _:
            return plain(own) == plain(inferred)


def _widened(own: IcebergType, inferred: IcebergType) -> PrimitiveType | None:
    """Return the type that holds both, if Iceberg allows the change."""
    match own, inferred:
        case IntegerType(), LongType():
            return LongType()
        case FloatType(), DoubleType():
            return DoubleType()
        case DecimalType(), DecimalType() if inferred.scale <= own.scale and _whole(inferred) + own.scale <= MAX_DIGITS:
            return DecimalType(_whole(inferred) + own.scale, own.scale)
        case _:
            return None


def _whole(kind: DecimalType) -> int:
    return kind.precision - kind.scale
