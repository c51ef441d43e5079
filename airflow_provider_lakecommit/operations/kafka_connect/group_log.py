# SPDX-License-Identifier: Apache-2.0
"""What a control topic holds of one connector's group, as far as its files are concerned.

Contract: plain values; :mod:`~airflow_provider_lakecommit.operations.kafka_connect.announced` reads them,
:mod:`~airflow_provider_lakecommit.operations.kafka_connect.disposition` draws its conclusions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID


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
