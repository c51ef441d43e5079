# SPDX-License-Identifier: Apache-2.0
"""A real SQL catalog whose commits go wrong on demand, in the ways that catalogs and networks do.

Without a fault it is that catalog; `test_append_catalog.py` holds both to one contract.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServerError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import TableRequirement, TableUpdate

Request = tuple[Table, tuple[TableRequirement, ...], tuple[TableUpdate, ...]]


class Fault(Enum):
    """What becomes of one commit request."""

    LYING_CONFLICT = auto()
    """Applied, then answered as a conflict: a retry of the transport met its own first try."""
    LOST_ANSWER = auto()
    """Applied, and the answer never came."""
    NOT_APPLIED = auto()
    """Not applied, answered with a server error."""
    CONFLICT = auto()
    """Not applied, answered as a conflict."""
    FALSE_SUCCESS = auto()
    """Not applied, answered as if it were, with the table as it was."""
    AWAY_AFTER = auto()
    """Applied, then the catalog is away until told otherwise."""
    ON_ITS_WAY = auto()
    """Not applied yet, and the caller gave up waiting; :meth:`FaultyCatalog.deliver` applies it."""


class FaultyCatalog(SqlCatalog):
    """`faults` are used up one per commit request; `away` makes every call fail; `before_commit` runs before each;
    commits of the tables `refused` fail; without `keeps_tags` every tag is dropped in silence.
    """

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **{k: v for k, v in properties.items() if k != "type"})
        self.faults: deque[Fault | None] = deque()
        self.on_its_way: list[Request] = []
        self.before_commit: Callable[[], None] = lambda: None
        self.away = False
        self.refused: dict[str, int] = {}
        """Tables, and how many of their commits were refused."""
        self.keeps_tags = True
        self.commits = 0

    def load_table(self, identifier: Any) -> Table:
        self._reach()
        return super().load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        self._reach()
        self.commits += 1
        self.before_commit()
        if (name := ".".join(table.name())) in self.refused:
            self.refused[name] += 1
            raise ServerError("500: this table is not to be written")
        if not self.keeps_tags:
            updates = tuple(u for u in updates if getattr(u, "type", None) != SnapshotRefType.TAG)
        fault = self.faults.popleft() if self.faults else None
        if fault is Fault.NOT_APPLIED:
            raise ServerError("500: try again later")
        if fault is Fault.CONFLICT:
            raise CommitFailedException("409: the table has changed")
        if fault is Fault.FALSE_SUCCESS:
            now = super().load_table(table.name())
            return CommitTableResponse(metadata=now.metadata, metadata_location=now.metadata_location)
        if fault is Fault.ON_ITS_WAY:
            self.on_its_way.append((table, requirements, updates))
            raise TimeoutError("read timed out")
        response = super().commit_table(table, requirements, updates)
        if fault is Fault.LYING_CONFLICT:
            raise CommitFailedException("409: the table has changed")
        if fault is Fault.LOST_ANSWER:
            raise CommitStateUnknownException("502: bad gateway")
        if fault is Fault.AWAY_AFTER:
            self.away = True
            raise ConnectionResetError("connection reset by peer")
        return response

    def deliver(self) -> None:
        """The oldest request that was on its way arrives."""
        SqlCatalog.commit_table(self, *self.on_its_way.pop(0))

    def _reach(self) -> None:
        if self.away:
            raise ConnectionRefusedError("connection refused")
