# SPDX-License-Identifier: Apache-2.0
"""What a user is told of the tables of a landing: by which DAG it is declared, and what was seen of its tables.

Contract: only a declaration of a DAG that he may read counts, and it must be one of those that run the landing; of
several the first by name. Samples of dead letters are for those who may read that DAG's task logs
(:mod:`~airflow_provider_lakecommit.page.table_answers`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from airflow_provider_lakecommit.page.declared_landings import DeclaredLanding
from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.page.table_answers import (
    NO_RIGHT,
    NO_TABLE,
    SWITCHED_OFF,
    UNDECLARED,
    SamplesAnswer,
    samples_of,
)
from airflow_provider_lakecommit.page.table_reader import TableReader, TableSeen

__all__ = ["KnownTables", "LandingTables", "Reads"]


class Reads(Protocol):
    """What counts of a user."""

    @property
    def dags(self) -> frozenset[str]: ...
    def sees_logs(self, dag: str) -> bool: ...


class KnownTables(NamedTuple):
    """What of tables stands in a row."""

    declared: DeclaredLanding | None = None
    files: TableSeen | None = None


class LandingTables:
    """:param look: what is declared
    :param reader: looks at tables; ``None``: nobody does
    """

    def __init__(self, look: Callable[[], tuple[DeclaredLanding, ...]], reader: TableReader | None) -> None:
        self._look, self._reader = look, reader
        self._known: tuple[tuple[DeclaredLanding, ...], Mapping[tuple[str, str], DeclaredLanding]] = ((), {})

    def of(self, row: LandingRow, who: Reads) -> KnownTables:
        """What stands in its row."""
        found = self._declared(row, who.dags.__contains__)
        files = None if found is None or self._reader is None else self._reader.files(found)
        return KnownTables(found, files)

    def samples(self, row: LandingRow, who: Reads) -> SamplesAnswer:
        """The newest of its dead letters."""
        if self._reader is None or not self._reader.samples_allowed:
            return samples_of(None, SWITCHED_OFF)
        found = self._declared(row, who.dags.__contains__)
        own = self._declared(row, lambda dag: dag in who.dags and who.sees_logs(dag))
        if own is None:
            return samples_of(None, UNDECLARED if found is None else NO_RIGHT.format(found.dag))
        return samples_of(None, NO_TABLE) if not own.dead_letter_table else samples_of(self._reader.samples(own))

    def _declared(self, row: LandingRow, may: Callable[[str], bool]) -> DeclaredLanding | None:
        found = self._by_dag()
        of_dags = (found.get((row.name, dag)) for dag in sorted(row.dags) if row.state.landing)
        return next((d for d in of_dags if d is not None and d.connection and may(d.dag)), None)

    def _by_dag(self) -> Mapping[tuple[str, str], DeclaredLanding]:
        declared = self._look()
        if self._reader is not None:
            self._reader.about(declared)
        known, found = self._known
        if known is not declared:
            found = {(d.name, d.dag): d for d in reversed(declared)}
            self._known = declared, found
        return found
