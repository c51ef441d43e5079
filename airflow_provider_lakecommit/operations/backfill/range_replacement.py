# SPDX-License-Identifier: Apache-2.0
"""Replace ranges of a landing in its tables: the preview, and the replacement itself.

Contract: :func:`replace_preview` writes nothing and returns for each table exactly what :func:`replace` then does, if
no one commits in between; a table with other files by then is read again. Each table is replaced in one snapshot of its
own; tables without the ranges are left alone. All tables are checked before the first one is changed. All heavy work
(reading, copying) is done before the first commit request, and after a lost race only the changed part is done again.

The number of rows must equal the ledger's. Fewer are refused unless the caller accepts it: others deleted them. More
are always refused: others added rows of the same records.

Failure story: :mod:`airflow_provider_lakecommit.iceberg.ledger.replace`. Copies are deleted if no request that names
them can be applied any more; after a request with an unknown outcome they stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from pyiceberg.table import Table

from airflow_provider_lakecommit.core import (
    Coverage,
    Decision,
    LedgerSection,
    Provenance,
    Share,
    past_shares,
    shares_of,
)
from airflow_provider_lakecommit.core.provenance import without
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import (
    Attempt,
    LedgerState,
    Removal,
    Replaced,
    ReplaceRequest,
    SnapshotKind,
    Swapped,
    epochs_of,
    is_due,
    landing_snapshots,
    read_ledger,
    replace_ranges,
    require_ledger,
    require_ranges,
)
from airflow_provider_lakecommit.landing import require_appends
from airflow_provider_lakecommit.operations.backfill.copier import Copier
from airflow_provider_lakecommit.operations.backfill.ranges import RowRanges
from airflow_provider_lakecommit.operations.backfill.survey import FoundFile, Survey

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePreview:
    """The current effect of a replacement on one table. ``epochs`` are those of the streams that have the ranges, by
    landing and stream. ``expected`` is the ledger's number of their rows.
    """

    table: str
    table_uuid: UUID
    epochs: Mapping[tuple[str, str], UUID]
    replaced: Replaced
    dropped_bytes: int = 0
    expected: int = 0
    snapshot_id: int | None = None

    @property
    def missing(self) -> int:
        """Return the number of landed rows that were not found."""
        return max(0, self.expected - self.replaced.rows)

    def __str__(self) -> str:
        r = self.replaced
        dropped = f"{r.dropped_files} files ({self.dropped_bytes} bytes) are dropped"
        rewritten = (
            f"{r.rewritten_files} files ({r.rewritten_bytes} bytes) are rewritten with {r.copied_rows} other rows"
        )
        return f"{self.table}: {r.rows} rows of {r.ranges}; {dropped}, {rewritten}"

    def request(self, session: LandingSession, commit_id: UUID, **more: Any) -> ReplaceRequest:
        return ReplaceRequest(
            table=self.table,
            table_uuid=self.table_uuid,
            landing=session.landing.name,
            epochs=self.epochs,
            commit_id=commit_id,
            coverage=self.replaced.ranges,
            branch=session.landing.branch,
            **more,
        )


class _Replacement:
    """The work of one table, kept over its scans. ``past`` is what earlier readings landed."""

    def __init__(self, session: LandingSession, name: str, loaded: Table, coverage: Coverage, *, hard: bool) -> None:
        self.landing, self.branch, self.name = session.landing.name, session.landing.branch, name
        self.coverage, self.hard = coverage, hard
        self._loaded = loaded
        self._attempts: list[Attempt] = []
        state = read_ledger(loaded.metadata, self.branch)
        self.shares = tuple(s for _, shares in self._shares(state) for s in shares)
        self.past = Coverage.union(s.part for section in state.sections for s in self._past(section))
        ranges = RowRanges.of_shares(name, self.shares)
        records = [r for r in landing_snapshots(loaded.metadata, self.branch) if r.kind is SnapshotKind.APPEND]
        # A replacement brings copies of rows of other ranges too.
        taken = Coverage.union(s.part for s in self.shares)
        self._survey = Survey(name, ranges, [r.snapshot_id for r in records if not r.ranges.overlaps(taken)])
        self._alongside: dict[tuple[int, Coverage], Survey] = {}
        self._copier = Copier(name, self.landing, ranges, uuid4())

    def find(self, loaded: Table) -> tuple[tuple[FoundFile, ...], int, dict[Key, tuple[Provenance, ...]]]:
        """Return the files with rows of the ranges, the expected number of rows, and by ledger entry the readings that
        landed the remaining rows.
        """
        state = read_ledger(loaded.metadata, self.branch)
        expected, left = 0, {}
        for section, shares in self._shares(state):
            alongside = [self._count_alongside(loaded, share) for share in shares]
            expected += sum(share.expected(rows) for share, rows in zip(shares, alongside, strict=True))
            left[section.key] = without(section.provenance, shares, alongside)
        return self._survey.scan(loaded, self.branch), expected, left

    def remove(self, loaded: Table) -> Removal:
        files, expected, left = self.find(loaded)
        replaced = _replaced(self.coverage, self.past, files)
        _check_count(self.name, self.coverage | self.past, replaced.rows, expected, fewer=True)
        copies = tuple(self._copier.copy(loaded, one) for one in files if not one.whole)
        paths = frozenset(one.file.file_path for one in files)
        return Removal(replaced=replaced, paths=paths, copies=copies, left=left)

    def prepare(self, request: ReplaceRequest) -> None:
        """Check a request and make its copies: the time of a commit request is for the catalog, not for gigabytes."""
        if is_due(request, self._loaded):
            self.remove(self._loaded)

    def commit(self, session: LandingSession, request: ReplaceRequest) -> Swapped[Removal]:
        outcome = replace_ranges(session.tables, request, self.remove, staging=self._attempts.append)
        self._copier.delete(self._loaded, {f.file_path for f in outcome.made.copies} if outcome.made else ())
        return outcome

    def end(self) -> None:
        if not self._attempts:
            self._copier.delete(self._loaded)

    def _shares(self, state: LedgerState) -> list[tuple[LedgerSection, tuple[Share, ...]]]:
        """Return the removed parts of readings, by ledger entry of the landing."""
        own = [s for s in state.sections if s.landing == self.landing]
        return [(s, (*shares_of(s.provenance, self.coverage & s.covered), *self._past(s))) for s in own]

    def _past(self, section: LedgerSection) -> tuple[Share, ...]:
        own = self.hard and section.landing == self.landing
        return past_shares(section.provenance, section.covered) if own else ()

    def _count_alongside(self, loaded: Table, share: Share) -> int:
        """Return the rows of the offsets that share one number of rows with the ranges."""
        if not share.uncounted or not share.entry.columns:
            return 0
        key = share.entry.generation, share.uncounted
        if key not in self._alongside:
            ranges = RowRanges(share.entry.columns, [key])
            self._alongside[key] = Survey(self.name, ranges)
        return sum(one.rows for one in self._alongside[key].scan(loaded, self.branch))


def replace_preview(session: LandingSession, coverage: Coverage, *, hard: bool = False) -> tuple[ReplacePreview, ...]:
    """Return the effect of removing ranges for each table that has some of them; writes nothing.

    :param hard: also remove rows of earlier readings of the landing's topics
    """
    found = (preview_of(session, table, coverage, hard=hard) for table in session.landing.tables)
    return tuple(one for one in found if one is not None)


def replace(
    session: LandingSession,
    coverage: Coverage,
    *,
    commit_id: UUID,
    previews: Sequence[ReplacePreview] | None = None,
    fewer: bool = False,
    hard: bool = False,
    decision: Decision | None = None,
) -> dict[str, Swapped[Removal]]:
    """Remove ranges from the landing's tables.

    :param commit_id: identifies the replacement: a repetition with the same id and ranges replaces nothing twice
    :param previews: of the survey; a ledger that was replaced since is refused. A repetition after a kill passes the
        first ones
    :param fewer: accept that the table has fewer rows of the ranges than were landed
    :param hard: as in :func:`replace_preview`
    """
    previewed = replace_preview(session, coverage, hard=hard) if previews is None else previews
    check_rows(previewed, fewer=fewer)
    requests = [p.request(session, commit_id, decision=decision) for p in previewed]
    return replace_all(session, requests, hard=hard)


def replace_all(
    session: LandingSession, requests: Sequence[ReplaceRequest], *, hard: bool = False
) -> dict[str, Swapped[Removal]]:
    """Perform the requests, table by table. All tables are checked, and all copies made, before the first one is
    changed.
    """
    with ExitStack() as stack:
        works = [_Replacement(session, r.table, session.tables.load(r.table), r.coverage, hard=hard) for r in requests]
        for work, request in zip(works, requests, strict=True):
            stack.callback(work.end)
            work.prepare(request)
        return {r.table: work.commit(session, r) for work, r in zip(works, requests, strict=True)}


def check_rows(previews: Sequence[ReplacePreview], *, fewer: bool) -> None:
    """:raises LedgerError: a table has more rows of the ranges than the ledger, or fewer, unless that is taken"""
    for p in previews:
        _check_count(p.table, p.replaced.ranges, p.replaced.rows, p.expected, fewer=fewer)


def _check_count(table: str, ranges: Coverage, rows: int, expected: int, *, fewer: bool) -> None:
    if rows > expected:
        raise LedgerError(
            "LC7229",
            f"{table}: {rows} rows claim to be of {ranges}, the ledger has {expected}. Another writer added rows "
            "with the same topic, partition, generation and offset, which cannot be distinguished from landed "
            "rows. Nothing is replaced. Delete the added rows, then try again",
        )
    if rows < expected and not fewer:
        raise LedgerError(
            "LC7230",
            f"{table} has {rows} rows of {ranges}, the ledger has {expected}: another writer deleted some. Nothing is "
            "replaced. If the deletion was intended, try again with `--fewer`",
        )


def preview_of(session: LandingSession, name: str, coverage: Coverage, *, hard: bool = False) -> ReplacePreview | None:
    """Return the effect of removing ranges from one table, or ``None``; raises as :func:`replace_preview`."""
    require_appends(session.landing, "replacing or deleting ranges")
    loaded, branch, landing = session.tables.find(name), session.landing.branch, session.landing.name
    if loaded is None:
        return None
    state = read_ledger(loaded.metadata, branch)
    require_ledger(state, name)
    taken = coverage & Coverage.union(s.covered for s in state.sections if s.landing == landing)
    require_ranges(name, landing, taken, state)
    work = _Replacement(session, name, loaded, taken, hard=hard)
    if not taken and not work.past:
        return None
    files, expected, _ = work.find(loaded)
    return ReplacePreview(
        table=name,
        table_uuid=loaded.metadata.table_uuid,
        epochs=epochs_of(state, landing, taken),
        replaced=_replaced(taken, work.past, files),
        dropped_bytes=sum(one.file.file_size_in_bytes for one in files if one.whole),
        expected=expected,
        snapshot_id=state.head_id,
    )


def _replaced(coverage: Coverage, past: Coverage, found: Sequence[FoundFile]) -> Replaced:
    parts = [one for one in found if not one.whole]
    return Replaced(
        ranges=coverage,
        past=past,
        rows=sum(one.rows for one in found),
        copied_rows=sum(one.live - one.rows for one in parts),
        deleted_rows=sum(one.file.record_count - one.live for one in found),
        dropped_files=len(found) - len(parts),
        rewritten_files=len(parts),
        rewritten_bytes=sum(one.file.file_size_in_bytes for one in parts),
    )
