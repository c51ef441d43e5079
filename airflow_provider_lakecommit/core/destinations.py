# SPDX-License-Identifier: Apache-2.0
"""The destinations of a landing's records, and which of them gets a row or a reject.

The first destination takes rows, and tables that join later continue at its ledger's end. With a :class:`Route` each
record goes to the table that a field or schema selects, and is judged by that table's columns. Unmatched records go to
``other``. A reject without a destination blocks its range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_lakecommit.core.model import TableTarget

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


Destinations = Mapping[str, Role]
"""The tables of a landing by name, each with its role."""


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


def tables_for(destinations: Destinations, role: Role) -> tuple[str, ...]:
    """Return the tables of a role; the leading table of rows comes first."""
    return tuple(table for table, own in destinations.items() if own is role)


def schemas_of(destinations: Destinations, targets: Iterable[TableTarget]) -> tuple[str, ...]:
    """Return the schemas of a landing's row tables, as JSON of the Iceberg specification."""
    known = {t.table: t.schema for t in targets}
    return tuple(known[name] for name in tables_for(destinations, Role.ROWS) if name in known)


def role_of(destinations: Destinations, table: str) -> Role:
    """Return the role of a table; an unknown one, as of a plan under an older spec, takes rejects."""
    return destinations.get(table, Role.DEAD_LETTERS)
