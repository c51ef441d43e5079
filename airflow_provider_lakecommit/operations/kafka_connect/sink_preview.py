# SPDX-License-Identifier: Apache-2.0
"""Preview the takeover of a connector's table, before anything is stopped or written.

Contract: reads only; if the connector is running, the numbers are of this moment. All objections are reported together.

Failure story: a required part that does not answer (the brokers, the catalog, Kafka Connect) is an error of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_provider_lakecommit.core import Coverage, LedgerSection, SourcePartition
from airflow_provider_lakecommit.cycle import LandingSession, prepare
from airflow_provider_lakecommit.exceptions import LakecommitError, Transient
from airflow_provider_lakecommit.iceberg import turn_is_over, was_handed
from airflow_provider_lakecommit.kafka import PartitionLog, SourceState, SourceTopics
from airflow_provider_lakecommit.operations.kafka_connect.connector import KnownConnector, progress_of, rescue_of
from airflow_provider_lakecommit.operations.kafka_connect.disposition import Disposition
from airflow_provider_lakecommit.operations.kafka_connect.rescue import Rescue, RescueReport
from airflow_provider_lakecommit.operations.kafka_connect.section import SinkSection, sink_section
from airflow_provider_lakecommit.operations.kafka_connect.sink import notes_on, reads_earliest, reasons_against
from airflow_provider_lakecommit.operations.kafka_connect.sink_offsets import (
    MADE_ANEW,
    By,
    SinkProgress,
    Turn,
    sink_offsets,
    spans,
    turn_after,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptionPreview:
    """Where the landing would continue, or continues, and the objections. ``next`` are the first offsets that it lands,
    ``read`` the partitions in which the connector has read; ``sink_snapshots`` are those that the connector made after
    the landing had taken its table over.
    """

    landing: str
    table: str
    connector: KnownConnector
    source: SourceState
    progress: SinkProgress
    next: Mapping[SourcePartition, int]
    read: frozenset[SourcePartition]
    report: RescueReport
    turn: Turn
    against: tuple[str, ...]
    notes: tuple[str, ...]
    sink_snapshots: tuple[int, ...] = ()
    reads_again: bool = False
    """The landing reads all that the connector has read in its turn: the table has nothing of it."""

    @property
    def done(self) -> bool:
        """Return True if the landing has already taken it over, and nothing has changed since."""
        return self.turn.done and not self.reads_again and not self.sink_snapshots and not self.connector.runs

    @property
    def removed(self) -> Coverage:
        """Return what the connector has not read and the source no longer has."""
        return spans({p: (offset, self.source.partitions[p].start) for p, offset in self.next.items()})

    def lines(self) -> Iterable[str]:
        yield f"{self.table}: landing {self.landing} would continue after connector {self.connector.name}"
        yield f"  {self.connector.state}; control topic {self.connector.control_topic}"
        for p, offset in sorted(self.next.items()):
            mark = self.source.partitions[p]
            yield f"  {p}: at {offset}, {max(mark.high - offset, 0)} records are left to land"
        if waiting := self.report.of(Disposition.WAITING):
            rows = sum(j.file.rows for j in waiting)
            yield f"  {len(waiting)} files with {rows} rows are announced and not committed: committed first"
        if self.removed:
            yield f"  LOST already, removed by retention before it was read: {_counted(self.removed)}"
        if self.turn.gained:
            yield f"  landed by the connector since the landing's last turn: {_counted(self.turn.gained)}"
        if self.reads_again:
            yield "  no record read by the connector since the hand-back is in the table: the landing reads them again"
        if self.sink_snapshots:
            ids = ", ".join(map(str, self.sink_snapshots))
            yield f"  the connector has committed after it was taken over, in snapshots {ids}"
        yield from (f"  note: {note}" for note in self.notes)
        yield from (f"  AGAINST: {reason}" for reason in self.against)

    def to_dict(self) -> dict[str, Any]:
        marks = self.source.partitions
        left = spans({p: (max(offset, marks[p].start), marks[p].high) for p, offset in self.next.items()})
        return {
            "landing": self.landing,
            "table": self.table,
            "connector": self.connector.name,
            "state": self.connector.state,
            "next": {str(p): offset for p, offset in sorted(self.next.items())},
            "left": left.to_dict(),
            "removed": self.removed.to_dict(),
            "announced": self.report.to_dict(),
            "twice": self.turn.twice.to_dict(),
            "gained": self.turn.gained.to_dict(),
            "reads_again": self.reads_again,
            "against": list(self.against),
            "notes": list(self.notes),
            "done": self.done,
        }


def adoption_preview(
    session: LandingSession, connector: KnownConnector, *, doubled_stay: bool = False
) -> AdoptionPreview:
    """Return the preview.

    :param doubled_stay: the user accepts duplicates in the table
    :raises LakecommitError: a required part is unreachable
    """
    session.control.ensure()
    return preview_of(session, connector, rescue_of(session, connector), doubled_stay=doubled_stay)


def preview_of(
    session: LandingSession, connector: KnownConnector, log: Rescue, *, doubled_stay: bool
) -> AdoptionPreview:
    landing, config, progress = session.landing, connector.config, progress_of(session, connector, log)
    source = session.source.watermarks()
    report = next(iter(log.check([landing.table])), RescueReport(table=landing.table, unread=log.log.unread))
    ours = sink_section(session, landing.table, connector.group)
    known, earliest = ours.known(source.partitions), reads_earliest(config or {})
    ends, problems = sink_offsets(progress, source.partitions, by=connector.by, known=known, earliest=earliest)
    read = frozenset(p for p in source.partitions if (p.topic, p.partition) in progress.read)
    mine = ours.section if ours.has_nothing_of(connector.name) else None
    handed = mine is not None and was_handed(mine)
    lands = mine is not None and mine.sink is not None and mine.sink.lands
    reads_again = (
        mine is not None and handed and not (lands and (turn_is_over(mine, source.partitions) or _all_wait(report)))
    )
    if mine is not None and (reads_again or not handed):
        # Nothing that it may have read since is in the table: the landing reads it, whatever its offsets are.
        ends, read, problems = {p: mine.end(p) for p in ends}, frozenset(), ()
    turn = turn_after(connector.name, ours.section, ends, read)
    if mine is not None and not handed:
        turn = Turn(starts=mine.starts, covered=mine.covered, done=True)
    against = [*_of_config(session, connector, log, progress)]
    if ours.section is None or connector.by is By.OFFSETS or not turn_is_over(ours.section, source.partitions):
        against += problems
    else:
        against.append(f"topic {', '.join(sorted({p.topic for p in source.partitions}))}: {MADE_ANEW}")
    against += [] if turn.done or reads_again else [*_of_files(report), *_made_anew(session, source, log, ends)]
    against += [] if reads_again or connector.by is By.OFFSETS else _of_rollback(connector.name, ours)
    against += _of_turn(session, ours.section, source, turn, doubled_stay=doubled_stay)
    return AdoptionPreview(
        landing=landing.name,
        table=landing.table,
        connector=connector,
        source=source,
        progress=progress,
        next=ends,
        read=read,
        report=report,
        turn=turn,
        against=tuple(against),
        notes=tuple(notes_on(landing, config)) if config else (),
        sink_snapshots=tuple(s.snapshot_id for s in ours.late),
        reads_again=reads_again,
    )


def _of_config(
    session: LandingSession, connector: KnownConnector, log: Rescue, progress: SinkProgress
) -> Iterable[str]:
    landing, topics = session.landing, progress.topics
    if connector.config is not None:
        yield from reasons_against(landing, connector.name, connector.config, topics)
        return
    if others := sorted(set(log.log.tables) - {landing.table}):
        yield f"it has also announced files for {', '.join(others)}, and its offsets apply to all its tables"
    if not topics:
        yield f"its consumer group has no offsets; Kafka removes them with a deleted topic, and if so, {MADE_ANEW}"
    elif topics != set(landing.topic_names):
        yield f"it read {', '.join(sorted(topics))}, but the landing reads other topics"


def _of_files(report: RescueReport) -> Iterable[str]:
    if report.missing:
        yield f"there is no table {report.table}"
    if report.refusal:
        yield report.refusal
    if report.unread:
        yield f"{len(report.unread)} of its events cannot be read, first {report.unread[0]}"
    # Files that it skipped itself are lost already; it would commit the others.
    if left := [j for j in report.left_out if not j.below_floor]:
        yield (
            f"{len(left)} announced files are missing or not as announced ({left[0].file.path}: {left[0].reason}). "
            f"Their rows are in no table, and the landing would not read them: restore the files"
        )


def _all_wait(report: RescueReport) -> bool:
    """Return True if there are files of its present turn, and each can still be committed."""
    its = [j for j in report.files if not j.below_floor and j.disposition is not Disposition.READ_AGAIN]
    return bool(its) and all(j.disposition is Disposition.WAITING for j in its)


def _of_rollback(connector: str, ours: SinkSection) -> Iterable[str]:
    """Return an objection if its offsets are after removed rows."""
    turn = ours.turn
    if ours.section is not None and ours.late and was_handed(ours.section):
        yield (
            f"the branch was rolled back to before it was handed to connector {connector}, which has committed since, "
            f"and lacks rows before its commits: roll the branch back to snapshot {turn.before}, then the landing "
            "reads all again; or adopt it with --by offsets, and these rows stay missing"
        )
    if not turn.rolled_back:
        return
    ids = ", ".join(str(s.snapshot_id) for s in turn.rolled_back)
    ways = [f"roll the branch forward to snapshot {turn.forward}"] if turn.forward else []
    ways += [f"roll the branch back to snapshot {turn.before}, then the landing reads all again"] if turn.before else []
    ways += [
        "set the offsets of its consumer group to the end of the table, or leave them if these rows must stay removed, "
        "and adopt it with --by offsets"
    ]
    yield (
        f"the branch was rolled back, and no longer has snapshot {ids} of connector {connector}, which has "
        f"read past its records: {'; or '.join(ways)}"
    )


def _made_anew(
    session: LandingSession, source: SourceState, log: Rescue, next_offsets: Mapping[SourcePartition, int]
) -> Iterable[str]:
    """Return topics whose newest record read by the connector has changed; one partition of each is checked, and a
    missing record proves nothing.
    """
    read_at = {p: log.log.last_read.get((p.topic, p.partition)) for p in source.partitions}
    ends = {p: log.log.ends.get((p.topic, p.partition), 0) for p, at in read_at.items() if at is not None}
    newest = {p.topic: p for p in sorted(ends, key=lambda p: ends[p])}
    with closing(SourceTopics(session.kafka, tuple(newest))) as topics:
        for p in newest.values():
            end, at = ends[p], read_at[p]
            if next_offsets.get(p) != end or at is None:
                continue
            log_of_partition = PartitionLog(kafka=session.kafka, topics=topics, partition=p, mark=source.partitions[p])
            for record in log_of_partition.records(end - 1, end):
                if (made := datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC)) != at:
                    yield (
                        f"{p}: the record before offset {end} is of {made.isoformat()}, but the connector has read "
                        f"one of {at.isoformat()} there: {MADE_ANEW}"
                    )


def _of_turn(
    session: LandingSession, section: LedgerSection | None, source: SourceState, turn: Turn, *, doubled_stay: bool
) -> Iterable[str]:
    if turn.refused:
        yield turn.refused
    if turn.back:
        yield (
            f"{_counted(turn.back)} was landed before the table was handed back, but the connector's offsets are "
            f"lower, so it reads these records again, or already has"
        )
    if turn.twice and not doubled_stay:
        yield (
            f"{_counted(turn.twice)} is in the table twice: the landing and the connector have landed it. Remove "
            f"one copy by rolling the branch back to before the connector's snapshots, or keep the duplicates "
            f"with --doubled-stay"
        )
    if section is not None and section.cluster_id != source.cluster_id:
        yield f"the ledger is of Kafka cluster {section.cluster_id}, but these brokers are {source.cluster_id}"
    if section is None:
        try:
            prepare(session, source, dry=True)
        except LakecommitError as e:
            if isinstance(e, Transient):
                raise
            yield str(e)
    table = session.tables.find(session.landing.table)
    if table is not None and table.metadata.format_version < 2:
        yield "the table has format version 1, whose snapshots have no sequence numbers: upgrade it"


def _counted(coverage: Coverage) -> str:
    return f"{coverage} ({len(coverage)} offsets)"
