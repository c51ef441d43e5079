# SPDX-License-Identifier: Apache-2.0
"""The compare-and-swap: look, decide, send one request, look again, until the table says what was wanted.

Contract: nothing is decided on anything but the look of this very turn, and the request states what that look saw. So
of all who decide on the same look at most one is applied, whoever retries, times out or comes back from the dead. How
a request is made is the caller's choice (:mod:`~airflow_provider_lakecommit.committer.stage`): with the ledger and its
tag, or for files that are not a landing's. After a rollback of the table :func:`ledger_change` only makes a change that
gives every section a new epoch.

Invariants: **every** exception of a request is an unknown outcome until the table has been looked at again (a conflict
too: a catalog, or a proxy before it, may answer a retry of a request that it has applied). At most one attempt of a
call lands, because what landed is in the look that the next one is decided on. pyiceberg's own retry is not used: it
rebases an append without asking what is in the table by then.

Failure story: what is sent is never taken back and never guessed about (see
:mod:`airflow_provider_lakecommit.committer.outcome_lookup`). An interrupt (KeyboardInterrupt, a task's timeout) passes
through at once; what it leaves is found by the next attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState, ancestry
from airflow_provider_lakecommit.committer.outcome_lookup import OutcomeLookup, RetryPolicy
from airflow_provider_lakecommit.committer.stage import Attempt, Staging, remove_leftovers, stage
from airflow_provider_lakecommit.committer.summary import SnapshotRecord, to_summary
from airflow_provider_lakecommit.committer.tags import no_tags
from airflow_provider_lakecommit.core import LedgerSection, kept_decisions
from airflow_provider_lakecommit.exceptions import CatalogError, LedgerError
from airflow_provider_lakecommit.iceberg import Tables

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """What one look calls for: a snapshot with these files and this summary. ``why`` is for who decided it."""

    summary: Mapping[str, str]
    why: T
    files: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapped(Generic[T]):
    """How it ended: the change of this call that is in the table, if one is, and the table after it."""

    metadata: TableMetadata
    requests: int
    landed: Change[T] | None = None
    snapshot_id: int | None = None


def compare_and_swap(
    tables: Tables,
    identifier: str,
    branch: str,
    decide: Callable[[Table], Change[T] | None],
    retry_policy: RetryPolicy | None = None,
    *,
    staging: Staging = stage,
) -> Swapped[T]:
    """Bring a table to where ``decide`` wants nothing more, or one of its changes has landed.

    :param decide: called with each look; ``None`` ends the call
    :param staging: writes the manifests of a change and makes its request
    :raises CommitUnknownError: a request was sent and what became of it cannot be learned in time
    :raises CatalogError: the table or its storage could not be reached; nothing was sent
    :raises TableError: there is no such table, pyiceberg cannot write to it, or the catalog keeps no tags
    :raises LakecommitError: whatever ``decide`` raises
    """
    lookup = OutcomeLookup(tables=tables, identifier=identifier, retry_policy=retry_policy or RetryPolicy())
    sent: list[tuple[Attempt, Change[T]]] = []
    while True:
        table = lookup.load()
        after = table.metadata
        landed = _landed(after, branch, sent)
        change = None if landed else decide(table)
        if change is not None:
            attempt = _staged(lookup, partial(staging, table, branch, change.files, change.summary))
            if attempt is None:
                continue
            sent.append((attempt, change))
            if (answer := _send(lookup, table, attempt)) is None:
                continue
            after, landed = answer, sent[-1]
        # Where the tag was there before, the catalog keeps tags, and who dropped it meanwhile is somebody else.
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
    """A change after which the ledger has these sections.

    :param newest: the caller knows that nothing was rolled back, only the tag is gone
    :raises LedgerError: the table was rolled back, and this is not the new epoch of all sections that comes first, as a
        rollback takes rows from all of them
    """
    rolled_back = state.condition is Condition.ROLLED_BACK and not newest
    before = {s.epoch for s in state.sections} if rolled_back else ()
    if kept := [f"{s.landing} ({s.lane})" for s in sections if s.epoch in before]:
        raise LedgerError(
            "LC3037",
            f"{identifier}: {state.reason}; the epochs of {', '.join(kept)} must be renewed first: plan again",
        )
    with_decisions = replace(record, decisions=kept_decisions(state.decisions, record.decisions))
    return Change(summary=to_summary(with_decisions, sections), why=why, files=files)


def _staged(lookup: OutcomeLookup, write: Callable[[], Attempt]) -> Attempt | None:
    """Write an attempt; ``None`` if the storage is away and another look is due."""
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
    # An answer to a request need not tell all; a look does.
    if tag not in after.refs and tag not in lookup.load().metadata.refs:
        raise no_tags(lookup.tables, lookup.identifier, tag)


def _landed(
    metadata: TableMetadata, branch: str, sent: list[tuple[Attempt, Change[T]]]
) -> tuple[Attempt, Change[T]] | None:
    """The attempt of ours that is on the branch."""
    line = {s.snapshot_id for s in ancestry(metadata, branch)} if sent else ()
    return next((one for one in sent if one[0].snapshot.snapshot_id in line), None)
