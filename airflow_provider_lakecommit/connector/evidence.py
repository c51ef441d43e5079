# SPDX-License-Identifier: Apache-2.0
"""What a table and its storage say of the files that a connector announced for it.

Contract: reads only. :meth:`Evidence.judge` gives every announced file its fate: the rules are those of
:mod:`~airflow_provider_lakecommit.connector.judge`, the facts are the snapshots in the table's metadata, the manifests
that they name, and whether a file that waits is on the storage still. What cannot change is read once, however often
the table is looked at.

Failure story: a catalog or a storage that is away is an error. So is a manifest that is gone, or a control position
that cannot be read: without it nothing can be said of what the table holds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.committer.ledger import ancestry
from airflow_provider_lakecommit.connector.group_log import GroupLog
from airflow_provider_lakecommit.connector.judge import Fate, FileJudgement, History, KnownSnapshot, judge
from airflow_provider_lakecommit.exceptions import CatalogError, TableError
from airflow_provider_lakecommit.iceberg.storage import trouble_of
from airflow_provider_lakecommit.wire.envelope import DAMAGE, count
from airflow_provider_lakecommit.wire.json_bounds import bounded_json

__all__ = ["Evidence"]

LOOKERS = 16
"""Threads that ask the storage whether files are there."""


class Evidence:
    """Of the tables that a connector's log names.

    :param floor_key: summary key of the connector's control position
    """

    def __init__(self, log: GroupLog, *, branch: str, floor_key: str) -> None:
        self._log = log
        self._branch = branch
        self._floor_key = floor_key
        self._lists: dict[int, set[str]] = {}
        self._manifests: dict[str, set[str]] = {}
        self._there: set[str] = set()

    def judge(self, table: Table, name: str) -> tuple[History, FileJudgement]:
        """Every file's fate, and the history that it follows from.

        :raises CatalogError: the storage is away
        :raises TableError: a manifest is gone, or a control position cannot be read
        """
        history = self._history(table.metadata)
        judgement = judge(self._log, name, history, self._named(table, name))
        return history, self._checked(table, judgement)

    def _history(self, metadata: TableMetadata) -> History:
        floors = {s.snapshot_id: self._floor_in(s) for s in metadata.snapshots}
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
        )

    def _floor_in(self, snapshot: Any) -> dict[int, int] | None:
        text = snapshot.summary and snapshot.summary.additional_properties.get(self._floor_key)
        if not text:
            return None
        try:
            return {int(partition): count(offset) for partition, offset in bounded_json(text).items()}
        except DAMAGE as e:
            raise TableError(
                f"snapshot {snapshot.snapshot_id} has {self._floor_key} = {text!r:.200}, which is no control position: "
                "whoever wrote it must say what was committed"
            ) from e

    def _named(self, table: Table, name: str) -> frozenset[str]:
        """Those of the announced paths that any manifest names, deleted entries included. Snapshots and manifests never
        change, so each is read once.
        """
        wanted = {f.path for a in self._log.announced if a.table == name for f in a.files}
        lists, known = self._lists, self._manifests
        named: set[str] = set()
        try:
            for snapshot in reversed(table.metadata.snapshots):
                if snapshot.snapshot_id not in lists:
                    manifests = snapshot.manifests(table.io)
                    for m in manifests:
                        if m.manifest_path not in known:
                            entries = m.fetch_manifest_entry(table.io, discard_deleted=False)
                            known[m.manifest_path] = wanted.intersection(e.data_file.file_path for e in entries)
                    lists[snapshot.snapshot_id] = {m.manifest_path for m in manifests}
                named.update(*(known[path] for path in lists[snapshot.snapshot_id]))
                if len(named) == len(wanted):
                    break
        except FileNotFoundError as e:
            raise TableError(
                f"a manifest of {name} is gone from the storage ({trouble_of(table.io, e)}): nothing can be said of "
                "what the table holds; restore it, or expire the snapshots that name it"
            ) from None
        except OSError as e:
            raise self._storage_away(table, e) from None
        return frozenset(named)

    def _checked(self, table: Table, judgement: FileJudgement) -> FileJudgement:
        """Those that wait and are not on the storage any more are gone."""
        ask = [j.file.path for j in judgement.of(Fate.WAITING) if j.file.path not in self._there]
        try:
            with ThreadPoolExecutor(LOOKERS) as pool:
                found = list(pool.map(lambda path: table.io.new_input(path).exists(), ask))
        except OSError as e:
            raise self._storage_away(table, e) from None
        self._there.update(path for path, there in zip(ask, found, strict=True) if there)
        gone = {path for path, there in zip(ask, found, strict=True) if not there}
        return replace(
            judgement,
            judged=tuple(
                replace(j, fate=Fate.GONE, reason="not on the storage any more") if j.file.path in gone else j
                for j in judgement.judged
            ),
        )

    def _storage_away(self, table: Table, error: OSError) -> CatalogError:
        return CatalogError(
            f"the storage of {'.'.join(table.name())} failed ({trouble_of(table.io, error, place=False)}): "
            "check it; the next attempt goes on from where this one stopped"
        )
