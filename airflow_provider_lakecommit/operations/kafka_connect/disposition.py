# SPDX-License-Identifier: Apache-2.0
"""Decide which announced files of a connector were never committed, and may be committed by another process.

Contract: pure. A file is *waiting* only if it is proved that no snapshot ever had it. It is not enough that no metadata
names it: a file that was committed and compacted, and whose snapshots have expired, is named nowhere, and a second
commit would duplicate its rows. So three conditions must hold:

* no manifest of any snapshot in the metadata names it, deleted entries included;
* a snapshot certainly precedes a commit of the file: one that the connector reported before the file was announced, or
  one whose own control position is at or before the announcement;
* every snapshot since that one is still in the metadata: their sequence numbers have no gap.

If a table still has all snapshots since its first one, the history is complete and the second condition holds. No clock
is used. All other files are *unknown* and are left alone.

A connector that runs again handles the same events by its floor: the control position in the newest snapshot of the
branch that has one. It skips events below it forever. So a commit of files for it must move the floor past them, in the
same snapshot, and must not move it past a file that still waits for the connector (:func:`blocking_files`).

Source offsets are in the same transaction as the announcement. If they have moved back since (the connector's group was
reset), the rows are *read again* and the file is never committed here. A reset after which the connector has already
read past the old offset leaves no trace; a reset of offsets excludes a rescue.

Source: the rules of iceberg-kafka-connect's coordinator (1.9 to 1.12), from its code and a real worker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from airflow_provider_lakecommit.core import storage_location


class ControlOffset(NamedTuple):
    """A record of the control topic."""

    partition: int
    offset: int


class File(NamedTuple):
    """An announced file. ``size`` is in bytes, ``form`` its format by name; ``deletes`` marks a delete file."""

    path: str
    rows: int
    size: int
    spec_id: int
    deletes: bool = False
    form: str = "PARQUET"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedFiles:
    """One DATA_WRITTEN. ``order`` is its position among all records of the topic, by time; ``read_again``: the
    source offsets that were committed with it went back later.
    """

    position: ControlOffset
    order: int
    cycle: UUID
    table: str
    table_uuid: UUID | None
    files: tuple[File, ...]
    read_again: bool = False


class ReportedSnapshot(NamedTuple):
    """One COMMIT_TO_TABLE: a snapshot that the connector reported."""

    position: ControlOffset
    table: str
    table_uuid: UUID | None
    snapshot_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLog:
    """The content of a control topic for one group.

    :param starts: position of each cycle's first START_COMMIT
    :param unread: unreadable events, by their position
    :param ends: the newest announced next source offset of a topic and partition
    :param last_read: when the record before each of these was created, if that was announced
    :param read_to: the next offset of each control partition after everything that was read of it, of any writer
    """

    announced: tuple[AnnouncedFiles, ...] = ()
    made: tuple[ReportedSnapshot, ...] = ()
    starts: Mapping[UUID, ControlOffset] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    last_read: Mapping[tuple[str, int], datetime] = field(default_factory=dict)
    read_to: Mapping[int, int] = field(default_factory=dict)

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the tables with announced files, in order of announcement."""
        return tuple(dict.fromkeys(a.table for a in self.announced if a.files))


class Disposition(StrEnum):
    """The disposition of an announced file."""

    COMMITTED = "committed"
    """A snapshot has it, or had it."""
    WAITING = "waiting"
    """It was never committed."""
    UNKNOWN = "unknown"
    """There is no evidence of either."""
    READ_AGAIN = "read again"
    """The source offsets were reset behind it: its rows are read again."""
    OTHER_TABLE = "other table"
    """It was written for another table of that name."""
    UNFIT = "unfit"
    """It cannot be appended: another partition spec, or deletes."""
    GONE = "gone"
    """It is missing in the storage."""
    FALSE = "not as announced"
    """It is outside the table's data folders, or differs from its announcement in size, format or rows."""


