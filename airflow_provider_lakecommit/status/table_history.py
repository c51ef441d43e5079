# SPDX-License-Identifier: Apache-2.0
"""The history of a table, snapshot by snapshot, and the findings about it: the values of `verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_provider_lakecommit.core import Counts, total_of
from airflow_provider_lakecommit.iceberg import SnapshotRecord
from airflow_provider_lakecommit.status.lanes import Sections


class Severity(StrEnum):
    """The severity of a finding."""

    WRONG = "wrong"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, or note."""

    level: Severity
    table: str
    text: str
    snapshot_id: int | None = None

    def __str__(self) -> str:
        where = f"{self.table} snapshot {self.snapshot_id}" if self.snapshot_id is not None else self.table
        return f"{self.level}: {where}: {self.text}"


def wrong_in(table: str, text: str, snapshot_id: int | None = None) -> Finding:
    """Return a broken promise, of one snapshot or of the whole table."""
    return Finding(level=Severity.WRONG, table=table, snapshot_id=snapshot_id, text=text)


def note_on(table: str, text: str, snapshot_id: int | None = None) -> Finding:
    return Finding(level=Severity.NOTE, table=table, snapshot_id=snapshot_id, text=text)


AddedFile = tuple[str, int]
"""The path and the rows of a data file that a snapshot added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingSnapshot:
    """The record of a landing's snapshot, and the files that it really added and ``removed``."""

    record: SnapshotRecord
    sections: Sections
    files: tuple[AddedFile, ...] = ()
    removed: tuple[AddedFile, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.record.landing, self.record.lane

    @property
    def counts(self) -> Counts:
        return total_of(self.record.accounting.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """The history of one table up to ``head_id``. ``whole`` is false if the oldest landing snapshots were expired;
    ``taken_out`` are the rows of landings that only snapshots outside the branch have, without a ledger on it;
    ``fewer`` how many rows other writers removed; ``absent``: the table does not exist; ``live`` is the number of live
    rows by the summary of the head, ``None`` if another writer may have changed rows.
    """

    table: str
    snapshots: tuple[LandingSnapshot, ...]
    whole: bool
    head_id: int | None = None
    head: tuple[str, ...] = ()
    problems: tuple[Finding, ...] = ()
    taken_out: Mapping[str, int] = field(default_factory=dict)
    fewer: int = 0
    absent: bool = False
    live: int | None = None
