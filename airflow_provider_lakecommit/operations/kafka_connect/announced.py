# SPDX-License-Identifier: Apache-2.0
"""The control topic's records of one Iceberg sink: the files that its tasks announced, and what was reported of them.

Contract: nothing is requested; records arrive in order of time. Records that are no control event, or of another group,
are skipped, so a topic that others share, or have spoilt, is read to its end. An unreadable event of the group, and a
corrupt batch, may have announced files: they are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from airflow_provider_lakecommit.control import (
    CORRUPT_BATCH,
    CommitToTable,
    ControlEventError,
    ControlRecord,
    DataComplete,
    DataFile,
    DataWritten,
    PartitionField,
    StartCommit,
    TableReference,
    decode,
    head,
)
from airflow_provider_lakecommit.operations.kafka_connect.disposition import (
    AnnouncedFiles,
    ControlOffset,
    File,
    GroupLog,
    ReportedSnapshot,
)

Contents = dict[tuple[ControlOffset, str], tuple[DataFile, tuple[PartitionField, ...]]]
"""The announced values of a file, by its announcement and path, with the partition fields to read them by."""


class _Answer(NamedTuple):
    """A DATA_COMPLETE: the next source offsets that were committed with it, where something was read."""

    order: int
    ends: Mapping[tuple[str, int], int]


class LogReader:
    def __init__(self, group: str) -> None:
        self._group = group
        self._order = 0
        self._announced: list[tuple[bytes | None, AnnouncedFiles]] = []
        self._made: list[ReportedSnapshot] = []
        self._starts: dict[UUID, ControlOffset] = {}
        self._answers: dict[tuple[bytes | None, UUID], _Answer] = {}
        self._unread: list[str] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._last_read: dict[tuple[str, int], datetime] = {}
        self._read_to: dict[int, int] = {}
        self.contents: Contents = {}

    def take(self, record: ControlRecord) -> None:
        """Take a record; skip it if it is no control event, or of another group."""
        self._order += 1
        self._read_to[record.partition] = record.offset + 1
        if (error := next((value for name, value in record.headers if name == CORRUPT_BATCH), None)) is not None:
            # Their owner is unknown.
            self._unread.append(f"{record.partition}@{record.offset}: corrupt ({error.decode(errors='replace')[:300]})")
            return
        try:
            if record.value is None or head(record.value).group_id != self._group:
                return
        except ControlEventError:
            return
        try:
            payload = decode(record.value).payload
        except ControlEventError as e:
            self._unread.append(f"{record.partition}@{record.offset}: {str(e)[:300]}")
            return
        position = ControlOffset(record.partition, record.offset)
        match payload:
            case StartCommit():
                self._starts.setdefault(payload.commit_id, position)
            case DataWritten():
                self._announced.append((record.key, self._announcement(payload, position)))
            case DataComplete():
                ends = {(a.topic, a.partition): a.offset for a in payload.assignments or () if a.offset is not None}
                self._answers[record.key, payload.commit_id] = _Answer(self._order, ends)
                self._ends |= ends
                times = {(a.topic, a.partition): a.timestamp for a in payload.assignments or ()}
                self._last_read |= {position: at for position in ends if (at := times[position]) is not None}
            case CommitToTable() if payload.snapshot_id is not None:
                table, uuid = _name(payload.table), payload.table.table_uuid
                self._made.append(
                    ReportedSnapshot(position=position, table=table, table_uuid=uuid, snapshot_id=payload.snapshot_id)
                )

    def log(self, offsets: Mapping[tuple[str, int], int]) -> GroupLog:
        """Return the log of the taken records.

        :param offsets: present offsets of the group
        """
        again = self._read_again(offsets)
        announced = (replace(a, read_again=(key, a.cycle) in again) for key, a in self._announced)
        return GroupLog(
            announced=tuple(announced),
            made=tuple(self._made),
            starts=self._starts,
            unread=tuple(self._unread),
            ends=self._ends,
            last_read=self._last_read,
            read_to=self._read_to,
        )

    def _announcement(self, payload: DataWritten, position: ControlOffset) -> AnnouncedFiles:
        for file in payload.data_files or ():
            self.contents[position, file.file_path] = (file, payload.partition_fields)
        files = [_file(file) for file in payload.data_files or ()]
        files += [_file(file, deletes=True) for file in payload.delete_files or ()]
        return AnnouncedFiles(
            position=position,
            order=self._order,
            cycle=payload.commit_id,
            table=_name(payload.table),
            table_uuid=payload.table.table_uuid,
            files=tuple(files),
        )

    def _read_again(self, offsets: Mapping[tuple[str, int], int]) -> set[tuple[bytes | None, UUID]]:
        """Return senders and cycles after whose answers an offset moved back."""
        lowest, again = dict(offsets), set()
        for worker, answer in sorted(self._answers.items(), key=lambda item: item[1].order, reverse=True):
            for partition, end in answer.ends.items():
                if lowest.setdefault(partition, end) < end:
                    again.add(worker)
                lowest[partition] = min(lowest[partition], end)
        return again


def _file(file: DataFile, *, deletes: bool = False) -> File:
    return File(
        path=file.file_path,
        rows=file.record_count,
        size=file.file_size_in_bytes,
        spec_id=file.spec_id,
        deletes=deletes or file.content != 0,
        form=file.file_format.upper(),
    )


def _name(table: TableReference) -> str:
    return ".".join((*table.namespace, table.name))
