# SPDX-License-Identifier: Apache-2.0
"""The compare-and-swap: read the table, decide, send one request, and read again until nothing is left to do.

Contract: each decision uses only the newest read, and its request asserts the state of that read. So of all processes
that decide on the same state, at most one is applied, however they retry, time out or resume. The caller chooses the
request (:mod:`~airflow_provider_lakecommit.iceberg.ledger.stage`): with the ledger and its tag, or for files of other
writers. After a rollback of the table, :func:`ledger_change` only makes a change that gives every entry a new epoch.

A read after the commit detects a catalog that accepts a commit with a tag and drops the tag. If the newest ledger was
written for a tag that is missing again, :func:`check_tags` tests the catalog before another one is written: with a tag
of its own that adds no snapshot and is removed again. So a landing that retries for days leaves one snapshot.

Invariants: **every** exception of a request leaves its outcome unknown until the table is read again (a conflict too: a
catalog or a proxy may answer a retry of a request that was applied). At most one attempt of a call is applied, because
the next decision reads its result. pyiceberg's own retry is not used: it rebases an append without checking what the
table has by then.

Failure story: a sent request is never undone and never guessed about (see
:mod:`airflow_provider_lakecommit.iceberg.ledger.outcome_lookup`). An interrupt (KeyboardInterrupt, a task's timeout) is
raised at once; the next attempt finds what it left. A kill between the two requests of :func:`check_tags` leaves the
tag :data:`PROBE`; nothing reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from airflow_provider_lakecommit.core import LedgerSection, kept_decisions
from airflow_provider_lakecommit.exceptions import CatalogError, LedgerError, TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import (
    Condition,
    LedgerState,
    ancestry,
    landing_snapshots,
    tag_name,
)
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import OutcomeLookup, RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.stage import Attempt, Change, Staging, remove_leftovers, stage
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord, to_summary

PROBE = "lakecommit-asks-for-tags"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapped(Generic[T]):
    """The result: this call's change if it is in the table, and the table after it."""

    metadata: TableMetadata
    requests: int
    landed: Change[T] | None = None
    snapshot_id: int | None = None

    @property
    def made(self) -> T | None:
        """Return what the change in the table is for the caller."""
        return self.landed.why if self.landed else None


def compare_and_swap(
    tables: Tables,
    identifier: str,
    branch: str,
    decide: Callable[[Table], Change[T] | None],
    retry_policy: RetryPolicy | None = None,
    *,
    staging: Staging = stage,
) -> Swapped[T]:
    """Change a table until ``decide`` returns ``None``, or one of its changes is in the table.

    :param decide: called with each read; ``None`` ends the call
    :param staging: writes the manifests of a change and makes its request
    :raises CommitUnknownError: a request was sent, and its outcome stayed unknown
    :raises CatalogError: the table or its storage was unreachable; nothing was sent
    :raises TableError: the table does not exist, pyiceberg cannot write to it, or the catalog keeps no tags
    :raises LakecommitError: the error of ``decide``
    """
    lookup = OutcomeLookup(tables=tables, identifier=identifier, retry_policy=retry_policy or RetryPolicy())
    sent: list[tuple[Attempt, Change[T]]] = []
    while True:
        table = lookup.load()
        after = table.metadata
        landed = _landed(after, branch, sent)
        change = None if landed else decide(table)
        if change is not None:
            attempt = _staged(lookup, partial(staging, table, branch, change))
            if attempt is None:
                continue
            sent.append((attempt, change))
            if (answer := _send(lookup, table, attempt)) is None:
                continue
            after, landed = answer, sent[-1]
        # If the tag existed before, the catalog keeps tags, and another client has dropped it.
        if landed is not None and landed[0].tag is not None and landed[0].tag_id is None:
            _check_tag(lookup, landed[0].tag, after)
        remove_leftovers(table.io, after, branch, [a for a, _ in sent if landed is None or a is not landed[0]])
        return Swapped(
            metadata=after,
            requests=lookup.requests,
            landed=landed and landed[1],
            snapshot_id=landed and landed[0].snapshot.snapshot_id,
        )


