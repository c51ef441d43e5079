# SPDX-License-Identifier: Apache-2.0
"""The pending assertion of what a table holds, and its effect for display.

Contract: pure. It shows the offsets that are read again, those never read, and reported slices that would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.core import LAND, Coverage, LedgerSection, SourcePartition, Watermark, losses_text
from airflow_provider_lakecommit.iceberg import Condition, LedgerState


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertedTable:
    """The pending assertion for one table. ``before`` is its current ledger, ``announced`` the publications in the
    control log, ``reported`` the log's slices that are not published; ``others`` are entries of other landings that the
    named snapshot restores, ``old`` is the newest known entry. A new epoch would lose ``lost``, reported slices that
    cannot be read again; ``doubted`` describes unverified records that may hold more; ``endangered`` is the same of
    other landings, by the epochs of their entries. ``rows`` are the table's current rows, of all writers. The landing's
    other streams keep ``filled``, and lose ``removed``.
    """

    table: str
    source: str
    state: LedgerState
    section: LedgerSection
    before: Coverage
    announced: Coverage
    reported: Coverage = field(default_factory=Coverage)
    others: tuple[LedgerSection, ...] | None = None
    old: LedgerSection | None = None
    lost: tuple[str, ...] = ()
    doubted: str = ""
    endangered: Mapping[UUID, str] = field(default_factory=dict)
    rows: int | None = None
    filled: Coverage = field(default_factory=Coverage)
    removed: Coverage = field(default_factory=Coverage)

    @property
    def kept(self) -> LedgerSection | None:
        """Return the entry under its former epoch if the assertion equals the newest ledger: then its reported slices
        can still be published.
        """
        if self.old is None or self.state.condition is not Condition.CUT or self.old.covered != self.section.covered:
            return None
        return replace(self.section, epoch=self.old.epoch, control=self.old.control)

    @property
    def others_lost(self) -> tuple[str, ...]:
        """Return what others lose: restored entries keep their epochs, but those of a rolled back table cannot."""
        rolled_back = self.state.condition in (Condition.ROLLED_BACK, Condition.PICKED)
        return tuple(self.endangered.values()) if rolled_back else ()

    @property
    def loses(self) -> str:
        """Return the reported slices that would be lost."""
        own = () if self.kept is not None else self.own_lost
        return "; ".join((*own, *self.others_lost))

    @property
    def own_lost(self) -> tuple[str, ...]:
        """Return what this landing has reported and a new epoch would lose."""
        return tuple(filter(None, (losses_text(self.lost) if self.lost else "", self.doubted)))

    @property
    def again(self) -> Coverage:
        """Return what the ledger or the log has as landed and the assertion does not: read again, so duplicated if the
        rows exist.
        """
        return (self.before | self.announced) - self.section.covered - self.filled

    @property
    def never_read(self) -> Coverage:
        """Return what only this assertion has as landed: never read, so lost if the rows are missing."""
        return self.section.covered - self.before - self.announced - self.reported

    @property
    def unpublished(self) -> Coverage:
        """Return what the assertion has as landed and the log only as reported: lost if the rows are missing."""
        return (self.section.covered & self.reported) - self.before - self.announced

    @property
    def voided(self) -> Coverage:
        """Return what is reported and not landed by this assertion: read again under the new epoch."""
        return self.reported - self.section.covered - self.before if self.written is self.section else Coverage()

    @property
    def written(self) -> LedgerSection:
        """Return the entry to write: under the old epoch if a new one would lose something."""
        return (self.kept if self.own_lost else None) or self.section

    def lines(self) -> Iterator[str]:
        reason = f" ({self.state.reason})" if self.state.reason else ""
        yield f"{self.table}: ledger {self.state.condition}{reason}; asserted by {self.source}"
        if self.rows is not None:
            yield f"  has {self.rows} rows now, of all writers"
        for p in sorted(self.section.starts):
            yield f"  {p}: landed {self.section.covered[p]}, continues at {self.section.end(p)}"
        if again := self.again:
            yield f"  read AGAIN, though the ledger or the control log has it: {again}: duplicated if its rows exist"
        if never := self.never_read:
            yield f"  never read, though neither ledger nor log has it: {never}: lost if its rows are missing"
        if unpublished := self.unpublished:
            yield (
                f"  is REPORTED and not published, and never will be: {unpublished}: lost if its rows are missing; "
                f"if the ledger is in order, publish it with `{LAND}`"
            )
        if voided := self.voided:
            yield f"  voids reported slices, so they are read again: {voided}"
        for text in (*self.own_lost, *self.others_lost):
            yield f"  reported, not published, and no longer in the source: {text}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "from": self.source,
            "condition": str(self.state.condition),
            "reason": self.state.reason,
            "rows": self.rows,
            "lost": "; ".join(self.own_lost),
            "before": self.before.to_dict(),
            "announced": self.announced.to_dict(),
            "reported": self.reported.to_dict(),
            "attested": self.section.covered.to_dict(),
            "next": {str(p): self.section.end(p) for p in sorted(self.section.starts)},
            "read_again": self.again.to_dict(),
            "never_read": self.never_read.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """The pending assertions of a landing's tables, with the partitions that its source has."""

    tables: tuple[AssertedTable, ...]
    marks: Mapping[SourcePartition, Watermark]

    def lines(self) -> Iterator[str]:
        for t in self.tables:
            yield from t.lines()

    def to_dict(self) -> dict[str, Any]:
        return {"tables": [t.to_dict() for t in self.tables]}