class KnownSnapshot(NamedTuple):
    """One snapshot in the metadata. ``floor`` is the control position in it, by partition, if it has one."""

    snapshot_id: int
    sequence: int
    parent_id: int | None
    floor: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The history of a table in its metadata.

    :param floor: control position by partition in the newest snapshot of the branch that has one
    :param done: control position by partition up to which takeovers and hand-backs left out what was not committed
    """

    table_uuid: UUID
    format_version: int
    spec_id: int
    last_sequence: int
    snapshots: tuple[KnownSnapshot, ...]
    floor: Mapping[int, int] = field(default_factory=dict)
    done: Mapping[int, int] = field(default_factory=dict)

    @property
    def whole_from(self) -> int:
        """Return the sequence number after which no snapshot is missing; 0 if none is."""
        there = {s.sequence for s in self.snapshots}
        number = self.last_sequence
        while number in there:
            number -= 1
        first = next((s for s in self.snapshots if s.sequence == 1), None)
        # Format version 1 has no numbers: a table that became version 2 has a past before its first one.
        if number == 0 and first is not None and first.parent_id is not None:
            return 1
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedFile:
    """One file and its disposition. ``below_floor``: the connector itself will never commit it."""

    file: File
    announced: AnnouncedFiles
    disposition: Disposition
    reason: str
    below_floor: bool


def filtered(files: Iterable[EvaluatedFile], disposition: Disposition) -> tuple[EvaluatedFile, ...]:
    return tuple(j for j in files if j.disposition is disposition)


def blocking_files(files: Iterable[EvaluatedFile]) -> tuple[EvaluatedFile, ...]:
    """Return files that the connector would still commit and we may not: moving the floor past them would lose them."""
    return tuple(j for j in files if j.disposition in (Disposition.UNKNOWN, Disposition.UNFIT) and not j.below_floor)


def evaluate_files(log: GroupLog, table: str, history: History, named: Collection[str]) -> tuple[EvaluatedFile, ...]:
    """Return the disposition of each file announced for a table, in order of announcement, each path once.

    :param named: announced paths that a manifest of any snapshot names
    """
    evidence = _Evidence(log, table, history)
    known_locations: set[tuple[str, str]] = set()
    known = {storage_location(path) for path in named}
    evaluated = []
    for announced in log.announced:
        if announced.table != table:
            continue
        for file in announced.files:
            # The connector takes neither a file without rows nor a path twice.
            if file.rows and (location := storage_location(file.path)) not in known_locations:
                known_locations.add(location)
                disposition, reason = _disposition(announced, file, history, evidence, named=location in known)
                evaluated.append(
                    EvaluatedFile(
                        file=file,
                        announced=announced,
                        disposition=disposition,
                        reason=reason,
                        below_floor=announced.position.offset < history.floor.get(announced.position.partition, 0),
                    )
                )
    return tuple(evaluated)


def floor_after(history: History, taken: Iterable[AnnouncedFiles]) -> dict[int, int]:
    """Return the floor with which a connector skips these events too; it never moves back."""
    floor = dict(history.floor)
    for announced in taken:
        partition, offset = announced.position
        floor[partition] = max(floor.get(partition, 0), offset + 1)
    return floor


def _disposition(
    announced: AnnouncedFiles, file: File, history: History, evidence: _Evidence, *, named: bool
) -> tuple[Disposition, str]:
    if announced.table_uuid not in (None, history.table_uuid):
        return Disposition.OTHER_TABLE, f"written for table {announced.table_uuid}, not for {history.table_uuid}"
    if named:
        return Disposition.COMMITTED, "a snapshot names it"
    if announced.read_again:
        return Disposition.READ_AGAIN, "the connector's source offsets were reset after it was announced"
    if announced.position.offset < history.done.get(announced.position.partition, 0):
        # That its offsets were put back then, they no longer show once the connector has read on.
        return Disposition.READ_AGAIN, "a takeover or a hand-back has left it out"
    if doubt := evidence.doubt(announced):
        return Disposition.UNKNOWN, doubt
    if file.deletes:
        return Disposition.UNFIT, "a delete file: only data files can be appended"
    if file.spec_id != history.spec_id:
        return Disposition.UNFIT, f"written under partition spec {file.spec_id}, the table is at spec {history.spec_id}"
    since = "one made before it" if evidence.is_based(announced) else "the table was made"
    return Disposition.WAITING, f"in no snapshot since {since}"


class _Evidence:
    """What the log and the metadata prove about the time before an announcement."""

    def __init__(self, log: GroupLog, table: str, history: History) -> None:
        self._log = log
        self._history = history
        self._whole_from = history.whole_from
        sequences = {s.snapshot_id: s.sequence for s in history.snapshots}
        ours = [m for m in log.made if m.table == table and m.table_uuid in (None, history.table_uuid)]
        kept = [m for m in ours if sequences.get(m.snapshot_id, -1) >= self._whole_from]
        lost = [m for m in ours if m.snapshot_id not in sequences]
        self._kept = _first_offsets(m.position for m in kept)
        self._lost: dict[int, int] = {}
        for partition, offset in (m.position for m in lost):
            self._lost[partition] = max(self._lost.get(partition, offset), offset)
        floors = [s.floor for s in history.snapshots if s.floor and s.sequence >= self._whole_from]
        self._floors = _first_offsets(ControlOffset(*item) for floor in floors for item in floor.items())

    def doubt(self, announced: AnnouncedFiles) -> str | None:
        """Return why it is unknown whether these files were ever committed; ``None`` if they certainly were not."""
        if self._history.format_version < 2:
            return "snapshots of format version 1 have no numbers that would show a gap: upgrade the table"
        if any(not self._before(ControlOffset(p, offset), announced) for p, offset in self._lost.items()):
            return "a snapshot that the connector made since it was announced has expired"
        if self.is_based(announced):
            return None
        if self._whole_from:
            return f"the snapshots before number {self._whole_from + 1} have expired, and no older one is known"
        if announced.table_uuid is None:
            return "neither the event (of a connector before 1.11) nor a snapshot shows that it is the same table"
        return None

    def is_based(self, announced: AnnouncedFiles) -> bool:
        """Return True if a snapshot certainly precedes a commit of the files."""
        partition, offset = announced.position
        if self._floors.get(partition, offset + 1) <= offset:
            return True
        return any(self._before(ControlOffset(p, at), announced) for p, at in self._kept.items())

    def _before(self, position: ControlOffset, announced: AnnouncedFiles) -> bool:
        """Return True if a snapshot reported there was made without these files. It is reported after it is made, and
        made after its files were announced; across partitions only the cycle's start gives an order.
        """
        if position.partition == announced.position.partition:
            return position.offset < announced.position.offset
        start = self._log.starts.get(announced.cycle)
        return start is not None and start.partition == position.partition and position.offset < start.offset


def _first_offsets(positions: Iterable[ControlOffset]) -> dict[int, int]:
    first: dict[int, int] = {}
    for partition, offset in positions:
        first[partition] = min(first.get(partition, offset), offset)
    return first


def chunks(waiting: Sequence[EvaluatedFile], most: int) -> list[tuple[EvaluatedFile, ...]]:
    """Return files in portions of about that many, cut between events, so that the floor can follow each."""
    out: list[list[EvaluatedFile]] = []
    for j in waiting:
        whole = bool(out) and out[-1][-1].announced is not j.announced and len(out[-1]) >= most
        if not out or whole:
            out.append([])
        out[-1].append(j)
    return [tuple(chunk) for chunk in out]
