# SPDX-License-Identifier: Apache-2.0
"""Find what a landing had published in a table that now has no record of it: a table that was dropped, recreated, or
rolled back to before the landing's first snapshot.

Contract: reads only. The sources are the control log, with slices that were reported with rows for the table, and the
newest ledger in the metadata. The result is what the source no longer has, or what is before the start of a new ledger:
it will not be read again.

Failure story: ranges that retention removed from the control topic are unknown. Reported, unpublished slices count as
reported: they may still be published if the table is restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_provider_lakecommit.core import (
    Coverage,
    LedgerSection,
    RangeSet,
    SliceReported,
    SourcePartition,
    TablePublished,
    Watermark,
    removed,
)
from airflow_provider_lakecommit.cycle import LandingSession


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBefore:
    """``published`` were in the table, ``reported`` were to come into it."""

    published: Coverage = field(default_factory=Coverage)
    reported: Coverage = field(default_factory=Coverage)

    def lost(self, marks: Mapping[SourcePartition, Watermark]) -> Coverage:
        """What is reported, and the source has no more."""
        return removed(self.reported, marks)

    def not_again(self, starts: Mapping[SourcePartition, int], marks: Mapping[SourcePartition, Watermark]) -> Coverage:
        """What else a ledger that begins there does not read."""
        parts = (self.published | (self.reported - self.lost(marks))).parts.items()
        return Coverage({p: s & RangeSet.of((0, starts[p])) if p in starts else s for p, s in parts})


def published_before(session: LandingSession, name: str, remembered: LedgerSection | None) -> PublishedBefore:
    """What this lane had put into a table.

    :param remembered: the newest ledger of the lane that the table's metadata know, if there is one
    :raises ControlTopicError: the control topic cannot be read
    """
    reported: list[Coverage] = []
    published: list[Coverage] = []
    for _, entries in session.all_entries():
        for e in entries:
            if isinstance(e, TablePublished) and e.table == name:
                published.append(e.coverage)
            elif isinstance(e, SliceReported) and (of := e.report.table(name)) is not None and of.rows:
                reported.append(e.report.coverage)
    known = Coverage() if remembered is None else remembered.covered
    had, there = Coverage.union(reported), Coverage.union(published) | known
    return PublishedBefore(published=(had & there) | known, reported=had - there)
