# SPDX-License-Identifier: Apache-2.0
"""Commits files that an Iceberg sink of Kafka Connect announced and never committed, in its place.

Contract: :meth:`Rescue.look` reads and writes nothing; it says of every announced file what became of it. What
:meth:`Rescue.commit` appends is decided on the very look of the table that the request states
(:mod:`~airflow_provider_lakecommit.committer.foreign`), by the rules of :mod:`~airflow_provider_lakecommit.core.rescue`
alone. Each snapshot also carries the connector's control position past what it holds, so a connector that runs again
passes over it. So it may be done twice, or by two at once, or be killed at any point: no file is in the table twice.

Refused as a whole: while the connector, or a coordinator of it, is at work (:func:`check_stopped`); a table with a file
that the connector would still commit and we may not. A paused connector is at work: its coordinator goes on.

Failure story: a catalog or a storage that is away ends it with its error; what is committed by then is, and the next
attempt does the rest. A worker that was cut off from Kafka and still hangs in a commit is not seen by anybody: a sink
from 1.11 on notices the moved position when it goes on, and fails; an older one doubles what it holds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.manifest import DataFile as ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.committer.foreign import Addition, append_foreign
from airflow_provider_lakecommit.committer.ledger import ancestry
from airflow_provider_lakecommit.committer.lookup import Patience
from airflow_provider_lakecommit.core.rescue import (
    Fate,
    GroupLog,
    History,
    Judged,
    Judgement,
    Snap,
    chunks,
    floor_after,
    judge,
)
from airflow_provider_lakecommit.cycle.announced import LogReader
from airflow_provider_lakecommit.exceptions import CatalogError, ConnectorError, TableError
from airflow_provider_lakecommit.hooks.connect_rest import ConnectRest
from airflow_provider_lakecommit.hooks.consumer_group import look_at_group
from airflow_provider_lakecommit.hooks.control_log import ControlRecord
from airflow_provider_lakecommit.hooks.control_topic import ControlTopic
from airflow_provider_lakecommit.hooks.data_files import to_pyiceberg
from airflow_provider_lakecommit.hooks.sink import source_group
from airflow_provider_lakecommit.hooks.table import Tables

__all__ = ["Rescue", "TableReport", "check_stopped", "read_rescue", "rescue"]

MOST_FILES = 10_000
"""About how many files one snapshot takes."""
LOOKERS = 16
"""Threads that ask the storage whether files are there."""
RESCUED = "lakecommit.rescued-from"
"""Summary key of the snapshots that are made here: the connector's group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """One table's share. ``snapshot_ids`` are those that this call made; ``missing`` tells that there is no table."""

    table: str
    judged: tuple[Judged, ...] = ()
    missing: bool = False
    snapshot_ids: tuple[int, ...] = ()
    committed: tuple[Judged, ...] = ()

    @property
    def judgement(self) -> Judgement:
        return Judgement(table=self.table, judged=self.judged)

    def of(self, fate: Fate) -> tuple[Judged, ...]:
        """The files with that fate."""
        return self.judgement.of(fate)

    def to_dict(self) -> dict[str, Any]:
        """For XCom and JSON."""
        counts = {fate.value: _sum(self.of(fate)) for fate in Fate if self.of(fate)}
        return {
            "table": self.table,
            "missing": self.missing,
            "fates": counts,
            "committed": _sum(self.committed),
            "snapshot_ids": list(self.snapshot_ids),
            "refusal": self.refusal,
        }

    @property
    def refusal(self) -> str | None:
        """Why nothing of the table is committed, though files wait."""
        if not (blocking := self.judgement.blocking):
            return None
        first = blocking[0]
        return (
            f"{self.table}: {len(blocking)} files that the connector would still commit cannot be judged or appended, "
            f"the first one being {first.file.path} ({first.reason}). To pass over them would lose them: let the "
            "connector run again, it commits all that it has announced"
        )


def check_stopped(
    kafka: Mapping[str, Any],
    connector: str,
    rest: ConnectRest | None,
    *,
    group: str | None = None,
    stated_gone: bool = False,
) -> None:
    """Nobody may be at work for the connector: not Connect, and not, whatever Connect says, a member of its groups.

    :param rest: Connect, if it can be asked
    :param group: the group in the connector's events, if it is not the one its tasks read in
    :param stated_gone: where it cannot, a person says that the connector is gone
    :raises ConnectorError: somebody is at work, or nobody says that none is
    """
    if rest is not None:
        _check_connect(rest, connector)
    elif not stated_gone:
        raise ConnectorError(
            f"nobody says that connector {connector} is stopped: name its Kafka Connect, or state that it is gone"
        )
    own = source_group(connector)
    for name in dict.fromkeys((own, group or own, f"{group or own}-coord")):
        if members := look_at_group(kafka, name).members:
            raise ConnectorError(
                f"consumer group {name} has {len(members)} members ({', '.join(members[:3])}): connector {connector} "
                "is at work, also while it is paused. Stop it (PUT /connectors/NAME/stop) or delete it, and wait for "
                "its session to end, 45 s by default"
            )


def _check_connect(rest: ConnectRest, connector: str) -> None:
    if connector not in rest.connectors():
        return
    status = rest.status(connector)
    if not status.is_stopped:
        raise ConnectorError(
            f"{status}: its coordinator commits, also while it is paused, and anybody may restart failed tasks. Stop "
            "it (PUT /connectors/NAME/stop) or delete it"
        )


class Rescue:
    """What a control topic holds of one connector, and the tables it was for.

    :param records: all of the topic, in order of time
    :param group: the group id in its events, `connect-NAME` by default
    :param offsets: next source offsets of the group, by topic and partition, if they are known
    """

    def __init__(
        self,
        tables: Tables,
        records: Iterable[ControlRecord],
        *,
        control_topic: str,
        group: str,
        branch: str = MAIN_BRANCH,
        offsets: Mapping[tuple[str, int], int] | None = None,
        most_files: int = MOST_FILES,
        patience: Patience | None = None,
    ) -> None:
        self._tables = tables
        self._branch = branch
        self._group = group
        self._floor_key = f"kafka.connect.offsets.{control_topic}.{group}"
        self._most_files = most_files
        self._patience = patience
        reader = LogReader(group)
        for record in records:
            reader.take(record)
        self.log: GroupLog = reader.log(offsets or {})
        self._contents = reader.contents
        self._lists: dict[int, set[str]] = {}
        self._manifests: dict[str, set[str]] = {}
        self._there: set[str] = set()

    def look(self, names: Collection[str] | None = None) -> tuple[TableReport, ...]:
        """Every file's fate, by table; of all tables that files were announced for, or of these.

        :raises CatalogError: the catalog or the storage is away
        """
        reports = []
        for name in self._chosen(names):
            table = self._tables.find(name)
            judged = () if table is None else self._judge(table, name)[1].judged
            reports.append(TableReport(table=name, judged=judged, missing=table is None))
        return tuple(reports)

    def commit(self, names: Collection[str] | None = None) -> tuple[TableReport, ...]:
        """Commit what waits. A table that refuses does not hold up the others.

        :raises CommitUnknownError: what became of a request cannot be learned
        :raises CatalogError: the catalog or the storage is away
        """
        return tuple(self._commit(name) for name in self._chosen(names))

    def _chosen(self, names: Collection[str] | None) -> tuple[str, ...]:
        return tuple(name for name in self.log.tables if names is None or name in names)

    def _commit(self, name: str) -> TableReport:
        report = TableReport(table=name, missing=self._tables.find(name) is None)
        while not report.missing:
            last: list[Judgement] = []

            def decide(table: Table, last: list[Judgement] = last) -> Addition | None:
                history, judgement = self._judge(table, name)
                last[:] = [judgement]
                return self._addition(table, history, judgement)

            done = append_foreign(self._tables, name, decide, branch=self._branch, patience=self._patience)
            report = replace(report, judged=last[0].judged)
            if done.snapshot_id is None or done.addition is None:
                break
            brought = {f.file_path for f in done.addition.files}
            report = replace(
                report,
                snapshot_ids=(*report.snapshot_ids, done.snapshot_id),
                committed=(*report.committed, *(j for j in report.judged if j.file.path in brought)),
            )
        return report

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(self, table: Table, name: str) -> tuple[History, Judgement]:
        history = self._history(table.metadata)
        judgement = judge(self.log, name, history, self._named(table, name))
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
                Snap(
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
            return {int(partition): int(offset) for partition, offset in json.loads(text).items()}
        except (ValueError, AttributeError, TypeError) as e:
            raise TableError(
                f"snapshot {snapshot.snapshot_id} has {self._floor_key} = {text!r}, which is no control position: "
                "whoever wrote it must say what was committed"
            ) from e

    def _named(self, table: Table, name: str) -> frozenset[str]:
        """Those of the announced paths that any manifest names, deleted entries included. Snapshots and manifests never
        change, so each is read once.
        """
        wanted = {f.path for a in self.log.announced if a.table == name for f in a.files}
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
                f"a manifest of {name} is gone from the storage ({e}): nothing can be said of what the table holds; "
                "restore it, or expire the snapshots that name it"
            ) from e
        except OSError as e:
            raise self._storage_away(table, e) from e
        return frozenset(named)

    def _checked(self, table: Table, judgement: Judgement) -> Judgement:
        """Those that wait and are not on the storage any more are gone."""
        ask = [j.file.path for j in judgement.of(Fate.WAITING) if j.file.path not in self._there]
        try:
            with ThreadPoolExecutor(LOOKERS) as pool:
                found = list(pool.map(lambda path: table.io.new_input(path).exists(), ask))
        except OSError as e:
            raise self._storage_away(table, e) from e
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
            f"the storage of {'.'.join(table.name())} failed ({type(error).__name__}: {error.strerror or error}): "
            "check it; the next attempt goes on from where this one stopped"
        )

    # -- appending ----------------------------------------------------------------------------------------------------

    def _addition(self, table: Table, history: History, judgement: Judgement) -> Addition | None:
        """The first portion of what waits, and the floor past it; with the last portion, past everything."""
        portions = () if judgement.blocking else chunks(judgement.of(Fate.WAITING), self._most_files)
        if not portions:
            return None
        last = portions[0][-1].announced.order if len(portions) > 1 else None
        passed = [j.announced for j in judgement.judged if last is None or j.announced.order <= last]
        floor = {str(p): offset for p, offset in sorted(floor_after(history, passed).items())}
        summary = {self._floor_key: json.dumps(floor, separators=(",", ":")), RESCUED: self._group}
        return Addition(files=tuple(self._appendable(table.metadata, portions[0])), summary=summary)

    def _appendable(self, metadata: TableMetadata, portion: tuple[Judged, ...]) -> Iterable[ManifestFile]:
        spec, schema = metadata.spec(), metadata.schema()
        for j in portion:
            file, fields = self._contents[j.announced.place, j.file.path]
            yield from to_pyiceberg([file], fields, spec=spec, schema=schema)


def read_rescue(
    kafka: Mapping[str, Any],
    tables: Tables,
    *,
    control_topic: str,
    connector: str,
    group: str | None = None,
    branch: str = MAIN_BRANCH,
    patience: Patience | None = None,
) -> Rescue:
    """A rescue over all that the topic holds now.

    :param group: the group in the connector's events, if it is not the one its tasks read in
    :raises ControlTopicError: the topic is not there, or the brokers do not answer
    """
    offsets = look_at_group(kafka, source_group(connector)).offsets
    with ControlTopic(control_topic, kafka) as control:
        return Rescue(
            tables,
            control.read_all(),
            control_topic=control_topic,
            group=group or source_group(connector),
            branch=branch,
            offsets=offsets,
            patience=patience,
        )


def _sum(judged: Sequence[Judged]) -> dict[str, int]:
    files = [j.file for j in judged]
    return {"files": len(files), "rows": sum(f.rows for f in files), "bytes": sum(f.size for f in files)}


def rescue(
    kafka: Mapping[str, Any],
    catalog: Mapping[str, str],
    *,
    control_topic: str,
    connector: str,
    group: str | None,
    branch: str,
    names: Collection[str] | None,
    commit: bool,
) -> tuple[TableReport, ...]:
    """Look, and commit if that is asked for, with a catalog that is let go of at the end.

    :param names: of tables; all that files were announced for by default
    :raises LakecommitError: a part that is needed is away
    """
    with closing(Tables(catalog)) as tables:
        found = read_rescue(kafka, tables, control_topic=control_topic, connector=connector, group=group, branch=branch)
        return found.commit(names) if commit else found.look(names)
