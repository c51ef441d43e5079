# SPDX-License-Identifier: Apache-2.0
"""The one commit by which a landing changes the schema of its data table.

The new schema and a landing snapshot without files go in one request with all requirements of an append
(:mod:`~airflow_provider_lakecommit.iceberg.ledger.stage`) and the highest column id. So the change is in the table's
history with its reason, the ledger is unchanged, and of two concurrent changes one wins; the other decides again.

An unknown outcome is read back, and a change is not made twice. A catalog that refuses to change schemas is a
:class:`~airflow_provider_lakecommit.exceptions.CommitRefusedError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
    TableUpdate,
)

from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.formats.evolution.changes import Change
from airflow_provider_lakecommit.formats.evolution.paths import shortened
from airflow_provider_lakecommit.formats.evolution.schema import evolved_schema
from airflow_provider_lakecommit.iceberg import (
    EVOLVED,
    Attempt,
    Condition,
    RetryPolicy,
    SnapshotKind,
    SnapshotRecord,
    Tables,
    compare_and_swap,
    ledger_change,
    read_ledger,
)
from airflow_provider_lakecommit.iceberg import Change as Swap
from airflow_provider_lakecommit.iceberg.ledger.stage import stage

MOST_NOTED = 4_000
"""Characters of the changes in a summary, which all add to the table's metadata."""
MOST_OF_ONE = 500
"""Most characters of one change, and of the reason."""
COMMENT = 255
"""Longest column comment that Glue and the Hive Metastore take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvolveRequest:
    """The author and reason of a change.

    :param changes: returns what to change in the current table; nothing ends the call
    :param reason: for the table's history and the comments of new columns
    :param decision: of the user who requested it, if any
    """

    table: str
    landing: str
    lane: str
    branch: str
    changes: Callable[[TableMetadata], tuple[Change, ...]]
    reason: str
    decision: Decision | None = None


def evolve_table(tables: Tables, request: EvolveRequest, retry_policy: RetryPolicy | None = None) -> tuple[Change, ...]:
    """Make the changes; return those that this call made.

    :raises CommitRefusedError: the catalog refuses, nothing is changed
    :raises CommitUnknownError: the outcome of a request cannot be learned in time
    :raises CatalogError: the catalog or the storage is unreachable, nothing was sent
    """

    def decide(loaded: Table) -> Swap[tuple[Change, ...]] | None:
        state = read_ledger(loaded.metadata, request.branch)
        changes = request.changes(loaded.metadata)
        known = any(s.landing == request.landing for s in state.sections)
        if not changes or not known or state.condition is Condition.ROLLED_BACK:
            # A rollback, or a recreated table, is handled first; the planner then decides again.
            return None
        schema_id = _new_schema(loaded.metadata, changes, request).schema_id
        record = SnapshotRecord(
            kind=SnapshotKind.CARRY,
            branch=request.branch,
            landing=request.landing,
            lane=request.lane,
            extra={EVOLVED: evolved_to_text(schema_id, changes, request.reason)},
            decisions=() if request.decision is None else (request.decision,),
        )
        return ledger_change(request.table, state, record, state.sections, changes)

    def staging(table: Table, branch: str, change: Swap[Any]) -> Attempt:
        schema = _new_schema(table.metadata, request.changes(table.metadata), request)
        return _with_schema(stage(table, branch, change), table.metadata, schema)

    swapped = compare_and_swap(tables, request.table, request.branch, decide, retry_policy, staging=staging)
    return swapped.landed.why if swapped.landed else ()


def evolved_to_text(schema_id: int, changes: Sequence[Change], reason: str) -> str:
    """Return the summary text of as many changes as fit."""
    texts = [shortened(str(c), MOST_OF_ONE) for c in changes]
    shown = len(texts)
    while True:
        some = [*texts[:shown], *([f"and {len(texts) - shown} more"] if shown < len(texts) else [])]
        text = json.dumps({"schema_id": schema_id, "changes": some, "reason": shortened(reason, MOST_OF_ONE)})
        if len(text) <= MOST_NOTED or not shown:
            return text
        shown //= 2


def _new_schema(metadata: TableMetadata, changes: Sequence[Change], request: EvolveRequest) -> Schema:
    return evolved_schema(
        metadata.schema(),
        changes,
        last_id=metadata.last_column_id,
        schema_id=max(s.schema_id for s in metadata.schemas) + 1,
        doc=shortened(request.reason, COMMENT),
    )


def _with_schema(bare: Attempt, metadata: TableMetadata, schema: Schema) -> Attempt:
    """Return the attempt with the schema set before the snapshot is added."""
    known = next((s for s in metadata.schemas if s == schema), None)
    # A catalog that finds the schema among the table's own gives it no new id.
    schema_id = schema.schema_id if known is None else known.schema_id
    first: tuple[TableUpdate, ...] = (SetCurrentSchemaUpdate.model_validate({"schema-id": schema_id}),)
    if known is None:
        first = (AddSchemaUpdate.model_validate({"schema": schema}), *first)
    snapshot = bare.snapshot.model_copy(update={"schema_id": schema_id})
    added = AddSnapshotUpdate(snapshot=snapshot)
    updates = tuple(added if isinstance(u, AddSnapshotUpdate) else u for u in bare.updates)
    last = AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id})
    return replace(bare, snapshot=snapshot, requirements=(*bare.requirements, last), updates=(*first, *updates))
