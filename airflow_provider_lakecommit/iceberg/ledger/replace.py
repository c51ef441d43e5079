# SPDX-License-Identifier: Apache-2.0
"""Replace ranges: remove a table's rows of them and add others, or none, in one snapshot.

Contract: after :func:`replace_ranges` the table has exactly the rows of the request's slices for these ranges, and its
ledger has them too; readers never see both old and new rows, or neither. The caller finds what to remove on the head
that the request asserts (``remove``), so changes of other engines in the meantime are read. Rows of other landings are
never removed: the ranges are those of this landing in the ledger.

Repeating a request, from anywhere and at any time, replaces nothing twice: the snapshot's token, and after its expiry
the epochs and ranges of the ledger, show that it was done; a request for an older ledger is refused. So a request that
was delayed for days never removes newer rows.

Failure story: see :mod:`airflow_provider_lakecommit.iceberg.ledger.swap`. Errors of ``remove`` are raised unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid5

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.core import (
    BACKFILL,
    HISTORY,
    LAND,
    LIVE,
    RESET_OFFSETS,
    Coverage,
    Decision,
    Provenance,
    shares_of,
    token,
    unmarked,
)
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import (
    Condition,
    LedgerState,
    landing_snapshots,
    read_ledger,
    require_ledger,
)
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.overwrite import Rewrite
from airflow_provider_lakecommit.iceberg.ledger.replaced import REPLACED, Replaced, renewed_epoch, sections_after
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice, evaluate_slices, record_of_slices
from airflow_provider_lakecommit.iceberg.ledger.stage import Attempt, Change, stage
from airflow_provider_lakecommit.iceberg.ledger.summary import LogPoint, SnapshotKind
from airflow_provider_lakecommit.iceberg.ledger.swap import Swapped, compare_and_swap, ledger_change

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceRequest:
    """Ranges to replace in one table.

    :param table_uuid: the table in which they were found
    :param epochs: epochs of the landing's ledger entries that had some of the ranges then
    :param coverage: ranges to remove; all of them are in the ledger of this landing
    :param slices: replacements, of stream ``lane``; empty: only delete
    :param extra: further summary keys, without prefix
    :param decision: the user's decision, for the table's history
    """

    table: str
    table_uuid: UUID
    landing: str
    epochs: Mapping[Key, UUID]
    commit_id: UUID
    coverage: Coverage
    slices: tuple[StagedSlice, ...] = ()
    lane: str = LIVE
    branch: str = MAIN_BRANCH
    control_end: LogPoint | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    decision: Decision | None = None

    @property
    def landed(self) -> Coverage:
        """Return the ranges of the slices."""
        return Coverage.union(s.coverage for s in self.slices)

    @property
    def token(self) -> UUID:
        """Return the token of the snapshot that does this."""
        ids = [s.slice_id for s in self.slices]
        taken = ";".join(f"{p.topic_id}:{p.partition}:{r.start}:{r.end}" for p, r in self.coverage.items())
        return token(self.commit_id, self.table_uuid, [uuid5(self.commit_id, f"replace\x1f{taken}"), *ids])


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The effect of removing the ranges from one head: removed paths, and added copies without the ranges. ``left``
    has, by landing and stream, the readings that landed the remaining rows.
    """

    replaced: Replaced
    left: Mapping[Key, tuple[Provenance, ...]] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()
    copies: tuple[DataFile, ...] = ()


def replace_ranges(
    tables: Tables,
    request: ReplaceRequest,
    remove: Callable[[Table], Removal],
    *,
    staging: Callable[[Attempt], None],
    retry_policy: RetryPolicy | None = None,
) -> Swapped[Removal]:
    """Replace the ranges of the request that are not replaced yet.

    :param remove: finds on the head of the branch what to remove, and makes the copies
    :param staging: takes each attempt before it is sent
    :raises LedgerError: the ledger lacks some of the ranges, was recreated since they were found, or is missing; it
        would not take a slice; or rows of another topic of the same name cannot be distinguished
    :raises CommitUnknownError: a request was sent, and its outcome stayed unknown
    :raises CatalogError: the catalog or the storage was unreachable
    """

    def decide(loaded: Table) -> Change[Removal] | None:
        if not is_due(request, loaded):
            return None
        return _change(request, read_ledger(loaded.metadata, request.branch), remove(loaded))

    def staged(table: Table, branch: str, change: Change[Any]) -> Attempt:
        attempt = stage(table, branch, change)
        staging(attempt)
        return attempt

    return compare_and_swap(tables, request.table, request.branch, decide, retry_policy, staging=staged)


def is_due(request: ReplaceRequest, loaded: Table) -> bool:
    """Return True if a request has something to do on this head; False if it is done.

    :raises LedgerError: as :func:`replace_ranges`
    """
    metadata, state = loaded.metadata, read_ledger(loaded.metadata, request.branch)
    _check_table(request, metadata, state)
    if _is_done(request, metadata, state):
        return False
    _check_sections(request, state)
    require_ranges(request.table, request.landing, request.coverage, state)
    _check_slices(request, metadata, state)
    return True


def epochs_of(state: LedgerState, landing: str, coverage: Coverage) -> dict[Key, UUID]:
    """Return the epochs of the entries that have some of the ranges."""
    return {s.key: s.epoch for s in state.sections if s.landing == landing and s.covered.overlaps(coverage)}


