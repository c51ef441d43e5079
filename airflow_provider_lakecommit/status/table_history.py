# SPDX-License-Identifier: Apache-2.0
"""What a table tells of itself, snapshot by snapshot, and what may be found of it: the values of `verify`.

Contract: plain values, made by :mod:`~airflow_provider_lakecommit.status.history` and judged by
:mod:`~airflow_provider_lakecommit.status.verify`; nothing is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from airflow_provider_lakecommit.committer import SnapshotRecord
from airflow_provider_lakecommit.core import Counts, LedgerSection

__all__ = ["AddedFile", "Finding", "LandingSnapshot", "Sections", "Severity", "TableHistory"]

Sections = Mapping[tuple[str, str], LedgerSection]


class Severity(StrEnum):
    """How much a finding says."""

    WRONG = "wrong"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is off, or worth knowing."""

    level: Severity
    table: str
    text: str
    snapshot_id: int | None = None

    def __str__(self) -> str:
        where = f"{self.table} snapshot {self.snapshot_id}" if self.snapshot_id is not None else self.table
        return f"{self.level}: {where}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A data file that a snapshot added."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingSnapshot:
    """What a snapshot of a landing says of itself, and the files that it really added and ``removed``."""

    record: SnapshotRecord
    sections: Sections
    files: tuple[AddedFile, ...] = ()
    removed: tuple[AddedFile, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.record.landing, self.record.lane

    @property
    def counts(self) -> Counts:
        return self.record.accounting.total


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """One table as it tells its own story. ``whole`` is false where the oldest landing snapshots were expired;
    ``taken_out`` are the rows of landings that only snapshots beside the branch have, and no ledger on it knows;
    ``fewer`` how many rows other writers took out; ``absent``: there is no such table.
    """

    table: str
    snapshots: tuple[LandingSnapshot, ...]
    whole: bool
    head: tuple[str, ...] = ()
    problems: tuple[Finding, ...] = ()
    taken_out: Mapping[str, int] = field(default_factory=dict)
    fewer: int = 0
    absent: bool = False
