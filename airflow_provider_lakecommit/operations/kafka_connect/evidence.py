# SPDX-License-Identifier: Apache-2.0
"""Facts of a table and its storage about the files that a connector announced for it.

Contract: reads only. :meth:`Evidence.evaluate` decides the disposition of every announced file: by the rules of
:mod:`~airflow_provider_lakecommit.operations.kafka_connect.disposition`, from the snapshots in the table's metadata,
their manifests, and whether a waiting file still exists and is the announced one: any writer of the control topic can
announce any file. What cannot change is read once, however often the table is read.

Failure story: an unreachable catalog or storage is an error. A missing manifest, or an unreadable
control position, is an error too: without it the content of the table is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.control import CORRUPTION, bounded_json, count
from airflow_provider_lakecommit.core import data_roots, path_problem, storage_location
from airflow_provider_lakecommit.exceptions import CatalogError, TableError
from airflow_provider_lakecommit.iceberg import ADOPTED_FROM, ancestry, rows_in_footer, trouble_of
from airflow_provider_lakecommit.operations.kafka_connect.disposition import (
    Disposition,
    EvaluatedFile,
    File,
    GroupLog,
    History,
    KnownSnapshot,
    evaluate_files,
    filtered,
)

CHECK_THREADS = 16
"""Threads that check whether files are in the storage."""
PARQUET = "PARQUET"
FORMS = {PARQUET: b"PAR1", "AVRO": b"Obj\x01", "ORC": b"ORC"}
"""What files of a format begin with."""


class Evidence:
    """Of the tables that a connector's log names.

    :param floor_key: summary key of the connector's control position
    :param mark: the value of ``ADOPTED_FROM`` in the snapshots that end the connector's turn
    """

    def __init__(self, log: GroupLog, *, branch: str, floor_key: str, mark: str) -> None:
        self._mark = mark
        self._log = log
        self._branch = branch
        self._floor_key = floor_key
        self._lists: dict[int, set[str]] = {}
        self._manifests: dict[str, set[str]] = {}
        self._there: set[str] = set()

    def evaluate(self, table: Table, name: str) -> tuple[History, tuple[EvaluatedFile, ...]]:
        """Return every file's disposition, and the history from which it follows."""
        history = self._history(table.metadata)
        return history, self._checked(table, evaluate_files(self._log, name, history, self._named(table, name)))

    def _history(self, metadata: TableMetadata) -> History:
        floors = {s.snapshot_id: self._floor_in(s) for s in metadata.snapshots}
        ended = [
            floors[s.snapshot_id] or {}
            for s in metadata.snapshots
            if s.summary and s.summary.additional_properties.get(ADOPTED_FROM) == self._mark
        ]
        line = (floors[s.snapshot_id] for s in ancestry(metadata, self._branch))
        return History(
            table_uuid=metadata.table_uuid,
            format_version=metadata.format_version,
            spec_id=metadata.default_spec_id,
            last_sequence=getattr(metadata, "last_sequence_number", 0) or 0,
            snapshots=tuple(
                KnownSnapshot(
                    snapshot_id=s.snapshot_id,
                    sequence=s.sequence_number or 0,
                    parent_id=s.parent_snapshot_id,
                    floor=floors[s.snapshot_id],
                )
                for s in metadata.snapshots
            ),
            floor=next((floor for floor in line if floor is not None), {}),
            done={p: max(floor.get(p, 0) for floor in ended) for floor in ended for p in floor},
        )

    def _floor_in(self, snapshot: Any) -> dict[int, int] | None:
        text = snapshot.summary and snapshot.summary.additional_properties.get(self._floor_key)
        if not text:
            return None
        try:
            return {int(partition): count(offset) for partition, offset in bounded_json(text).items()}
        except CORRUPTION as e:
            raise TableError(
                "LC7506",
                f"snapshot {snapshot.snapshot_id} has {self._floor_key} = {text!r:.200}, which is no control position: "
                "find out with its writer which files were committed",
            ) from e

    def _named(self, table: Table, name: str) -> frozenset[str]:
        """Return the announced paths that any manifest names, deleted entries included. Snapshots and manifests never
        change, so each is read once.
        """
        needed: dict[tuple[str, str], str] = {}
        for announced in self._log.announced:
            if announced.table == name:
                needed |= {storage_location(f.path): f.path for f in announced.files}
        lists, known = self._lists, self._manifests
        named: set[str] = set()
        try:
            for snapshot in reversed(table.metadata.snapshots):
                if snapshot.snapshot_id not in lists:
                    manifests = snapshot.manifests(table.io)
                    for m in manifests:
                        if m.manifest_path not in known:
                            entries = m.fetch_manifest_entry(table.io, discard_deleted=False)
                            locations = (storage_location(e.data_file.file_path) for e in entries)
                            known[m.manifest_path] = {needed[location] for location in locations if location in needed}
                    lists[snapshot.snapshot_id] = {m.manifest_path for m in manifests}
                named.update(*(known[path] for path in lists[snapshot.snapshot_id]))
                if len(named) == len(needed):
                    break
        except FileNotFoundError as e:
            raise TableError(
                "LC7507",
                f"a manifest of {name} is missing in the storage ({trouble_of(table.io, e)}), so the content of the "
                "table is unknown: restore the manifest, or expire the snapshots that name it",
            ) from None
        except OSError as e:
            raise self._storage_away(table, e) from None
        return frozenset(named)

    def _checked(self, table: Table, evaluated: tuple[EvaluatedFile, ...]) -> tuple[EvaluatedFile, ...]:
        """Check waiting files: those that are not in the storage are missing, and those that differ are false."""
        unchecked = [j for j in filtered(evaluated, Disposition.WAITING) if j.file.path not in self._there]
        roots = data_roots(table.metadata.location, table.metadata.properties)
        try:
            with ThreadPoolExecutor(CHECK_THREADS) as pool:
                found = list(pool.map(lambda j: _objection(table, roots, j.file), unchecked))
        except OSError as e:
            raise self._storage_away(table, e) from None
        against = {j.file.path: o for j, o in zip(unchecked, found, strict=True) if o is not None}
        self._there.update(j.file.path for j in unchecked if j.file.path not in against)
        return tuple(
            replace(j, disposition=against[j.file.path][0], reason=against[j.file.path][1])
            if j.disposition is Disposition.WAITING and j.file.path in against
            else j
            for j in evaluated
        )

    def _storage_away(self, table: Table, error: OSError) -> CatalogError:
        return CatalogError(
            "LC7508",
            f"the storage of {'.'.join(table.name())} failed ({trouble_of(table.io, error, with_path=False)}): "
            "check it; the next attempt continues where this one stopped",
        )


def _objection(table: Table, roots: Sequence[str], file: File) -> tuple[Disposition, str] | None:
    if problem := path_problem(file.path, roots):
        return Disposition.FALSE, problem
    source = table.io.new_input(file.path)
    if not source.exists():
        return Disposition.GONE, "missing in the storage"
    if (size := len(source)) != file.size:
        return Disposition.FALSE, f"it has {size} bytes, {file.size} were announced"
    begins = FORMS.get(file.form)
    with source.open(seekable=False) as stream:
        if begins is None or stream.read(len(begins)) != begins:
            return Disposition.FALSE, f"it is no file of format {file.form:.20}"
    if file.form != PARQUET:
        return None
    try:
        rows = rows_in_footer(table.io, file.path)
    except TableError as e:
        return Disposition.FALSE, str(e)
    return None if rows == file.rows else (Disposition.FALSE, f"it holds {rows} rows, {file.rows} were announced")
