# SPDX-License-Identifier: Apache-2.0
"""Commit files that an Iceberg sink of Kafka Connect announced and never committed, in its place.

Contract: :meth:`Rescue.check` reads only; it returns the disposition of every announced file. :meth:`Rescue.commit`
decides on the very table state that its request asserts (:mod:`~airflow_provider_lakecommit.iceberg.ledger.swap`), only
by the rules of :mod:`~airflow_provider_lakecommit.operations.kafka_connect.disposition`. Each snapshot also moves the
connector's control position past its files, so a connector that runs again skips them. So it may be repeated, run twice
at once, or be killed at any point: no file is in the table twice.

Refused as a whole: while the connector, or a coordinator of it, is active
(:mod:`~airflow_provider_lakecommit.operations.kafka_connect.connector`); a table with a file that the connector would
still commit and we may not; a table that a landing has taken over, because the landing lands the records of waiting
files itself.

Failure story: an unreachable catalog or storage ends it with an error; earlier commits stay, and the next attempt does
the rest. A worker that was cut off from Kafka and still hangs in a commit cannot be detected: a sink from 1.11 on
notices the moved position and fails; an older one duplicates the rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.manifest import DataFile as ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.control import ControlTopic
from airflow_provider_lakecommit.core import CONNECT_ADOPT, source_group
from airflow_provider_lakecommit.exceptions import ConnectorError
from airflow_provider_lakecommit.iceberg import (
    ADOPTED_FROM,
    RESCUED,
    Change,
    Tables,
    compare_and_swap,
    read_ledger,
    stage_untagged,
    to_pyiceberg,
)
from airflow_provider_lakecommit.kafka import offsets_of_group
from airflow_provider_lakecommit.operations.kafka_connect.announced import LogReader
from airflow_provider_lakecommit.operations.kafka_connect.disposition import (
    Disposition,
    EvaluatedFile,
    GroupLog,
    History,
    blocking_files,
    chunks,
    filtered,
    floor_after,
)
from airflow_provider_lakecommit.operations.kafka_connect.evidence import Evidence

MOST_FILES = 10_000
"""Approximate number of files in one snapshot."""
RESCUED_BY = "lakecommit.rescued-by"
"""Summary key of the user, host and reason of the commit, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueReport:
    """The result for one table. ``snapshot_ids`` are those of this call; ``missing`` is set if the table does not
    exist. ``unread`` are unreadable events of the connector, each with its ``partition@offset``: which files they
    announced, and for which table, is unknown. ``taken_by`` is a landing that has taken the table over.
    """

    table: str
    files: tuple[EvaluatedFile, ...] = ()
    missing: bool = False
    snapshot_ids: tuple[int, ...] = ()
    committed: tuple[EvaluatedFile, ...] = ()
    unread: tuple[str, ...] = ()
    taken_by: str = ""

    def of(self, disposition: Disposition) -> tuple[EvaluatedFile, ...]:
        """Return the files with that disposition."""
        return filtered(self.files, disposition)

    @property
    def left_out(self) -> tuple[EvaluatedFile, ...]:
        """Return announced files that are missing or differ: an operator must check them."""
        return (*self.of(Disposition.GONE), *self.of(Disposition.FALSE))

    def to_dict(self) -> dict[str, Any]:
        """Return it for XCom and JSON."""
        counts = {disposition.value: _sum(self.of(disposition)) for disposition in Disposition if self.of(disposition)}
        return {
            "table": self.table,
            "missing": self.missing,
            "fates": counts,
            "committed": _sum(self.committed),
            "snapshot_ids": list(self.snapshot_ids),
            "refusal": self.refusal,
            **({"unread": list(self.unread)} if self.unread else {}),
        }

    @property
    def refusal(self) -> str | None:
        """Return why nothing of the table is committed although files wait."""
        if self.taken_by and (waiting := self.of(Disposition.WAITING)):
            return (
                f"{self.table}: landing {self.taken_by} has taken it over, and lands the records of {len(waiting)} "
                f"waiting files itself: run `{CONNECT_ADOPT} SPEC --connector NAME --connect URL`, which leaves these "
                "files out"
            )
        if not (blocking := blocking_files(self.files)):
            return None
        first = blocking[0]
        return (
            f"{self.table}: {len(blocking)} files that the connector would still commit cannot be evaluated or "
            f"appended, first {first.file.path} ({first.reason}). Skipping them would lose them: let the connector run "
            "again; it commits everything that it has announced"
        )


