# SPDX-License-Identifier: Apache-2.0
"""The interface of all formats: a block of values becomes rows and rejects.

Each value gives at least one row, or is a reject, or is filtered. A format may refuse a block as a whole
(:class:`Refusal`): :func:`halved` then isolates the refused values, at logarithmic cost each. Records often fail alike,
so a format may also name all values of a small block that are refused for the same reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pkgutil import resolve_name
from typing import Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import FORMATS, WITH_REGISTRY, FormatOptions
from airflow_provider_lakecommit.formats.arrow_texts import plain_reason
from airflow_provider_lakecommit.formats.registry.schema_source import SchemaSource

ONE_BY_ONE = 16
"""Size of a refused block at which each value is tried alone."""
FAIL_ALIKE = 256
"""Size of a refused block below which values that fail alike are searched, as that costs less than halving."""
MOST_REASONS = 4
"""Reasons that are searched per block; the rest is halved."""
REASON_LENGTH = 300
T = TypeVar("T")
Alike = Callable[[Sequence[T], "Refusal"], Mapping[int, "Refusal"]]
"""Returns values of a refused block that would also be refused alone, by position."""


class Refusal(Exception):
    """A block holds a value that cannot be read; the caller isolates the record."""

    def __init__(self, kind: str, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.column = column
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A value without a row, by position; without ``column`` the whole value is to blame."""

    index: int
    kind: str
    column: str | None
    reason: str

    @classmethod
    def of(cls, index: int, refusal: Refusal) -> Reject:
        column = None if refusal.column is None else _printable(refusal.column)
        reason = plain_reason(refusal.reason)
        if refusal.kind == "missing_required" and "." in (refusal.column or ""):
            reason += "; send it in each record, or make this nested column optional in the table"
        return cls(index=index, kind=refusal.kind, column=column, reason=_printable(reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Rows in the order of their values.

    ``records`` are the positions of the rows' values (``None``: one row each), ``filtered`` those of values without a
    row that are no rejects. ``ignored`` counts unknown fields by path.
    """

    table: pa.Table
    records: Sequence[int] | None = None
    rejects: tuple[Reject, ...] = ()
    filtered: Sequence[int] = ()
    ignored: Counter[str] = field(default_factory=Counter)


class Decoder(Protocol):
    """Decodes blocks of values for one table. Keeps no rows."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the decoded tables."""

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """Return rows and rejects of these values, none of which is a tombstone."""

    def close(self) -> None:
        """Release its resources."""


def decoder_for(
    schema: Schema, options: FormatOptions, skip: Set[str] = frozenset(), registry: SchemaSource | None = None
) -> Decoder:
    """Return the decoder of a format, by its entry in :data:`~airflow_provider_lakecommit.core.formats.FORMATS`.

    :param skip: columns that are not read from the values
    :param registry: for formats whose records name their schema; without it values can be checked, not decoded
    :raises TableError: a column cannot be read from this format, or an option does not fit it
    """
    factory = resolve_name(FORMATS[options.format])
    sources = (registry,) if options.format in WITH_REGISTRY else ()
    return cast(Decoder, factory(schema, options, skip, *sources))


def halved(
    values: Sequence[T],
    decode: Callable[[Sequence[T]], Decoded],
    explained: Callable[[T, Refusal], Refusal] = lambda _value, refusal: refusal,
    alike: Alike[T] = lambda _values, _refusal: {},
    most_alike: int = FAIL_ALIKE,
) -> Decoded:
    """Decode all values, and isolate refused ones as rejects.

    :param decode: of a block, which may be empty; raises :class:`Refusal` if it cannot be read as a whole
    :param explained: returns the refusal of a single value
    :param alike: returns some values refused for the same reason
    :param most_alike: largest block for which it is called
    """

    def pieces(own: Sequence[T], first: int, refusal: Refusal) -> Iterator[tuple[range, Decoded | Reject]]:
        """Cut a refused piece until only refused values are left alone; yield pieces with their positions."""
        every = range(first, first + len(own))
        if len(own) == 1:
            yield every, Reject.of(first, explained(own[0], refusal))
            return
        if len(own) <= most_alike and (bad := alike(own, refusal)):
            yield every, _without_alike(own, bad, decode, explained, alike)
            return
        step = 1 if len(own) <= ONE_BY_ONE else (len(own) + 1) // 2
        for at in range(0, len(own), step):
            piece = own[at : at + step]
            try:
                yield every[at : at + step], decode(piece)
            except Refusal as smaller:
                yield from pieces(piece, first + at, smaller)

    try:
        return decode(values)
    except Refusal as refusal:
        found = list(pieces(values, 0, refusal))
    parts = [(positions, piece) for positions, piece in found if isinstance(piece, Decoded)]
    rejects = [piece for _, piece in found if isinstance(piece, Reject)]
    return together(parts or [(range(0), decode([]))], rejects, len(values))


class BaseDecoder:
    """The base of :class:`Decoder` classes: rows of one schema, and no resources to release."""

    _schema: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def close(self) -> None:
        """Do nothing."""


def _without_alike(
    values: Sequence[T],
    bad: Mapping[int, Refusal],
    decode: Callable[[Sequence[T]], Decoded],
    explained: Callable[[T, Refusal], Refusal],
    alike: Alike[T],
) -> Decoded:
    """Decode a small block without values that fail alike, reason by reason."""
    rejects, positions = list[Reject](), list(range(len(values)))
    for _ in range(MOST_REASONS):
        rejects += [Reject.of(positions[i], refusal) for i, refusal in bad.items()]
        positions = [position for i, position in enumerate(positions) if i not in bad]
        left = [values[position] for position in positions]
        try:
            return with_positions(decode(left), positions, rejects)
        except Refusal as refusal:
            if not (bad := alike(left, refusal)):
                break
    return with_positions(halved([values[position] for position in positions], decode, explained), positions, rejects)


def with_positions(decoded: Decoded, positions: Sequence[int], rejects: Sequence[Reject]) -> Decoded:
    """Return the result of some values of a block, among all of it.

    :param positions: positions of these values
    :param rejects: of the others
    """
    return _merged([(positions, decoded)], rejects)


def together(parts: Sequence[tuple[Sequence[int], Decoded]], rejects: Sequence[Reject], values: int) -> Decoded:
    """Return the results of the parts of a block, in the order of its values.

    :param parts: at least one, each with the positions of its values
    :param rejects: of values that are in no part
    :param values: the size of the block
    """
    return parts[0][1] if len(parts) == 1 and len(parts[0][0]) == values else _merged(parts, rejects)


def _merged(parts: Sequence[tuple[Sequence[int], Decoded]], rejects: Sequence[Reject]) -> Decoded:
    table = pa.concat_tables([part.table for _, part in parts])
    of_parts = (
        positions if part.records is None else [positions[i] for i in part.records] for positions, part in parts
    )
    records = [*chain.from_iterable(of_parts)]
    if any(before[-1] > after[0] for (before, _), (after, _) in pairwise(parts)):
        order = np.argsort(np.array(records, np.int64), kind="stable")
        table, records = table.take(pa.array(order)), [records[i] for i in order]
    moved = (replace(r, index=positions[r.index]) for positions, part in parts for r in part.rejects)
    ignored: Counter[str] = Counter()
    for _, part in parts:
        ignored.update(part.ignored)
    return Decoded(
        table=table,
        records=records,
        rejects=tuple(sorted((*rejects, *moved), key=lambda r: r.index)),
        filtered=sorted(positions[i] for positions, part in parts for i in part.filtered),
        ignored=ignored,
    )


def _printable(text: str) -> str:
    """Return a text that logs and UTF-8 can hold: a name in a record may be half of a surrogate pair."""
    return text[:REASON_LENGTH].encode(errors="backslashreplace").decode()