def require_ranges(table: str, landing: str, coverage: Coverage, state: LedgerState) -> None:
    """Refuse ranges that a table lacks, or whose rows do not name their records.

    :raises LedgerError: names them and the remedy
    """
    covered = Coverage.union(s.covered for s in state.sections if s.landing == landing)
    if lacking := coverage - covered:
        raise LedgerError(
            "LC3022",
            f"the ledger of {table} (branch {state.branch}) does not have {lacking} of landing {landing}, and only "
            f"landed ranges can be replaced: `{HISTORY} SPEC --ledger` lists it",
        )
    own = [(s, coverage & s.covered) for s in state.sections if s.landing == landing]
    if nameless := Coverage.union(unmarked(shares_of(s.provenance, part), part) for s, part in own):
        named = sorted((covered - nameless).parts.items())
        ways = "; ".join(f"{p} {ranges}" for p, ranges in named) or "nothing"
        raise LedgerError(
            "LC3023",
            f"{table}: the rows of {nameless} do not say which record and which reading of the topic they are of. "
            "They were landed without the columns kafka_topic, kafka_partition, kafka_generation and kafka_offset, "
            "by another writer, or from another cluster. Only marked ranges can be replaced or deleted; those "
            f"of landing {landing} are {ways}. Name only those, or delete the rows with your engine and land their "
            f"ranges again with `{RESET_OFFSETS} SPEC --from OFFSETS --again`, or land into a new table",
        )


def _check_table(request: ReplaceRequest, metadata: TableMetadata, state: LedgerState) -> None:
    if metadata.table_uuid != request.table_uuid:
        raise LedgerError(
            "LC3024",
            f"{request.table} now has UUID {metadata.table_uuid}, but the ranges were read from "
            f"{request.table_uuid}: the table was dropped and recreated. Run the command again",
        )
    require_ledger(state, request.table)
    if state.condition is not Condition.PRESENT:
        raise LedgerError(
            "LC3025",
            f"{request.table}: its ledger is {state.condition}{f' ({state.reason})' if state.reason else ''}; "
            f"nothing was replaced in it. Run `{LAND} SPEC` to resolve this, then this command again",
        )


def _is_done(request: ReplaceRequest, metadata: TableMetadata, state: LedgerState) -> bool:
    """Return True by the token in the history, by the epochs that it gives, or if the stream has what others had."""
    own = [s for s in state.sections if s.landing == request.landing]
    name = request.token
    given = {renewed_epoch(name, s) for s in own}
    if any(s.epoch in given for s in own) or any(r.token == name for r in landing_snapshots(metadata, request.branch)):
        return True
    lane = state.section(request.landing, request.lane)
    if lane is None:
        return False
    landed, elsewhere = request.landed, Coverage.union(s.covered for s in own if s is not lane)
    return (
        bool(landed)
        and lane.key not in request.epochs
        and all(s.epoch == lane.epoch for s in request.slices)
        and not landed - lane.covered
        and not request.coverage & elsewhere
    )


def _check_sections(request: ReplaceRequest, state: LedgerState) -> None:
    if request.slices and state.section(request.landing, request.lane) is None:
        raise LedgerError(
            "LC3026",
            f"{request.table} has no ledger entry for stream {request.lane} of landing {request.landing}: it was "
            f"closed or never started; nothing was replaced. `{BACKFILL} SPEC --list` shows the open backfills",
        )
    now = epochs_of(state, request.landing, request.coverage)
    changed = sorted(lane for _, lane in {k for k, _ in now.items() ^ request.epochs.items()})
    if now and changed:
        raise LedgerError(
            "LC3027",
            f"{request.table}: stream {', '.join(changed)} of landing {request.landing} has other ranges or another "
            "epoch than before, so its rows may differ; nothing was replaced. Try again",
        )


def _check_slices(request: ReplaceRequest, metadata: TableMetadata, state: LedgerState) -> None:
    """Check that the ledger would take each slice if it lacked the ranges; the rest of a slice, of ranges that nothing
    has landed, is added with it.
    """
    if not request.slices:
        return
    emptied = tuple(
        replace(s, covered=s.covered - request.coverage) if s.landing == request.landing else s for s in state.sections
    )
    free = replace(state, sections=emptied)
    section = free.section(request.landing, request.lane)
    decided = evaluate_slices(request.slices, metadata, free, section, ()) if section is not None else None
    if decided is None or decided.refused:
        why = "; ".join(map(str, decided.refused)) if decided else "it has no such stream"
        raise LedgerError(
            "LC3028",
            f"{request.table}: nothing was replaced, since not all can be landed again: {why}. To read that anew, run "
            f"`{BACKFILL} SPEC --replace --name {request.lane}`",
        )


def _change(request: ReplaceRequest, state: LedgerState, removal: Removal) -> Change[Removal]:
    own, slices = (request.landing, request.lane), request.slices
    section = state.section(*own)
    record = record_of_slices(
        SnapshotKind.REPLACE,
        slices,
        branch=request.branch,
        landing=request.landing,
        lane=request.lane,
        token=request.token,
        commit_id=request.commit_id,
        spec_version=None if section is None else section.spec_version,
        control_end=request.control_end,
        extra={**request.extra, REPLACED: removal.replaced.to_text()},
        decisions=() if request.decision is None else (request.decision,),
    )
    sections = sections_after(state.sections, own, request.coverage, slices, request.token, removal.left)
    files = (*removal.copies, *(f for s in slices for f in s.files))
    change = ledger_change(request.table, state, record, sections, removal, files=files)
    return replace(change, rewrite=Rewrite(removed=removal.paths))