class Rescue:
    """The present content of a control topic for one connector, and its tables.

    :param group: the group in the connector's events, if its tasks read in another one
    :param by: user, host and reason, for the snapshots' summaries
    :param taken_over: also commit in a table that a landing has taken over
    :raises ControlTopicError: the topic is missing, or the brokers do not answer
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        tables: Tables,
        *,
        control_topic: str,
        connector: str,
        group: str | None = None,
        branch: str = MAIN_BRANCH,
        by: str = "",
        taken_over: bool = False,
    ) -> None:
        self._tables, self._branch, self._by, self._taken_over = tables, branch, by, taken_over
        self._group = group or source_group(connector)
        self._floor_key = f"kafka.connect.offsets.{control_topic}.{self._group}"
        offsets = offsets_of_group(kafka, source_group(connector))
        reader = LogReader(self._group)
        with ControlTopic(control_topic, kafka) as control:
            records = control.read_all()
            # If the topic is recreated, its offsets begin again.
            self._mark = f"{self._group}@{control.describe().topic_id}"
            for record in records:
                reader.take(record)
        self.log: GroupLog = reader.log(offsets)
        self._contents = reader.contents
        self._evidence = Evidence(self.log, branch=branch, floor_key=self._floor_key, mark=self._mark)

    def check(self, names: Collection[str] | None = None) -> tuple[RescueReport, ...]:
        """Return every file's disposition, by table; of all tables with announced files, or of these."""
        reports = []
        for name in self._chosen(names):
            table = self._tables.find(name)
            files = () if table is None else self._evidence.evaluate(table, name)[1]
            report = RescueReport(table=name, files=files, missing=table is None, unread=self.log.unread)
            reports.append(replace(report, taken_by="" if table is None else self._taken_by(table)))
        return tuple(reports)

    def commit(self, names: Collection[str] | None = None) -> tuple[RescueReport, ...]:
        """Commit waiting files. A table that fails does not delay the others.

        :raises CommitUnknownError: the outcome of a request stays unknown
        """
        return tuple(self._commit(name) for name in self._chosen(names))

    def end_turn(self, name: str) -> int:
        """Mark everything in the connector's control topic as done, by a snapshot without files, unless this is
        recorded already. Decided on a table state in which no file waits.

        :return: the sequence number of that state, or of the snapshot
        :raises ConnectorError: files wait, or the connector would still commit some with an unknown or unfit
            disposition
        :raises CatalogError: the catalog or the storage is unreachable
        """

        def decide(table: Table) -> Change[None] | None:
            history, files = self._evidence.evaluate(table, name)
            blocking = blocking_files(files)
            if left := (*blocking, *filtered(files, Disposition.WAITING)):
                remedy = (
                    "let the connector run until it has committed everything that it has announced, then stop it and "
                    "run this command again"
                    if blocking
                    else f"run `{CONNECT_ADOPT} SPEC --connector NAME --connect URL`, which commits them, then this "
                    "command again"
                )
                raise ConnectorError(
                    "LC7517",
                    f"{name}: {len(left)} announced files are not committed, first {left[0].file.path} "
                    f"({left[0].reason}): {remedy}",
                )
            floor = {p: max(offset, history.floor.get(p, 0)) for p, offset in self.log.read_to.items()}
            floor = {**history.floor, **floor}
            if floor == history.floor and all(history.done.get(p, 0) >= o for p, o in self.log.read_to.items()):
                return None
            return Change(files=(), summary={**self._summary(floor), ADOPTED_FROM: self._mark}, why=None)

        done = compare_and_swap(self._tables, name, self._branch, decide, staging=stage_untagged)
        snapshot = None if done.snapshot_id is None else done.metadata.snapshot_by_id(done.snapshot_id)
        return (snapshot.sequence_number if snapshot else getattr(done.metadata, "last_sequence_number", 0)) or 0

    def _summary(self, floor: Mapping[int, int]) -> dict[str, str]:
        """Return the summary of a snapshot with the position up to which the connector is done."""
        text = json.dumps({str(p): offset for p, offset in sorted(floor.items())}, separators=(",", ":"))
        return {self._floor_key: text, **({RESCUED_BY: self._by} if self._by else {})}

    def _chosen(self, names: Collection[str] | None) -> tuple[str, ...]:
        return tuple(name for name in self.log.tables if names is None or name in names)

    def _commit(self, name: str) -> RescueReport:
        report = RescueReport(table=name, missing=self._tables.find(name) is None, unread=self.log.unread)

        def decide(table: Table) -> Change[None] | None:
            nonlocal report
            history, files = self._evidence.evaluate(table, name)
            report = replace(report, files=files, taken_by=self._taken_by(table))
            return None if report.taken_by else self._change(table, history, files)

        while not report.missing:
            done = compare_and_swap(self._tables, name, self._branch, decide, staging=stage_untagged)
            if done.snapshot_id is None or done.landed is None:
                break
            brought = {f.file_path for f in done.landed.files}
            report = replace(
                report,
                snapshot_ids=(*report.snapshot_ids, done.snapshot_id),
                committed=(*report.committed, *(j for j in report.files if j.file.path in brought)),
            )
        return report

    def _taken_by(self, table: Table) -> str:
        sections = () if self._taken_over else read_ledger(table.metadata, self._branch).known_sections
        sinks = ((s.landing, s.sink) for s in sections if s.sink is not None)
        return next((landing for landing, sink in sinks if sink.group == self._group and not sink.lands), "")

    def _change(self, table: Table, history: History, files: tuple[EvaluatedFile, ...]) -> Change[None] | None:
        """Return the first portion of the waiting files, and the floor past it; with the last portion, past
        everything.
        """
        portions = () if blocking_files(files) else chunks(filtered(files, Disposition.WAITING), MOST_FILES)
        if not portions:
            return None
        last = portions[0][-1].announced.order if len(portions) > 1 else None
        passed = [j.announced for j in files if last is None or j.announced.order <= last]
        summary = {**self._summary(floor_after(history, passed)), RESCUED: self._group}
        return Change(files=tuple(self._appendable(table.metadata, portions[0])), summary=summary, why=None)

    def _appendable(self, metadata: TableMetadata, portion: tuple[EvaluatedFile, ...]) -> Iterable[ManifestFile]:
        spec, schema = metadata.spec(), metadata.schema()
        for j in portion:
            file, fields = self._contents[j.announced.position, j.file.path]
            yield from to_pyiceberg([file], fields, spec=spec, schema=schema)


def _sum(some: Sequence[EvaluatedFile]) -> dict[str, int]:
    files = [j.file for j in some]
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
    by: str = "",
) -> tuple[RescueReport, ...]:
    """Evaluate files, and commit on request, with a catalog that is closed at the end.

    :param names: of tables; all with announced files by default
    :param by: see :class:`Rescue`
    :raises ConnectorError: all events that may have announced files cannot be read
    :raises LakecommitError: a required part is unreachable
    """
    with closing(Tables(catalog)) as tables:
        found = Rescue(
            kafka, tables, control_topic=control_topic, connector=connector, group=group, branch=branch, by=by
        )
        if found.log.unread and not found.log.tables:
            raise unreadable(connector, found.log.unread)
        return found.commit(names) if commit else found.check(names)


def unreadable(connector: str, unread: Sequence[str]) -> ConnectorError:
    """Return the error about events that cannot be read."""
    return ConnectorError(
        "LC7529",
        f"{len(unread)} events of connector {connector} cannot be read, first {unread[0]}: it is unknown which files "
        "they announced, and these are left out. Find them in the storage, or read their records again from the source",
    )
