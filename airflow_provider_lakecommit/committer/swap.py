# SPDX-License-Identifier: Apache-2.0
"""The compare-and-swap: look, decide, send one request, look again, until the table says what was wanted.

Contract: nothing is decided on anything but the look of this very turn, and the request states what that look saw. So
of all who decide on the same look at most one is applied, whoever retries, times out or comes back from the dead. After
a rollback of the table only a change that gives every section a new epoch is sent.

Invariants: **every** exception of a request is an unknown outcome until the table has been looked at again (a conflict
too: a catalog, or a proxy before it, may answer a retry of a request that it has applied). At most one attempt of a
call lands, because what landed is in the look that the next one is decided on. pyiceberg's own retry is not used: it
rebases an append without asking what is in the table by then.

Failure story: what is sent is never taken back and never guessed about (see
:mod:`airflow_provider_lakecommit.committer.outcome_lookup`). An interrupt (KeyboardInterrupt, a task's timeout) passes
through at once; what it leaves is found by the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState, ancestry, read_ledger
from airflow_provider_lakecommit.committer.outcome_lookup import OutcomeLookup, RetryPolicy
from airflow_provider_lakecommit.committer.stage import Attempt, remove_leftovers, stage
from airflow_provider_lakecommit.committer.summary import SnapshotRecord, to_summary
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.exceptions import CatalogError, LedgerError
from airflow_provider_lakecommit.iceberg.catalog import Tables

__all__ = ["Change", "Swapped", "compare_and_swap"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """What one look calls for: a snapshot with these files and this ledger. ``why`` is for who decided it."""

    record: SnapshotRecord
    sections: tuple[LedgerSection, ...]
    why: T
    files: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapped(Generic[T]):
    """How it ended: the change of this call that is in the table, if one is, and the table after it."""

    state: LedgerState
    metadata: TableMetadata
    requests: int
    landed: Change[T] | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True, slots=True)
class _Sent(Generic[T]):
    attempt: Attempt
    change: Change[T]


def compare_and_swap(
    tables: Tables,
    identifier: str,
    branch: str,
    decide: Callable[[TableMetadata, LedgerState], Change[T] | None],
    retry_policy: RetryPolicy | None = None,
) -> Swapped[T]:
    """Bring a table to where ``decide`` wants nothing more, or one of its changes has landed.

    :param decide: called with each look; ``None`` ends the call
    :raises CommitUnknownError: a request was sent and what became of it cannot be learned in time
    :raises CatalogError: the table or its storage could not be reached; nothing was sent
    :raises LedgerError: the table was rolled back, and the change is not the new epoch that comes first
    :raises LakecommitError: whatever ``decide`` raises
    """
    lookup = OutcomeLookup(tables=tables, identifier=identifier, retry_policy=retry_policy or RetryPolicy())
    sent: list[_Sent[T]] = []
    while True:
        table = lookup.look()
        state = read_ledger(table.metadata, branch)
        found = _found(table.metadata, branch, sent)
        change = None if found else decide(table.metadata, state)
        if change is None:
            return _end(table.io, table.metadata, state, lookup.requests, sent, found)
        _check_epochs(identifier, state, change)
        attempt = _staged(lookup, table, state, change)
        if attempt is None:
            continue
        one = _Sent(attempt, change)
        sent.append(one)
        after = _send(lookup, table, attempt)
        if after is not None:
            return _end(table.io, after, read_ledger(after, branch), lookup.requests, sent, one)


def _check_epochs(identifier: str, state: LedgerState, change: Change[T]) -> None:
    """A rollback takes rows from all sections, so whatever is done first gives a new epoch to all of them."""
    if state.condition is not Condition.ROLLED_BACK:
        return
    before = {s.epoch for s in state.sections}
    if kept := [f"{s.landing} ({s.lane})" for s in change.sections if s.epoch in before]:
        raise LedgerError(
            f"{identifier}: {state.reason}; the epochs of {', '.join(kept)} are renewed before all else: plan again"
        )


def _staged(lookup: OutcomeLookup, table: Table, state: LedgerState, change: Change[T]) -> Attempt | None:
    """Write an attempt; ``None`` if the storage is away and another look is due."""
    if not lookup.may_send():
        raise lookup.gave_up()
    try:
        return stage(table, state, change.files, to_summary(change.record, change.sections))
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


def _found(metadata: TableMetadata, branch: str, sent: list[_Sent[T]]) -> _Sent[T] | None:
    """The attempt of ours that is on the branch."""
    if not sent:
        return None
    line = {s.snapshot_id for s in ancestry(metadata, branch)}
    return next((s for s in sent if s.attempt.snapshot.snapshot_id in line), None)


def _end(
    io: FileIO,
    metadata: TableMetadata,
    state: LedgerState,
    requests: int,
    sent: list[_Sent[T]],
    landed: _Sent[T] | None,
) -> Swapped[T]:
    remove_leftovers(io, metadata, state, [s.attempt for s in sent if s is not landed])
    return Swapped(
        state=state,
        metadata=metadata,
        requests=requests,
        landed=landed.change if landed else None,
        snapshot_id=landed.attempt.snapshot.snapshot_id if landed else None,
    )
