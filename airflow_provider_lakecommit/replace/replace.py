# SPDX-License-Identifier: Apache-2.0
"""Ranges of a landing replaced in its tables: the numbers before, and the step itself.

Contract: :func:`replace_preview` writes nothing and says of each table what :func:`replace` then does there, number by
number, if nobody commits in between; who has other files by then is looked at again. Each table is replaced in one
snapshot of its own; tables that have nothing of the ranges are left alone. All that is heavy (reading, copying) is done
before the first commit request, and only what changed is done again after a request that lost.

A table that holds fewer rows of the ranges than its history says were landed is refused unless the caller takes it:
they were deleted by others, or they do not say which records they are of, and then they would stay beside the new ones.

Failure story: :mod:`airflow_provider_lakecommit.committer.replace`. Copies are deleted where no request that names them
can be applied any more; after a request of which nobody knows they stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.committer.checks import StagedSlice
from airflow_provider_lakecommit.committer.ledger import landing_snapshots, read_ledger, require_ledger
from airflow_provider_lakecommit.committer.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.committer.replace import (
    Removal,
    ReplaceOutcome,
    ReplaceRequest,
    epochs_of,
    replace_ranges,
    require_ranges,
)
from airflow_provider_lakecommit.committer.replaced import Replaced, replaced_of
from airflow_provider_lakecommit.committer.stage import Attempt
from airflow_provider_lakecommit.committer.summary import LogPoint, SnapshotKind
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.routing import Role, role_of
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.replace.copier import Copier
from airflow_provider_lakecommit.replace.ranges import RecordColumns, RowRanges
from airflow_provider_lakecommit.replace.survey import FoundFile, Survey
from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["ReplacePreview", "check_rows", "preview_of", "replace", "replace_preview"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePreview:
    """What a replacement does in one table, as it is now. ``epochs`` are those of the lanes that have the ranges, by
    landing and lane. ``expected`` are the rows that by the table's history were landed of them at least: some of that
    history may be expired, and a snapshot may have landed other ranges too.
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
        """Rows that were landed and that no row says to be."""
        return max(0, self.expected - self.replaced.rows)

    def __str__(self) -> str:
        r = self.replaced
        dropped = f"{r.dropped_files} files ({self.dropped_bytes} bytes) are dropped"
        rewritten = (
            f"{r.rewritten_files} files ({r.rewritten_bytes} bytes) are rewritten with {r.copied_rows} other rows"
        )
        return f"{self.table}: {r.rows} rows of {r.ranges}; {dropped}, {rewritten}"


@dataclass(slots=True, kw_only=True)
class _Replacement:
    """The work of one table, kept over looks."""

    table: str
    branch: str
    coverage: Coverage
    survey: Survey
    copier: Copier
    attempts: list[Attempt] = field(default_factory=list)

    def find(self, loaded: Table) -> tuple[FoundFile, ...]:
        return self.survey.look(loaded, self.branch)

    def remove(self, loaded: Table) -> Removal:
        found = self.find(loaded)
        copies = tuple(self.copier.copy(loaded, one) for one in found if not one.whole)
        return Removal(
            replaced=_replaced(self.coverage, found),
            paths=frozenset(one.file.file_path for one in found),
            copies=copies,
        )


def replace_preview(session: LandingSession, coverage: Coverage) -> tuple[ReplacePreview, ...]:
    """What taking ranges out would do, of each table that has some of them; nothing is written.

    :raises LedgerError: a ledger is gone, or rows of another topic of the same name cannot be told from these
    :raises TableError: a table has no columns that say which rows to take, or files that cannot be handled
    :raises CatalogError: the catalog or the storage cannot be reached
    """
    found = (preview_of(session, d.table, coverage) for d in session.landing.destinations)
    return tuple(one for one in found if one is not None)


def replace(
    session: LandingSession,
    coverage: Coverage,
    files: Mapping[str, Sequence[StagedSlice]] | None = None,
    *,
    commit_id: UUID,
    lane: str = LIVE,
    previews: Sequence[ReplacePreview] | None = None,
    fewer: bool = False,
    control_end: LogPoint | None = None,
    extra: Mapping[str, str] | None = None,
    decision: Decision | None = None,
    retry_policy: RetryPolicy | None = None,
) -> dict[str, ReplaceOutcome]:
    """Take ranges out of the landing's tables, and put slices in their place.

    :param files: by table, the slices that come in place; none: the rows are deleted
    :param commit_id: names the replacement: who asks again by the same id, for the same ranges, replaces nothing twice
    :param lane: whose the slices are
    :param previews: what was looked up; a ledger that was made anew since is refused. Who repeats a call after a death
        passes those of the first
    :param fewer: take it that the table has fewer rows of the ranges than were landed
    :param control_end: how far the control log was read, so that a snapshot with slices is announced once
    :param extra: further summary keys, without prefix
    :param decision: of the person who asks
    :raises LedgerError: see :func:`~airflow_provider_lakecommit.committer.replace.replace_ranges`
    :raises TableError: as :func:`replace_preview`
    :raises CommitUnknownError: a request was sent and what became of it cannot be learned in time
    :raises CatalogError: the catalog or the storage cannot be reached
    """
    seen = replace_preview(session, coverage) if previews is None else previews
    if not fewer:
        check_rows(seen)
    return {
        p.table: _replace_in(
            session,
            ReplaceRequest(
                table=p.table,
                table_uuid=p.table_uuid,
                landing=session.landing.name,
                epochs=p.epochs,
                commit_id=commit_id,
                coverage=p.replaced.ranges,
                slices=tuple((files or {}).get(p.table, ())),
                lane=lane,
                branch=session.landing.branch,
                control_end=control_end,
                extra=extra or {},
                decision=decision,
            ),
            retry_policy,
        )
        for p in seen
    }


