# SPDX-License-Identifier: Apache-2.0
"""The summary of a landing snapshot: the only module that knows its keys.

Contract: every snapshot of this package has the whole ledger of its table (the entries of all landings and streams), so
only the newest one on a branch's ancestry must be read; the other keys describe this snapshot alone and decide nothing.
``record_of(snapshot made with to_summary(x))`` returns ``x``.

Failure story: a snapshot without our keys is foreign, which is no error; one with corrupt keys is a :class:`WireError`,
because an unreadable ledger must never count as a missing one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pyiceberg.table.snapshots import Snapshot

from airflow_provider_lakecommit.control import (
    CORRUPTION,
    LEDGER_LIMIT,
    bounded_json,
    count,
    coverage_from_json,
    coverage_to_json,
    decode_ledger,
    encode_ledger,
    offsets_from_json,
    offsets_to_json,
    pack,
    text,
    unpack,
)
from airflow_provider_lakecommit.core import (
    MOST_TEXT,
    RESET_OFFSETS,
    Counts,
    Coverage,
    Decision,
    LedgerSection,
    SourcePartition,
)
from airflow_provider_lakecommit.exceptions import WireError

PREFIX = "lakecommit."
ON_MAIN = PREFIX + "on-main"
"""Key of a snapshot on another branch: the head of ``main`` that it descends from."""
_LEDGER = PREFIX + "ledger"
_KNOWN = (
    *("version", "ledger", "kind", "branch", "landing", "lane", "token", "commit-id", "slices", "windows", "ranges"),
    *("accounting", "rows", "spec-version", "control-end", "decisions"),
)
_RESERVED = frozenset(PREFIX + key for key in _KNOWN)
_VERSION = "1"
_DECISIONS_LIMIT = 16_000
_UNSET = datetime.fromtimestamp(0, UTC)


class SnapshotKind(StrEnum):
    """Why a landing snapshot was made. Only ``APPEND``, ``REPLACE`` and ``COMPACT`` have files."""

    ORIGIN = "origin"
    """A stream of a landing joined the table."""
    APPEND = "append"
    EPOCH = "epoch"
    """All pending slices were voided."""
    CARRY = "carry"
    """The ledger was repeated after foreign snapshots, or a control position moved."""
    INIT = "init"
    """A user set the ledger."""
    REPLACE = "replace"
    """Rows of some ranges were removed, with or without replacement."""
    COMPACT = "compact"
    """Files were rewritten; the rows stayed the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPoint:
    """The end of the control log when a snapshot was made: its announcement comes at or after it."""

    topic_id: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecord:
    """One landing snapshot. ``ranges`` is what it added to the ledger entry of its stream; ``rows`` are the rows of its
    files; ``extra`` are further keys of the committer, without prefix; ``decisions`` are users' decisions on this
    table, oldest first, repeated by every landing snapshot. ``snapshot_id`` and ``at`` come from the catalog and are
    unset before the commit.
    """

    kind: SnapshotKind
    branch: str
    landing: str
    lane: str
    token: UUID | None = None
    commit_id: UUID | None = None
    slices: int = 0
    windows: tuple[UUID, ...] = ()
    ranges: Coverage = field(default_factory=Coverage)
    accounting: Mapping[SourcePartition, Counts] = field(default_factory=dict)
    rows: int = 0
    spec_version: str | None = None
    control_end: LogPoint | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    snapshot_id: int = 0
    parent_id: int | None = None
    at: datetime = _UNSET

    @property
    def publishes(self) -> bool:
        """Return True if it adds landed rows, so that it is announced."""
        return self.kind is SnapshotKind.APPEND or (self.kind is SnapshotKind.REPLACE and self.slices > 0)


def to_summary(record: SnapshotRecord, sections: Iterable[LedgerSection]) -> dict[str, str]:
    """Return the summary properties of a snapshot to make; keys without a value are left out.

    :raises WireError: the ledger, or what was added, is over its limit
    """
    extra = {PREFIX + key: value for key, value in record.extra.items()}
    if taken := sorted(extra.keys() & _RESERVED):
        raise WireError("LC3033", f"summary keys {', '.join(taken)} are reserved for the committer: use others")
    values: dict[str, str | None] = {
        "version": _VERSION,
        "kind": record.kind.value,
        "branch": record.branch,
        "landing": record.landing,
        "lane": record.lane,
        "token": str(record.token) if record.token else None,
        "commit-id": str(record.commit_id) if record.commit_id else None,
        "slices": str(record.slices),
        "windows": ",".join(str(w) for w in record.windows) or None,
        "ranges": _pack({"ranges": coverage_to_json(record.ranges)}, "the added ranges") if record.ranges else None,
        "accounting": _pack(_account_to_json(record.accounting), "the accounting") if record.accounting else None,
        "rows": str(record.rows),
        "spec-version": record.spec_version,
        "control-end": _point_to_text(record.control_end),
        "decisions": _decisions_to_text(record.decisions),
        "ledger": encode_ledger(tuple(sections)),
    }
    return {**extra, **{PREFIX + key: value for key, value in values.items() if value is not None}}


def has_ledger(snapshot: Snapshot) -> bool:
    """Return True if it is a landing's own snapshot."""
    return snapshot.summary is not None and _LEDGER in snapshot.summary.additional_properties


