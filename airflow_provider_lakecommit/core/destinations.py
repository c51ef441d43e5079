# SPDX-License-Identifier: Apache-2.0
"""The destinations of a landing's records, and which of them gets a row or a reject.

The first destination takes rows, and tables that join later continue at its ledger's end. With a :class:`Route` each
record goes to the table that a field or schema selects, and is judged by that table's columns. Unmatched records go to
``other``. A reject without a destination blocks its range.
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
"""The kind of rejects without a matching table."""


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
    """Select the table of a record by a field of its value, or by its schema.

    ``field`` is a path (``a.b`` within objects), empty if ``by`` is :data:`BY_SCHEMA`. ``other`` is
    :data:`DEAD_LETTER`, :data:`FAIL` or a table. ``missing`` applies to records for a table that does not exist and is
    not created: :data:`FAIL` or :data:`DEAD_LETTER`. ``create`` tells how tables are created, by name.
    """

    tables: Mapping[str, str]
    field: str = ""
    by: str = BY_FIELD
    other: str = DEAD_LETTER
    missing: str = FAIL
    create: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def by_schema(self) -> bool:
        return self.by == BY_SCHEMA

    @property
    def selector(self) -> str:
        """Return what selects the table, for users."""
        return "the schema of the record" if self.by_schema else f"field {self.field} of the value"

    @property
    def other_table(self) -> str | None:
        """Return the table of unmatched records, if there is one."""
        return None if self.other in (DEAD_LETTER, FAIL) else self.other

    @property
    def all_tables(self) -> tuple[str, ...]:
        """Return each table once, in order of first mention."""
        other = (self.other_table,) if self.other_table else ()
        return tuple(dict.fromkeys((*self.tables.values(), *other)))


class TableSchema(Protocol):
    """What is known of a table that is written to."""

    @property
    def table(self) -> str: ...
    @property
    def schema(self) -> str: ...


def tables_for(destinations: Iterable[Destination], role: Role) -> Iterator[str]:
    yield from (d.table for d in destinations if d.role is role)


def row_tables(destinations: Iterable[Destination]) -> tuple[str, ...]:
    """Return the tables that take rows, the leading one first."""
    return tuple(tables_for(destinations, Role.ROWS))


def schemas_of(destinations: Iterable[Destination], targets: Sequence[TableSchema]) -> tuple[str, ...]:
    """Return the schemas of a landing's row tables, as JSON of the Iceberg specification."""
    known = {t.table: t.schema for t in targets}
    return tuple(known[name] for name in row_tables(destinations) if name in known)


def role_of(destinations: Iterable[Destination], table: str) -> Role:
    """Return the role of a table; an unknown one, as of a plan under an older spec, takes rejects."""
    return next((d.role for d in destinations if d.table == table), Role.DEAD_LETTERS)