def check_rows(previews: Sequence[ReplacePreview]) -> None:
    """:raises LedgerError: a table has fewer rows of the ranges than were landed"""
    if short := [p for p in previews if p.missing]:
        raise LedgerError(
            "; ".join(
                f"{p.table} has {p.replaced.rows} rows of {p.replaced.ranges}, {p.expected} were landed" for p in short
            )
            + ": others deleted some, or some do not say which records they are of and would stay; nothing was "
            "replaced. If they were deleted, say so (`--fewer`) and ask again"
        )


def preview_of(session: LandingSession, name: str, coverage: Coverage) -> ReplacePreview | None:
    """What taking ranges out of one table would do; ``None``: it has nothing of them. Raises as
    :func:`replace_preview`.
    """
    loaded, branch, landing = session.tables.find(name), session.landing.branch, session.landing.name
    if loaded is None:
        return None
    state = read_ledger(loaded.metadata, branch)
    require_ledger(state, name)
    taken = coverage & Coverage.union(s.covered for s in state.sections if s.landing == landing)
    if not taken:
        return None
    require_ranges(name, landing, taken, loaded.metadata, state)
    found = _replacement(session, name, loaded, taken).find(loaded)
    return ReplacePreview(
        table=name,
        table_uuid=loaded.metadata.table_uuid,
        epochs=epochs_of(state, landing, taken),
        replaced=_replaced(taken, found),
        dropped_bytes=sum(one.file.file_size_in_bytes for one in found if one.whole),
        expected=_expected(loaded.metadata, branch, session.landing, _role(session, name), taken),
        snapshot_id=state.head_id,
    )


def _replace_in(session: LandingSession, request: ReplaceRequest, retry_policy: RetryPolicy | None) -> ReplaceOutcome:
    loaded = session.tables.load(request.table)
    work = _replacement(session, request.table, loaded, request.coverage)
    try:
        # Before the first request is due: its time is for the catalog, not for gigabytes that are copied.
        if loaded.metadata.table_uuid == request.table_uuid and _has(loaded, request):
            work.remove(loaded)
        outcome = replace_ranges(
            session.tables, request, work.remove, staging=work.attempts.append, retry_policy=retry_policy
        )
    except BaseException:
        if not work.attempts:
            work.copier.delete(loaded)
        raise
    work.copier.delete(loaded, {f.file_path for f in outcome.copies})
    return outcome


def _has(loaded: Table, request: ReplaceRequest) -> bool:
    """Does the ledger have the ranges still, where they were looked up?"""
    state = read_ledger(loaded.metadata, request.branch)
    return epochs_of(state, request.landing, request.coverage) == request.epochs


def _replacement(session: LandingSession, name: str, loaded: Table, coverage: Coverage) -> _Replacement:
    landing = session.landing
    ranges = RowRanges(RecordColumns.of(name, loaded.schema(), _role(session, name)), coverage)
    records = [r for r in landing_snapshots(loaded.metadata, landing.branch) if r.publishes]
    own = [r.snapshot_id for r in records if r.landing == landing.name and r.ranges.overlaps(coverage)]
    # A replacement brings copies of rows of other ranges too.
    others = [r.snapshot_id for r in records if r.kind is SnapshotKind.APPEND and not r.ranges.overlaps(coverage)]
    return _Replacement(
        table=name,
        branch=landing.branch,
        coverage=coverage,
        survey=Survey(name, ranges, own, others),
        copier=Copier(name, ranges, uuid4()),
    )


def _role(session: LandingSession, name: str) -> Role:
    return role_of(session.landing.destinations, name)


def _replaced(coverage: Coverage, found: Sequence[FoundFile]) -> Replaced:
    parts = [one for one in found if not one.whole]
    return Replaced(
        ranges=coverage,
        rows=sum(one.rows for one in found),
        copied_rows=sum(one.live - one.rows for one in parts),
        deleted_rows=sum(one.file.record_count - one.live for one in found),
        dropped_files=len(found) - len(parts),
        rewritten_files=len(parts),
        rewritten_bytes=sum(one.file.file_size_in_bytes for one in parts),
    )


def _expected(metadata: TableMetadata, branch: str, landing: Landing, role: Role, coverage: Coverage) -> int:
    """How many rows were landed of the ranges at least, by the snapshots that are left. Of one that landed other ranges
    too, each record beside them may have been a row; where a record may be more rows than one nothing is known.
    """
    one_each = role is Role.DEAD_LETTERS or landing.one_row_each
    least, left = 0, coverage
    for record in landing_snapshots(metadata, branch, landing=landing.name):
        inside = record.ranges & left
        beside = len(record.ranges) - len(inside)
        if inside and (one_each or not beside):
            least += max(0, record.rows - beside)
        left = left - inside
        if (replaced := replaced_of(record)) is not None:
            left = left - replaced.ranges
    return least
