# SPDX-License-Identifier: Apache-2.0
"""Rows in a table that no ledger counts: of a Kafka Connect sink whose table was adopted, or brought back by a writer.

A snapshot is the sink's if its summary has the sink's control position and cycle, or if a rescue committed it for the
sink; no such snapshot may be newer than the adoption. Snapshots are compared by their sequence numbers, which neither a
rollback nor an expiry reduces. During the sink's turn, nothing else writes: a landing does not land in a table that was
handed back.

Files that were rolled back and that another writer added again are found before their offsets are read, or committed,
a second time (:func:`check_not_brought_back`). Manifests are read only if the metadata give reason to: another writer
added files on top of the ledger, and a landing snapshot with rows is off the branch, with ranges that the ledger lacks.
Then the manifests of both are read, and files are compared by path.

Contract: reads only; of sinks, metadata alone.

Failure story: a sink that was started again, or a coordinator that hung in a commit, is reported at the next plan and
commit, and by `verify` also after later commits of landings. Files copied under other names look like any other
writer's; files of an expired snapshot have no owner. `verify`
(:mod:`~airflow_provider_lakecommit.status.other_writers`) also finds what another writer added before the newest
landing snapshot, or adds during a commit request, and reports what is unreadable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice

from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from airflow_provider_lakecommit.core import (
    CONNECT_ADOPT,
    HANDED_BACK,
    RESET_ASSERT,
    AdoptedSink,
    Coverage,
    LedgerSection,
    SourcePartition,
    attempt_of,
)
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger import LedgerState, ancestry
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotRecord, record_of

ADOPTED_FROM = "lakecommit.adopted-from"
"""Summary key of a snapshot whose control position marks everything before it as done for a sink, for good: the sink's
group, and the id of its control topic."""
RESCUED = "lakecommit.rescued-from"
"""Summary key of a snapshot with files that a sink announced and a rescue committed: the sink's group."""
_POSITION = "kafka.connect.offsets."
_CYCLE = "kafka.connect.commit-id"


def was_handed(section: LedgerSection) -> bool:
    """Return True if a sink has its turn: by the entry, or, where that was rolled back, by the pause that stayed."""
    return (section.sink is not None and section.sink.lands) or section.suspended.endswith(HANDED_BACK)


def check_adopted(metadata: TableMetadata, state: LedgerState, landing: str, name: str) -> None:
    """Raise unless the landing, and not the connector, writes now.

    :raises LedgerError: the table was handed back to its connector, or the connector has committed since the adoption
    """
    check_turn(state, landing, name)
    for section in state.sections:
        sink = section.sink
        if section.landing != landing or sink is None:
            continue
        if found := list(sink_commits(metadata, state.branch, sink)):
            raise LedgerError("LC3001", f"{name}: {sink_commits_text(sink, found)}")


def check_turn(state: LedgerState, landing: str, name: str, there: Collection[SourcePartition] = ()) -> None:
    """Refuse what a landing must not do during the sink's turn: its ledger has the offsets where the sink continues.

    :param there: partitions of the source; a turn in none of them has ended, as its topics were recreated
    :raises LedgerError: the table was handed back to its connector
    """
    for section in state.sections:
        if section.landing == landing and section.sink is not None and section.sink.lands:
            if there and turn_is_over(section, there):
                continue
            own = state.whole(section)
            ends = ", ".join(f"{p} {own.end(p)}" for p in sorted(own.starts))
            raise LedgerError(
                "LC3002",
                f"{name} was handed back to connector {section.sink.connector}, which continues from {ends}; "
                f"`{CONNECT_ADOPT} SPEC --connector NAME --connect URL` takes the table over again",
            )


def turn_is_over(section: LedgerSection, there: Collection[SourcePartition]) -> bool:
    """Return True if an entry was handed to a sink, and all topics that the sink read were recreated.

    :param there: partitions of the source
    """
    return section.sink is not None and section.sink.lands and section.starts.keys().isdisjoint(there)


def sink_commits(metadata: TableMetadata, branch: str, sink: AdoptedSink) -> Iterator[Snapshot]:
    """Yield the sink's commits to the branch since the adoption, newest first."""
    for snapshot in ancestry(metadata, branch):
        if (snapshot.sequence_number or 0) <= sink.sequence:
            return
        if _is_of(snapshot, sink.group):
            yield snapshot


def _is_of(snapshot: Snapshot, group: str) -> bool:
    properties = snapshot.summary.additional_properties if snapshot.summary else {}
    by_sink = _CYCLE in properties and any(k.startswith(_POSITION) and k.endswith(f".{group}") for k in properties)
    return by_sink or properties.get(RESCUED) == group


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTurn:
    """A sink's turn in a table that was handed back to it, by the metadata.

    :param landed: its snapshots on the branch, newest first
    :param rolled_back: its snapshots off the branch, newest first
    :param before: the snapshot of the branch at which the turn began; ``None``: it has expired, or was rolled back
    :param forward: the newest of ``rolled_back``, if it was made after everything on the branch
    """

    landed: tuple[Snapshot, ...] = ()
    rolled_back: tuple[Snapshot, ...] = ()
    before: int | None = None
    forward: int | None = None

    @property
    def is_untouched(self) -> bool:
        """Return True if the branch certainly has nothing that the sink has landed in its turn."""
        return not self.landed and self.before is not None