def ledger_share(snapshot: Snapshot) -> float:
    """Return the used part of the room for a ledger."""
    return len(_properties(snapshot)["ledger"]) / LEDGER_LIMIT


def named_main(snapshot: Snapshot) -> int | None:
    """Return the head of ``main`` that a landing snapshot of another branch names."""
    text = _properties(snapshot).get("on-main", "")
    return int(text) if text.isdecimal() else None


def sections_of(snapshot: Snapshot) -> tuple[LedgerSection, ...]:
    """Return the ledger in a landing snapshot.

    :raises WireError: it is corrupt, or of a later release
    """
    return decode_ledger(_properties(snapshot)["ledger"])


def decisions_of(snapshot: Snapshot) -> tuple[Decision, ...]:
    """Return the users' decisions on the table, up to this landing snapshot."""
    return _decisions(_properties(snapshot))


def record_of(snapshot: Snapshot) -> SnapshotRecord | None:
    """Return the record of a snapshot, ``None`` for a foreign one.

    :raises WireError: it is corrupt, or of a later release
    """
    if not has_ledger(snapshot):
        return None
    found = _properties(snapshot)
    if found.get("version") not in ("0", _VERSION):
        raise WireError(
            "LC3034",
            f"snapshot {snapshot.snapshot_id} has summary version {found.get('version')!r:.40}, this release reads up "
            f"to {_VERSION}: upgrade airflow-provider-lakecommit",
        )
    try:
        return _record(snapshot, found)
    except CORRUPTION as e:
        raise WireError(
            "LC3035",
            f"the summary of snapshot {snapshot.snapshot_id} is corrupt: {type(e).__name__} {e}; roll the table back "
            f"to the snapshot before it, or set the ledger with `{RESET_OFFSETS} SPEC --from OFFSETS`",
        ) from e


def _record(snapshot: Snapshot, found: Mapping[str, str]) -> SnapshotRecord:
    known = {key.removeprefix(PREFIX) for key in _RESERVED}
    _number(found.get("files", "0"))
    return SnapshotRecord(
        kind=SnapshotKind(found["kind"]),
        branch=found["branch"],
        landing=found["landing"],
        lane=found["lane"],
        token=UUID(found["token"]) if "token" in found else None,
        commit_id=UUID(found["commit-id"]) if "commit-id" in found else None,
        slices=_number(found["slices"]),
        windows=tuple(UUID(w) for w in found["windows"].split(",")) if "windows" in found else (),
        ranges=coverage_from_json(unpack(found["ranges"], what="the added ranges")["ranges"])
        if "ranges" in found
        else Coverage(),
        accounting=_account_from_json(unpack(found["accounting"], what="the accounting"))
        if "accounting" in found
        else {},
        rows=_number(found["rows"]),
        spec_version=found.get("spec-version"),
        control_end=_point_from_text(found.get("control-end")),
        decisions=_decisions(found),
        extra={key: value for key, value in found.items() if key not in known},
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
    )


def _decisions_to_text(decisions: tuple[Decision, ...]) -> str | None:
    """Return the newest of them that fit: they never prevent a commit."""
    values = [{name: str(t)[:MOST_TEXT] for name, t in asdict(d).items() if t} for d in decisions]
    while values:
        try:
            return pack({"decisions": values}, what="what persons decided", limit=_DECISIONS_LIMIT, remedy="")
        except WireError:
            values = values[1:]
    return None


def _decisions(found: Mapping[str, str]) -> tuple[Decision, ...]:
    """Return the readable decisions; unreadable ones are ignored, as they decide nothing."""
    known = {f.name for f in fields(Decision)}
    try:
        values = unpack(found["decisions"], what="what persons decided")["decisions"] if "decisions" in found else ()
        return tuple(Decision(**{n: str(t) for n, t in value.items() if n in known}) for value in values)
    except (KeyError, TypeError, ValueError, AttributeError):
        return ()


def _properties(snapshot: Snapshot) -> dict[str, str]:
    every = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    return {key.removeprefix(PREFIX): value for key, value in every.items() if key.startswith(PREFIX)}


def _pack(values: Mapping[str, Any], what: str) -> str:
    return pack(values, what=what, limit=LEDGER_LIMIT, remedy="publish fewer slices in one snapshot")


def _number(text: str) -> int:
    return count(int(text))


def _account_to_json(account: Mapping[SourcePartition, Counts]) -> dict[str, Any]:
    """Return one list of numbers per count; counts that are zero everywhere are left out."""
    columns = {f.name: {p: getattr(c, f.name) for p, c in account.items()} for f in fields(Counts)}
    return {name: offsets_to_json(column) for name, column in columns.items() if any(column.values())}


def _account_from_json(values: Mapping[str, Any]) -> dict[SourcePartition, Counts]:
    columns = {f.name: offsets_from_json(values[f.name]) for f in fields(Counts) if f.name in values}
    partitions = {p for column in columns.values() for p in column}
    return {p: Counts(**{n: column.get(p, 0) for n, column in columns.items()}) for p in partitions}


def _point_to_text(point: LogPoint | None) -> str | None:
    if point is None:
        return None
    return json.dumps([point.topic_id, point.partition, point.offset], separators=(",", ":"))


def _point_from_text(value: str | None) -> LogPoint | None:
    if value is None:
        return None
    topic_id, partition, offset = bounded_json(value, parts=8)
    return LogPoint(topic_id=text(topic_id), partition=count(partition), offset=count(offset))
