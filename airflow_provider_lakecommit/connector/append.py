# SPDX-License-Identifier: Apache-2.0
"""Appending files that are not a landing's: the same compare-and-swap, without a ledger and without its tag.

Contract: nothing is appended but what ``decide`` chose on the look of this very turn, and the request states that look:
table, head, schema, partition spec. Of all who decide on one look at most one is applied. A landing that shares the
table sees a foreign snapshot.

Invariants: every exception of a request is an unknown outcome until the table has been looked at again; then the
request is found by its snapshot's id, or ``decide`` sees the files that it brought.

Failure story: as in :mod:`airflow_provider_lakecommit.committer.swap`. The manifests of a request that lost stay: with
no tag that only moves on, nothing tells that it can never be applied. They cost space only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.committer.outcome_lookup import OutcomeLookup, RetryPolicy
from airflow_provider_lakecommit.committer.stage import stage_untagged
from airflow_provider_lakecommit.iceberg.catalog import Tables

__all__ = ["Addition", "Appended", "append_foreign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """What one look calls for: files, and the summary of their snapshot."""

    files: tuple[DataFile, ...]
    summary: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """How it ended: the snapshot of this call and what it brought, if one is in the table."""

    snapshot_id: int | None
    addition: Addition | None
    requests: int


def append_foreign(
    tables: Tables,
    identifier: str,
    decide: Callable[[Table], Addition | None],
    *,
    branch: str = MAIN_BRANCH,
    retry_policy: RetryPolicy | None = None,
) -> Appended:
    """Append what ``decide`` wants, in one snapshot.

    :param decide: called with each look; ``None`` ends the call
    :raises CommitUnknownError: a request was sent and what became of it cannot be learned in time
    :raises CatalogError: the table or its storage could not be reached; nothing was sent
    :raises TableError: there is no such table, or pyiceberg cannot write to it
    """
    lookup = OutcomeLookup(tables=tables, identifier=identifier, retry_policy=retry_policy or RetryPolicy())
    sent: dict[int, Addition] = {}
    while True:
        table = lookup.look()
        landed = next((i for i in sent if table.metadata.snapshot_by_id(i) is not None), None)
        if landed is not None:
            return Appended(snapshot_id=landed, addition=sent[landed], requests=lookup.requests)
        addition = decide(table)
        if addition is None:
            return Appended(snapshot_id=None, addition=None, requests=lookup.requests)
        if not lookup.may_send():
            raise lookup.gave_up()
        attempt = stage_untagged(table, branch, addition.files, dict(addition.summary))
        sent[attempt.snapshot.snapshot_id] = addition
        lookup.requests += 1
        try:
            tables.commit(table, attempt.requirements, attempt.updates)
        except Exception as e:
            lookup.ended_with(e)
            lookup.wait()
