# SPDX-License-Identifier: Apache-2.0
"""Where the records of a landing go: its destinations, and which of them takes a row or a reject.

Contract: pure. Destinations are in order, and the first takes rows: a table that joins a landing later goes on where
the first one's ledger ends. Without a :class:`Route` it is the only one that does. With one, each record goes to the
table that a field of its value names, and is a reject by that table's columns. A record that the field names no table
for goes where ``other`` says, never nowhere; a reject for which no destination is stated blocks its range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

DEAD_LETTER = "dead_letter"
FAIL = "fail"
BY_FIELD = "field"
BY_SCHEMA = "schema"
NOT_ROUTED = "not_routed"
"""The kind of rejects that no table was named for."""


class Role(StrEnum):
    """What a table of a landing is for."""

    ROWS = "rows"
    """The rows that records became."""
    DEAD_LETTERS = "dead_letters"
    """The records that were rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A table of a landing, and what goes there."""

    table: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which table takes a record, by the text in a field of its value, or by the name of its schema.

    ``field`` is a path (``a.b`` within objects), empty where ``by`` is :data:`BY_SCHEMA`; ``other`` is
    :data:`DEAD_LETTER`, :data:`FAIL` or a table. ``missing`` says what becomes of records for a table that is not there
    and that nobody makes: :data:`FAIL` or :data:`DEAD_LETTER`. ``create`` says how tables are made, by name.
    """

    tables: Mapping[str, str]
    field: str = ""
    by: str = BY_FIELD
    other: str = DEAD_LETTER
    missing: str = FAIL
    create: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def by_schema(self) -> bool:
        """Return True if the name of the schema decides."""
        return self.by == BY_SCHEMA

    @property
    def told(self) -> str:
        """What decides, for people."""
        return "the schema of the record" if self.by_schema else f"field {self.field} of the value"

    @property
    def other_table(self) -> str | None:
        """The table of records that the field names none for, if they go to one."""
        return None if self.other in (DEAD_LETTER, FAIL) else self.other

    @property
    def all_tables(self) -> tuple[str, ...]:
        """Each table once, in the order of their first mention."""
        other = (self.other_table,) if self.other_table else ()
        return tuple(dict.fromkeys((*self.tables.values(), *other)))


class TableSchema(Protocol):
    """What is known of a table that is written to."""

    @property
    def table(self) -> str: ...
    @property
    def schema(self) -> str: ...


def tables_for(destinations: Iterable[Destination], role: Role) -> Iterator[str]:
    """The tables of a role, in order."""
    yield from (d.table for d in destinations if d.role is role)


def row_tables(destinations: Iterable[Destination]) -> tuple[str, ...]:
    """The tables that take rows, the leading one first."""
    return tuple(tables_for(destinations, Role.ROWS))


def schemas_of(destinations: Iterable[Destination], targets: Sequence[TableSchema]) -> tuple[str, ...]:
    """The schemas by which records of a landing are judged, as the JSON of the Iceberg specification: those of all its
    tables of rows that are there.
    """
    known = {t.table: t.schema for t in targets}
    return tuple(known[name] for name in row_tables(destinations) if name in known)


def role_of(destinations: Iterable[Destination], table: str) -> Role:
    """What that table is for; one that the landing does not name, as of a plan under an older spec, takes rejects."""
    return next((d.role for d in destinations if d.table == table), Role.DEAD_LETTERS)
