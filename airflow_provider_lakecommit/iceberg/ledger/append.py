# SPDX-License-Identifier: Apache-2.0
"""Publish slices: the only way by which rows get into a table.

Contract: after :func:`publish` every slice of the request is in the table exactly once (``published`` by this call, or
``already`` present), or is ``refused`` with the reason; one call publishes in one snapshot. Repeating a call with the
same slices, from anywhere and at any time, appends nothing twice.

Invariants: every slice is checked against the ledger of the very head that it is appended to; entries of other landings
and streams are repeated unchanged; the control position of the entry moves only if everything requested is in the
ledger then, so that no slice is lost to a position computed too early.

Failure story: see :mod:`airflow_provider_lakecommit.iceberg.ledger.swap`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.core import (
    LIVE,
    RESET_ASSERT,
    RESET_OFFSETS,
    ControlPosition,
    Decision,
    LedgerSection,
    newest_positions,
    token,
)
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import LedgerState, read_ledger, require_ledger
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import (
    AppendDecision,
    Refused,
    StagedSlice,
    evaluate_slices,
    record_of_slices,
    with_slices,
)
from airflow_provider_lakecommit.iceberg.ledger.stage import Change
from airflow_provider_lakecommit.iceberg.ledger.summary import LogPoint, SnapshotKind
from airflow_provider_lakecommit.iceberg.ledger.swap import compare_and_swap, ledger_change
from airflow_provider_lakecommit.iceberg.ledger.upsert_rule import UpsertRule, check_key

if TYPE_CHECKING:
    from airflow_provider_lakecommit.iceberg.ledger.delete_files import Superseded
    from airflow_provider_lakecommit.iceberg.ledger.supersede import Superseding


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """Slices to publish in one table.

    :param table_uuid: the table they were written for
    :param control: the entry's next control position, ``None`` to keep it
    :param control_end: end of the read control log
    :param record_bytes: the entry's next estimate, ``None`` to keep it
    :param spec_version: the entry's next spec version, ``None`` to keep it
    :param extra: further summary keys, without prefix
    :param kept: attempts whose ranges the source no longer has: see :func:`evaluate_slices`
    :param decisions: users' decisions in the log, for the table's history
    :param upsert: the rows supersede those of the same key, if it has columns; ``None`` for a table of dead letters
    """

    table: str
    table_uuid: UUID
    landing: str
    commit_id: UUID
    slices: tuple[StagedSlice, ...]
    lane: str = LIVE
    branch: str = MAIN_BRANCH
    control: ControlPosition | None = None
    control_end: LogPoint | None = None
    record_bytes: int | None = None
    spec_version: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[UUID] = frozenset()
    decisions: tuple[Decision, ...] = ()
    upsert: UpsertRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOutcome:
    """The result of a request. ``snapshot_id`` and ``token`` are of this call's snapshot, if it made one."""

    published: tuple[StagedSlice, ...]
    already: tuple[StagedSlice, ...]
    refused: tuple[Refused, ...]
    snapshot_id: int | None
    token: UUID | None
    requests_sent: int
    state: LedgerState
    metadata: TableMetadata


