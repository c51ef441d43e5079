# SPDX-License-Identifier: Apache-2.0
"""The history of a landing in a table, for `lakecommit history`: windows, spec versions, epochs, columns, decisions.

Reads the table's metadata alone; a caller with the control topic may add the runs of the cycles. The results are plain
values, newest first, of each kind at most :data:`MOST`, from the newest :data:`MOST_SNAPSHOTS` snapshots on the branch.
Unreadable snapshots are named. Decisions of users outlive their snapshots.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import Any
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.core import (
    MEASURED,
    Cycle,
    Decision,
    account_fields,
    cycle_fields,
    kept_decisions,
    newest,
    total_of,
)
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.iceberg import (
    EVOLVED,
    SPEC,
    SnapshotKind,
    ancestry,
    record_of,
    replaced_of,
    sections_of,
)
from airflow_provider_lakecommit.status.table_history import LandingSnapshot

MOST = 50
MOST_SNAPSHOTS = 1000
WHY = {
    SnapshotKind.ORIGIN: "the landing joined the table",
    SnapshotKind.EPOCH: "all pending slices were voided",
    SnapshotKind.INIT: "a user set the ledger",
    SnapshotKind.REPLACE: "ranges were removed",
    SnapshotKind.COMPACT: "files were compacted",
}


def table_history(
    table: str,
    metadata: TableMetadata,
    branch: str,
    landing: str,
    runs: Mapping[UUID, Cycle],
    said: tuple[Decision, ...] = (),
) -> dict[str, Any]:
    """Return one table's part of a landing's history.

    :param runs: known cycles, by their commit id
    :param decisions: decisions of users in the control topic that the next snapshot will record
    """
    unreadable: list[str] = []
    found = list(_snapshots(metadata, branch, unreadable))
    own = [s for s in found if any(name == landing for name, _ in s.sections)]
    decisions = kept_decisions(found[0].record.decisions if found else (), said)
    windows = (s for s in own if s.record.landing == landing and s.record.publishes)
    return {
        "table": table,
        "windows": [_window(s, runs) for s in islice(windows, MOST)],
        "spec_versions": list(islice(_spec_versions(own, landing), MOST)),
        "epochs": list(islice(_epochs(own, landing), MOST)),
        "replaced": list(islice(_replacements(own, landing), MOST)),
        "columns": list(islice(_column_changes(found), MOST)),
        "decisions": [asdict(d) for d in reversed(decisions) if d.landing in ("", landing)],
        "unreadable": unreadable,
    }


def _snapshots(metadata: TableMetadata, branch: str, unreadable: list[str]) -> Iterator[LandingSnapshot]:
    for snapshot in islice(ancestry(metadata, branch), MOST_SNAPSHOTS):
        try:
            record = record_of(snapshot)
            if record is not None:
                yield LandingSnapshot(record=record, sections={s.key: s for s in sections_of(snapshot)})
        except WireError as e:
            unreadable.append(str(e))


def _head(s: LandingSnapshot) -> dict[str, Any]:
    return {"at": s.record.at.isoformat(), "snapshot_id": s.record.snapshot_id}


def _window(s: LandingSnapshot, runs: Mapping[UUID, Cycle]) -> dict[str, Any]:
    record = s.record
    took, cycle = newest([record.extra.get(MEASURED)]), runs.get(record.commit_id) if record.commit_id else None
    return {
        **_head(s),
        "lane": record.lane,
        **cycle_fields(
            commit_id=str(record.commit_id), dag=cycle.dag if cycle else None, run=cycle.run if cycle else None
        ),
        "window_ids": [str(w) for w in record.windows],
        "offsets": record.ranges.to_dict(),
        **account_fields(total_of(record.accounting.values())),
        "rows": record.rows,
        "files": int(record.extra.get("files", 0)),
        "slices": record.slices,
        "seconds": sum(c.busy_ms + c.idle_ms for c in took) / 1000 if took else None,
        "spec_version": s.sections[s.key].spec_version if s.key in s.sections else record.spec_version,
    }


def _replacements(found: Iterable[LandingSnapshot], landing: str) -> Iterator[dict[str, Any]]:
    for s in found:
        replaced = replaced_of(s.record) if s.record.landing == landing else None
        if replaced is not None:
            yield {**_head(s), "lane": s.record.lane, "offsets": replaced.ranges.to_dict(), **replaced.counts}


def _column_changes(found: Iterable[LandingSnapshot]) -> Iterator[dict[str, Any]]:
    """Yield the changes of landings to the table's columns. Unreadable ones are ignored."""
    for s in found:
        with suppress(ValueError, TypeError, RecursionError, KeyError):
            told = json.loads(s.record.extra[EVOLVED])
            changes = [str(change) for change in told["changes"]]
            yield {**_head(s), "schema_id": int(told["schema_id"]), "changes": changes, "reason": str(told["reason"])}


def _changes(
    found: Sequence[LandingSnapshot], landing: str, what: str
) -> Iterator[tuple[LandingSnapshot, str, str | None, str]]:
    """Yield where a value of the landing's ledger entries changed: the snapshot, the stream, and both values."""
    lanes = sorted({key for s in found for key in s.sections if key[0] == landing})
    for s, older in zip(found, (*found[1:], None), strict=False):
        for key in lanes:
            after = s.sections.get(key)
            before = older.sections.get(key) if older else None
            values = [None if x is None else str(getattr(x, what)) for x in (before, after)]
            if values[1] is not None and values[0] != values[1]:
                yield s, key[1], values[0], values[1]


def _epochs(found: Sequence[LandingSnapshot], landing: str) -> Iterator[dict[str, Any]]:
    for s, lane, before, after in _changes(found, landing, "epoch"):
        why = WHY.get(s.record.kind) if (landing, lane) == s.key else None
        reason = why or "older snapshots were expired"
        yield {**_head(s), "lane": lane, "epoch": after, "before": before, "why": reason}


def _spec_versions(found: Sequence[LandingSnapshot], landing: str) -> Iterator[dict[str, Any]]:
    fields = dict(_fields_of(s for s in found if s.record.landing == landing))
    for s, lane, before, after in _changes(found, landing, "spec_version"):
        old, new = fields.get(before or ""), fields.get(after)
        changed = None
        if old is not None and new is not None:
            # ``None`` is the default.
            changed = {k: [old.get(k), new.get(k)] for k in sorted({*old, *new}) if old.get(k) != new.get(k)}
        yield {**_head(s), "lane": lane, "spec_version": after, "before": before, "changed": changed}


def _fields_of(snapshots: Iterable[LandingSnapshot]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the fields of each spec version, from the snapshots that have it."""
    for s in snapshots:
        try:
            version, fields = json.loads(s.record.extra.get(SPEC, "null"))
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(version, str) and isinstance(fields, dict):
            yield version, fields
