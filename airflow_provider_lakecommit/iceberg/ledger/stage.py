# SPDX-License-Identifier: Apache-2.0
"""One attempt at a snapshot: its manifests, its commit request, and the cleanup after it failed.

Contract: the request of a landing adds the snapshot, moves the branch and moves the tag, all or nothing, and asserts
everything that it was made for: the table, the head, the position of the tag, the current schema and the default spec.
The tag never moves back, so a request in flight when the tag moves can never be applied, not even after a rollback of
the branch to the very head that it was made for.

Failure story: an attempt with an unknown outcome keeps its files. They are removed only when the tag has moved past it,
the metadata does not have its snapshot and the head does not list its manifests; leaving them only costs space.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from uuid import uuid4

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.locations import LocationProvider
from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION, TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from airflow_provider_lakecommit.core import attempt_id
from airflow_provider_lakecommit.exceptions import StorageError, TableError
from airflow_provider_lakecommit.iceberg.guarded_catalog import own_locations
from airflow_provider_lakecommit.iceberg.ledger.ledger import main_below, tag_name
from airflow_provider_lakecommit.iceberg.ledger.manifests import MergingAppend
from airflow_provider_lakecommit.iceberg.ledger.overwrite import OverwritingFiles, Rewrite
from airflow_provider_lakecommit.iceberg.ledger.summary import ON_MAIN
from airflow_provider_lakecommit.iceberg.storage import trouble_of

KEEP_FOR_EVER_MS = 2**63 - 1
"""Age limit of the tag, explicit: without one a table property may expire it."""

_log = logging.getLogger(__name__)


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Generic[T]):
    """The change for one read of the table: a snapshot with these files and this summary. ``rewrite`` has the files to
    remove, ``None`` for an append; ``why`` is for the caller.
    """

    why: T
    summary: Mapping[str, str] = field(default_factory=dict)
    files: tuple[DataFile, ...] = ()
    rewrite: Rewrite | None = None


Staging = Callable[[Table, str, Change[Any]], "Attempt"]
"""Writes the manifest and the manifest list of a snapshot on the head of a branch, and makes the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A commit request with its files written. ``tag`` is the tag that it moves; ``fenced``: the tag guards it."""

    snapshot: Snapshot
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    tag_id: int | None = None
    fenced: bool = False
    tag: str | None = None


def stage(table: Table, branch: str, change: Change[Any]) -> Attempt:
    """Stage a snapshot with the ledger in its summary.

    :raises TableError: pyiceberg cannot write to a table of this format version
    :raises StorageError: the storage cannot be written
    """
    main_id = main_below(table.metadata, branch)
    marked = dict(change.summary) if main_id is None else {**change.summary, ON_MAIN: str(main_id)}
    bare = _untagged(table, branch, _written_or_error(table, branch, change.files, marked, change.rewrite))
    # On a table without snapshots, pyiceberg's catalogs refuse to check a tag; there the head alone suffices.
    fenced = bool(table.metadata.snapshots)
    tag = tag_name(branch)
    tag_id = _id_of(table.metadata, tag)
    return replace(
        bare,
        requirements=(*bare.requirements, *((at_ref(tag, tag_id),) if fenced else ())),
        updates=(*bare.updates, pinned(tag, bare.snapshot.snapshot_id)),
        tag_id=tag_id,
        fenced=fenced,
        tag=tag,
    )


def stage_untagged(table: Table, branch: str, change: Change[Any]) -> Attempt:
    """Stage files of another writer: the branch moves and the tag stays, so that landings see a foreign snapshot. The
    manifests of a failed request stay: without the tag, it is unknown whether it can still be applied.

    :raises TableError: pyiceberg cannot write to a table of this format version
    :raises StorageError: the storage cannot be written
    """
    return _untagged(table, branch, _written_or_error(table, branch, change.files, dict(change.summary), None))


def stage_move(table: Table, branch: str, snapshot_id: int, *, ledger_id: int, source: str) -> Attempt:
    """Stage a move to a snapshot of another branch; the tag moves to the newest ledger before it.

    :param ledger_id: the snapshot of that ledger
    :param source: the branch with the snapshot, whose head is asserted
    """
    metadata, tag = table.metadata, tag_name(branch)
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise TableError("LC3064", f"{'.'.join(table.name())} has no snapshot {snapshot_id}: nothing was committed")
    refs = (branch, source, tag)
    return Attempt(
        snapshot=snapshot,
        requirements=(AssertTableUUID(uuid=metadata.table_uuid), *(at_ref(ref, _id_of(metadata, ref)) for ref in refs)),
        updates=(moved(metadata, branch, snapshot_id), pinned(tag, ledger_id)),
        tag_id=_id_of(metadata, tag),
        tag=tag,
    )


def stage_restart(table: Table, branch: str, base: str, summary: Mapping[str, str]) -> Attempt:
    """Stage a snapshot with the ledger in its summary, on the head of another branch: this branch moves to it.

    :raises TableError: pyiceberg cannot write to a table of this format version
    :raises StorageError: the storage cannot be written
    """
    metadata, tag = table.metadata, tag_name(branch)
    made = _untagged(table, base, _written_or_error(table, base, (), dict(summary), None))
    snapshot_id = made.snapshot.snapshot_id
    return replace(
        made,
        requirements=(*made.requirements, *(at_ref(ref, _id_of(metadata, ref)) for ref in (branch, tag))),
        updates=(
            AddSnapshotUpdate(snapshot=made.snapshot),
            moved(metadata, branch, snapshot_id),
            pinned(tag, snapshot_id),
        ),
        tag_id=_id_of(metadata, tag),
        fenced=True,
        tag=tag,
    )


def _untagged(table: Table, branch: str, snapshot: Snapshot) -> Attempt:
    metadata = table.metadata
    return Attempt(
        snapshot=snapshot,
        requirements=(
            AssertTableUUID(uuid=metadata.table_uuid),
            at_ref(branch, _id_of(metadata, branch)),
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        ),
        updates=(AddSnapshotUpdate(snapshot=snapshot), moved(metadata, branch, snapshot.snapshot_id)),
    )


def moved(metadata: TableMetadata, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the update that moves a branch."""
    # An update replaces the whole reference: repeat the owner's settings of the branch.
    now = metadata.refs.get(branch)
    keep = now.model_dump(by_alias=True, exclude={"snapshot_id"}) if now else {"type": SnapshotRefType.BRANCH}
    return SetSnapshotRefUpdate.model_validate({"ref-name": branch, "snapshot-id": snapshot_id, **keep})