def publish(tables: Tables, request: AppendRequest, *, retry_policy: RetryPolicy | None = None) -> PublishOutcome:
    """Append the slices of the request that are not in the table yet.

    :raises LedgerError: the table has no ledger entry of this landing, was recreated, or has rows by another key
    :raises TableError: the table or its branch does not exist
    :raises CommitUnknownError: a request was sent, and its outcome stayed unknown
    :raises CatalogError: the catalog or the storage was unreachable; nothing was sent
    """
    last: list[AppendDecision] = []
    superseding = _superseding(request)

    def decide(loaded: Table) -> Change[AppendDecision] | None:
        metadata, state = loaded.metadata, read_ledger(loaded.metadata, request.branch)
        section = _section(request, metadata, state)
        key, order = request.upsert or ((), None)
        judgement = evaluate_slices(
            request.slices, metadata, state, section, request.kept, (*key, *([order] if order else ()))
        )
        last[:] = [judgement]
        if not judgement.accepted:
            return None
        if request.upsert is not None:
            # Another landing may have published its first rows since the plan.
            check_key(request.table, request.landing, key, state.sections)
        changes = any(s.files or s.tombstones for s in judgement.accepted)
        superseded = superseding.on(loaded, state, judgement.accepted) if superseding and changes else None
        return _change(request, metadata, state, section, judgement, superseded)

    swapped = compare_and_swap(tables, request.table, request.branch, decide, retry_policy)
    judgement = swapped.made or last[0]
    return PublishOutcome(
        published=judgement.accepted if swapped.landed else (),
        already=judgement.already,
        refused=judgement.refused,
        snapshot_id=swapped.snapshot_id,
        token=_token(request, swapped.metadata, judgement) if swapped.landed else None,
        requests_sent=swapped.requests,
        state=read_ledger(swapped.metadata, request.branch),
        metadata=swapped.metadata,
    )


def _superseding(request: AppendRequest) -> Superseding | None:
    if request.upsert is None or not request.upsert.key:
        return None
    # Loads Arrow, which appends do not need.
    from airflow_provider_lakecommit.iceberg.ledger.supersede import Superseding

    return Superseding(request.table, request.branch, request.landing, request.lane, request.upsert)


def _section(request: AppendRequest, metadata: TableMetadata, state: LedgerState) -> LedgerSection:
    if metadata.table_uuid != request.table_uuid:
        raise LedgerError(
            "LC3004",
            f"{request.table} now has UUID {metadata.table_uuid}, but its slices were written for "
            f"{request.table_uuid}: it was dropped and recreated. If it holds the landed rows, run `{RESET_ASSERT} "
            f"SPEC --from-log`; if not, set where it continues: `{RESET_OFFSETS} SPEC --from OFFSETS`",
        )
    require_ledger(state, request.table)
    section = state.section(request.landing, request.lane)
    if section is None:
        raise LedgerError(
            "LC3005",
            f"the ledger of {request.table} (branch {request.branch}) has no entry for stream {request.lane} of "
            f"landing {request.landing}: run the landing to create it, or `{RESET_OFFSETS} SPEC --from OFFSETS`",
        )
    return section


def _change(
    request: AppendRequest,
    metadata: TableMetadata,
    state: LedgerState,
    section: LedgerSection,
    judgement: AppendDecision,
    superseded: Superseded | None,
) -> Change[AppendDecision]:
    chosen = judgement.accepted
    upserted = {} if superseded is None else superseded.extra
    record = record_of_slices(
        SnapshotKind.APPEND,
        chosen,
        branch=request.branch,
        landing=request.landing,
        lane=request.lane,
        token=_token(request, metadata, judgement),
        commit_id=request.commit_id,
        spec_version=request.spec_version or section.spec_version,
        control_end=request.control_end,
        extra={**request.extra, **upserted},
        decisions=request.decisions,
    )
    others = (s for s in state.sections if s is not section)
    sections = (*others, _next(request, section, chosen, whole=not judgement.refused))
    files = tuple(f for s in chosen for f in s.files)
    change = ledger_change(request.table, state, record, sections, judgement, files=files)
    return replace(change, rewrite=superseded.rewrite if superseded else None)


def _token(request: AppendRequest, metadata: TableMetadata, judgement: AppendDecision) -> UUID:
    return token(request.commit_id, metadata.table_uuid, (s.slice_id for s in judgement.accepted))


def _next(
    request: AppendRequest, section: LedgerSection, chosen: Sequence[StagedSlice], *, whole: bool
) -> LedgerSection:
    read = ((r.span.partition, r.position) for s in chosen for r in s.spans if r.position is not None)
    return replace(
        with_slices(section, chosen),
        positions=newest_positions((*section.positions.items(), *read)),
        control=request.control if request.control and whole else section.control,
        record_bytes=section.record_bytes if request.record_bytes is None else request.record_bytes,
        spec_version=request.spec_version or section.spec_version,
        upsert_key=request.upsert.key if request.upsert else (),
    )