def sink_turn(metadata: TableMetadata, branch: str, sink: AdoptedSink) -> SinkTurn:
    """Return the present turn of a sink, by the metadata."""
    line = list(ancestry(metadata, branch))
    # The turn begins with the snapshot after number ``sequence``; the sink is stopped then.
    began = (s.snapshot_id for s in line if (s.sequence_number or 0) <= sink.sequence + 1)
    on_branch = {s.snapshot_id for s in line}
    its = [s for s in metadata.snapshots if (s.sequence_number or 0) > sink.sequence and _is_of(s, sink.group)]
    its.sort(key=lambda s: s.sequence_number or 0, reverse=True)
    rolled_back = tuple(s for s in its if s.snapshot_id not in on_branch)
    newest = rolled_back[0].snapshot_id if rolled_back else None
    return SinkTurn(
        landed=tuple(s for s in its if s.snapshot_id in on_branch),
        rolled_back=rolled_back,
        before=next(began, None),
        forward=newest if line and newest and _is_after(metadata, newest, line[0].snapshot_id) else None,
    )


def _is_after(metadata: TableMetadata, newer: int, older: int) -> bool:
    """Return True if one snapshot was made on top of another, as far as the metadata show."""
    at: int | None = newer
    while at is not None and at != older:
        found = metadata.snapshot_by_id(at)
        at = None if found is None else found.parent_snapshot_id
    return at == older


def sink_commits_text(sink: AdoptedSink, found: list[Snapshot]) -> str:
    """Return what these commits mean, and the remedy."""
    rows = sum(int(s.summary.additional_properties.get("added-records", 0)) for s in found if s.summary)
    before = found[-1].parent_snapshot_id
    return (
        f"connector {sink.connector} has committed {len(found)} snapshots with {rows} rows since the table was "
        f"adopted, starting with {found[-1].snapshot_id}, so these records may be landed twice. Nothing is landed "
        f"until the connector is stopped and its rows are counted: `{CONNECT_ADOPT} SPEC --connector NAME --connect "
        "URL` stops it and continues after its last offsets if no row is in the table twice; if some are, roll the "
        f"branch back to snapshot {before}, which removes all later commits"
    )


def check_not_brought_back(table: Table, state: LedgerState, name: str) -> None:
    """Refuse a table with rows that its ledger does not count, and that would be read again.

    :raises LedgerError: names snapshots, files, rows and ranges, and the remedies
    """
    foreign = _foreign(table, state)
    taken_back = _taken_back(table, state) if foreign else []
    if not taken_back:
        return
    try:
        here = {f.file_path: f for f in _files(table, table.metadata.snapshot_by_id(state.head_id or 0), foreign)}
        own = {path for path in here if attempt_of(path) is not None}
        for record in taken_back if own else ():
            source = table.metadata.snapshot_by_id(record.snapshot_id)
            if back := [here[f.file_path] for f in _files(table, source, {record.snapshot_id}) if f.file_path in own]:
                raise LedgerError("LC3007", _text(name, record, back, state))
    except LedgerError:
        raise
    except Exception:  # any error of a missing or corrupt manifest: `verify` names it
        return


def _foreign(table: Table, state: LedgerState) -> set[int]:
    """Return the foreign snapshots on top of the ledger, if one of them may have added files."""
    line = list(islice(ancestry(table.metadata, state.branch), state.foreign_since))
    adds = any(s.summary is None or s.summary.operation is not Operation.DELETE for s in line)
    return {s.snapshot_id for s in line} if adds else set()


def _taken_back(table: Table, state: LedgerState) -> list[SnapshotRecord]:
    """Return the landing snapshots with rows off the branch that have ranges which the ledger lacks."""
    there = {s.snapshot_id for s in ancestry(table.metadata, state.branch)}
    elsewhere = (record_of(s) for s in table.metadata.snapshots if s.snapshot_id not in there)
    return [r for r in elsewhere if r is not None and r.rows and r.branch == state.branch and _again(r, state)]


def _again(record: SnapshotRecord, state: LedgerState) -> Coverage:
    """Return the part of its ranges that would be read again."""
    section = state.section(record.landing, record.lane)
    return record.ranges - section.covered if section is not None else Coverage()


def _files(table: Table, snapshot: Snapshot | None, added_by: Collection[int]) -> Iterator[DataFile]:
    """Yield the files of a snapshot that were added by one of these."""
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.added_snapshot_id in added_by:
            for e in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if e.status is not ManifestEntryStatus.DELETED and e.snapshot_id in added_by:
                    yield e.data_file


def _text(name: str, record: SnapshotRecord, back: Collection[DataFile], state: LedgerState) -> str:
    return (
        f"{name}: another writer brought back {len(back)} files with {sum(f.record_count for f in back)} rows of "
        f"snapshot {record.snapshot_id} (landing {record.landing}, {record.lane}), which was rolled back. No ledger "
        f"counts them, so {_again(record, state)} would be landed a second time. Nothing is landed until you delete "
        f"these rows from the table, or confirm that they are in it: `{RESET_ASSERT} SPEC --table {name} --at "
        "TOPIC:PARTITION=OFFSET,…`"
    )