def pinned(tag: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """Return the update that moves a tag, which then never expires."""
    pin = {"type": SnapshotRefType.TAG, "max-ref-age-ms": KEEP_FOR_EVER_MS}
    return SetSnapshotRefUpdate.model_validate({"ref-name": tag, "snapshot-id": snapshot_id, **pin})


def remove_leftovers(io: FileIO, metadata: TableMetadata, branch: str, attempts: Sequence[Attempt]) -> None:
    """Remove the files of attempts that can no longer be applied; best effort."""
    tag_id = _id_of(metadata, tag_name(branch))
    dead = [a for a in attempts if a.fenced and a.tag_id != tag_id and not _known(metadata, a.snapshot)]
    if not dead:
        return
    try:
        head = metadata.snapshot_by_name(branch)
        listed = {m.manifest_path for m in head.manifests(io)} if head else set()
        for attempt in dead:
            own = [
                m.manifest_path
                for m in attempt.snapshot.manifests(io)
                if m.added_snapshot_id == attempt.snapshot.snapshot_id
            ]
            if listed.isdisjoint(own):
                for path in (attempt.snapshot.manifest_list, *own):
                    io.delete(path)
    except Exception as e:
        _log.warning("Files of a lost commit attempt stay below %s/metadata: %s", metadata.location, trouble_of(io, e))


class _Placed(Table):
    """A table whose metadata files are placed by pyiceberg's own rules, whatever class it names for its data files."""

    def location_provider(self) -> LocationProvider:
        return own_locations(self)


class _Staging(Transaction):
    """A transaction on unchanged metadata. pyiceberg copies all metadata at each of a dozen reads, which takes most of
    a commit's time; before the first update, the table's own metadata is the same.
    """

    def __init__(self, table: Table, spec_id: int) -> None:
        super().__init__(_Placed(*(table.name(), table.metadata, table.metadata_location, table.io, table.catalog)))
        # A manifest is written for the default spec; the request itself keeps the default.
        metadata = table.metadata
        default = metadata.default_spec_id
        self._looked_at = metadata if spec_id == default else metadata.model_copy(update={"default_spec_id": spec_id})

    @property
    def table_metadata(self) -> TableMetadata:
        return self._looked_at

    @property
    def staged_metadata(self) -> TableMetadata:
        return super().table_metadata


def _written_or_error(
    table: Table, branch: str, files: Sequence[DataFile], summary: dict[str, str], rewrite: Rewrite | None
) -> Snapshot:
    """Return the snapshot with its manifests written, or an error for the caller."""
    if table.format_version > SUPPORTED_TABLE_FORMAT_VERSION:
        raise TableError(
            "LC3029",
            f"{'.'.join(table.name())} has format version {table.format_version}: pyiceberg can append to versions up "
            f"to {SUPPORTED_TABLE_FORMAT_VERSION}",
        )
    try:
        return _written(table, branch, files, summary, rewrite)
    except OSError as e:
        raise StorageError(
            "LC3030",
            f"the manifests of {'.'.join(table.name())} could not be written below {table.location()} "
            f"({trouble_of(table.io, e, with_path=False)}): check the storage; nothing was committed",
        ) from None


def _written(
    table: Table, branch: str, files: Sequence[DataFile], summary: dict[str, str], rewrite: Rewrite | None
) -> Snapshot:
    # Its leftovers are then known by name.
    commit_uuid = attempt_id(table.metadata.table_uuid, uuid4())
    named: dict[str, Any] = {"commit_uuid": commit_uuid, "branch": branch, "snapshot_properties": summary}
    producer: MergingAppend | OverwritingFiles
    if rewrite is None:
        specs = {f.spec_id for f in files} or {table.metadata.default_spec_id}
        if len(specs) > 1:
            raise TableError(
                "LC3031",
                f"files of partition specs {sorted(specs)} of {'.'.join(table.name())} cannot share one commit",
            )
        transaction = _Staging(table, specs.pop())
        producer = MergingAppend(operation=Operation.APPEND, transaction=transaction, io=table.io, **named)
    else:
        transaction = _Staging(table, table.metadata.default_spec_id)
        producer = OverwritingFiles(transaction, rewrite, **named)
    for file in files:
        producer.append_data_file(file)
    producer.commit()
    snapshot = transaction.staged_metadata.snapshot_by_id(producer.snapshot_id)
    if snapshot is None:
        raise TableError("LC3032", f"pyiceberg staged no snapshot for {'.'.join(table.name())}: nothing was committed")
    return snapshot


def at_ref(ref: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    """Require that a branch or tag is at this snapshot; ``None``: that it does not exist."""
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot_id})


def _id_of(metadata: TableMetadata, ref: str) -> int | None:
    found = metadata.refs.get(ref)
    return None if found is None else found.snapshot_id


def _known(metadata: TableMetadata, snapshot: Snapshot) -> bool:
    return any(
        s.snapshot_id == snapshot.snapshot_id or s.manifest_list == snapshot.manifest_list for s in metadata.snapshots
    )
