# SPDX-License-Identifier: Apache-2.0
"""Measure how far a landing's commits are behind, for admission.

Failures are counted by their evidence in the log, per table, since the last COMMIT_COMPLETE. *Pending* in a table are
reported but unpublished slices with files for it, and those of open windows, estimated by earlier reports.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from airflow_provider_lakecommit.core.debt import TableDebt
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Missing
from airflow_provider_lakecommit.core.state import FailedCycle, LandingState

UNKNOWN_RECORD_BYTES = 1024
"""Assumed size until records have landed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Unpublished work of one table. ``files`` and ``bytes`` of unreported slices are estimates."""

    slices: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """All that admission depends on.

    :param failed: per table, the last cycles in a row whose commits failed for it
    :param open_cycles: windows that are, or may be, worked on
    :param deadline: when the first of their claims ends
    :param slice_files: files per slice and table, by earlier reports
    :param record_bytes: bytes of a source record, by earlier landings
    :param holes: unread offsets that pending slices wait for
    :param windows_failed: failed cycles that had a window
    :param since_window: cycles opened since the newest with a window
    :param debts: how much each table needs compaction
    """

    failed: Mapping[str, tuple[FailedCycle, ...]]
    open_cycles: int = 0
    deadline: datetime | None = None
    pending: Mapping[str, Pending] = field(default_factory=dict)
    slice_files: int = 1
    record_bytes: int = UNKNOWN_RECORD_BYTES
    holes: int = 0
    windows_failed: int = 0
    since_window: int = 0
    debts: Mapping[str, TableDebt] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        """Return the failed cycles in a row of the table with fewest."""
        return min((len(row) for row in self.failed.values()), default=0)

    @property
    def last_reason(self) -> str:
        return next((row[-1].reason for row in self.failed.values() if row), "")


def pressure_of(
    landing_state: LandingState,
    now: datetime,
    *,
    released: Collection[UUID] = (),
    record_bytes: int = 0,
    holes: int = 0,
    debts: Mapping[str, TableDebt] = MappingProxyType({}),
) -> Pressure:
    """Return the pressure of a state.

    :param released: cycles whose claims are about to end
    :param record_bytes: size of landed records; 0 if unknown
    """
    live = [c for c in landing_state.cycles.values() if c.live(now) and c.cycle.commit_id not in released]
    at_work = [(c, slices) for c in live if (slices := c.unfinished)]
    slice_files, known = _slice_files(landing_state), record_bytes or UNKNOWN_RECORD_BYTES
    pending = {}
    for table in landing_state.ledgers:
        staged = [a for a in landing_state.accepted[table] if a.file_count(table)]
        coming = [s for _, slices in at_work for s in slices if table in s.tables]
        pending[table] = Pending(
            slices=len(staged) + len(coming),
            files=sum(a.file_count(table) for a in staged) + slice_files * len(coming),
            bytes=sum(a.report.bytes for a in staged) + known * sum(len(s) for s in coming),
        )
    failed = {table: landing_state.failed_in_a_row(table) for table in landing_state.ledgers}
    opened = sorted(landing_state.cycles.values(), key=lambda c: c.offset)
    with_window = [n for n, c in enumerate(opened) if c.plan.slices]
    return Pressure(
        failed=failed,
        open_cycles=len(at_work),
        deadline=min((c.ends(now) for c, _ in at_work), default=None),
        pending=pending,
        slice_files=slice_files,
        record_bytes=known,
        holes=holes,
        windows_failed=sum(f.window for f in min(failed.values(), key=len, default=())),
        debts=debts,
        since_window=len(opened) - 1 - with_window[-1] if with_window else len(opened),
    )


def _slice_files(landing_state: LandingState) -> int:
    """Return the files per slice, of the table with most."""
    reports = {a.report.attempt: a.report for some in landing_state.accepted.values() for a in some}
    reports.update({r.slice.report.attempt: r.slice.report for r in landing_state.redundant})
    files: dict[str, list[int]] = {}
    for report in reports.values():
        for t in report.tables:
            files.setdefault(t.table, []).append(t.files)
    return max(1, *(math.ceil(sum(n) / len(n)) for n in files.values())) if files else 1


def only_holes(missing: Missing, landing_state: LandingState) -> Missing:
    """Return the missing ranges that pending slices of the same tables wait for."""
    reach: dict[str, dict[SourcePartition, int]] = {}
    for table in landing_state.ledgers:
        ends = reach.setdefault(table, {})
        for a in landing_state.accepted[table]:
            for p, r in a.coverage.items() if a.file_count(table) else ():
                ends[p] = max(ends.get(p, 0), r.end)
    ranges = {}
    for tables, coverage in missing.ranges.items():
        below = Coverage.of((p, OffsetRange(0, end)) for t in tables for p, end in reach.get(t, {}).items())
        if found := coverage & below:
            ranges[tables] = found
    return replace(missing, ranges=ranges)