def ledger_change(
    identifier: str,
    state: LedgerState,
    record: SnapshotRecord,
    sections: tuple[LedgerSection, ...],
    why: T,
    files: tuple[DataFile, ...] = (),
    *,
    newest: bool = False,
) -> Change[T]:
    """Return a change after which the ledger has these entries.

    :param newest: the caller knows that nothing was rolled back and only the tag is missing
    :raises LedgerError: the table was rolled back, and not all entries get a new epoch first; a rollback takes rows
        from all of them
    """
    rolled_back = state.condition is Condition.ROLLED_BACK and not newest
    before = {s.epoch for s in state.sections} if rolled_back else ()
    if kept := [f"{s.landing} ({s.lane})" for s in sections if s.epoch in before]:
        raise LedgerError(
            "LC3037", f"{identifier}: {state.reason}; the epochs of {', '.join(kept)} must be renewed first: plan again"
        )
    with_decisions = replace(record, decisions=kept_decisions(state.decisions, record.decisions))
    return Change(summary=to_summary(with_decisions, sections), why=why, files=files)


def _staged(lookup: OutcomeLookup, write: Callable[[], Attempt]) -> Attempt | None:
    """Write an attempt; ``None`` if the storage is unreachable and the table must be read again."""
    if not lookup.may_send():
        raise lookup.gave_up()
    try:
        return write()
    except CatalogError:
        if not lookup.requests:
            raise
        if not lookup.wait():
            raise lookup.gave_up() from None
        return None


def _send(lookup: OutcomeLookup, table: Table, attempt: Attempt) -> TableMetadata | None:
    """Send a request; ``None`` while its outcome is unknown."""
    lookup.requests += 1
    try:
        after = lookup.tables.commit(table, attempt.requirements, attempt.updates)
    except Exception as e:
        lookup.ended_with(e)
    else:
        # An answer that does not show the snapshot is no proof of it.
        if after.snapshot_by_id(attempt.snapshot.snapshot_id) is not None:
            return after
    lookup.wait()
    return None


def _check_tag(lookup: OutcomeLookup, tag: str, after: TableMetadata) -> None:
    # The answer to a request may be incomplete; a read is not.
    if tag not in after.refs and tag not in lookup.load().metadata.refs:
        raise no_tags(lookup.tables, lookup.identifier, tag)


def _landed(
    metadata: TableMetadata, branch: str, sent: list[tuple[Attempt, Change[T]]]
) -> tuple[Attempt, Change[T]] | None:
    """Return this call's attempt that is on the branch."""
    line = {s.snapshot_id for s in ancestry(metadata, branch)} if sent else ()
    return next((one for one in sent if one[0].snapshot.snapshot_id in line), None)


def no_tags(tables: Tables, identifier: str, tag: str) -> TableError:
    """Return the error. Without the tag, every later read would find a rollback, and void what is pending."""
    return TableError(
        "LC3039",
        f"{identifier}: catalog {tables.name} accepted a commit that sets tag {tag}, but the table has no such tag: "
        "the catalog stores branches only. The tag marks the newest ledger, so nothing can be landed through this "
        "catalog. Use a catalog, or a release of it, that stores tags (Iceberg's snapshot references). Nothing is "
        "lost: the first run after that voids pending slices and continues",
    )


def check_tags(tables: Tables, identifier: str, state: LedgerState) -> None:
    """Check, before a missing tag is created, that the newest ledger was written with one.

    :raises TableError: it was, and the catalog keeps none
    :raises CatalogError: the catalog is unreachable
    """
    table = tables.load(identifier)
    newest = next(landing_snapshots(table.metadata, state.branch), None)
    if state.tag_id is not None or newest is None or newest.kind not in (SnapshotKind.EPOCH, SnapshotKind.ORIGIN):
        return
    own = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    tag = {"ref-name": PROBE, "snapshot-id": newest.snapshot_id, "type": SnapshotRefType.TAG}
    try:
        tables.commit(table, own, (SetSnapshotRefUpdate.model_validate(tag),))
    except Exception:
        # Another commit, or an unreachable catalog: creating the tag will report it.
        return
    table = tables.load(identifier)
    if PROBE not in table.metadata.refs:
        raise no_tags(tables, identifier, tag_name(state.branch))
    with suppress(Exception):
        tables.commit(table, own, (RemoveSnapshotRefUpdate.model_validate({"ref-name": PROBE}),))
