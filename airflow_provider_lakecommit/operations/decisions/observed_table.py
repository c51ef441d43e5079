# SPDX-License-Identifier: Apache-2.0
"""What is known of a table before a decision: its ledger, the log's records of it, and whether a decision is possible.

Contract: reads only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.control import ControlLog, lanes_in, read_entries
from airflow_provider_lakecommit.core import (
    RESET_ASSERT,
    RESET_OFFSETS,
    Coverage,
    Entry,
    LedgerSection,
    SourcePartition,
    TablePublished,
    announced_in,
    rows_of,
)
from airflow_provider_lakecommit.cycle import LandingSession, known_section
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg import Condition, LedgerState, ancestry, has_ledger, read_ledger
from airflow_provider_lakecommit.kafka import SourceState


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTable:
    """The current state of one table, and all that the control partition still holds, from ``begin`` on. ``others`` are
    the entries of the landing's other streams, by stream.
    """

    name: str
    table: Table
    state: LedgerState
    own: LedgerSection | None
    entries: Sequence[Entry]
    begin: int
    others: tuple[Sequence[Entry], ...] = ()

    @property
    def announced(self) -> Coverage:
        """Return what the log reports as published in it, by any stream of the landing."""
        streams = (self.entries, *self.others)
        return Coverage.union(announced_in(entries, self.name, self.state.table_uuid) for entries in streams)

    @property
    def all_entries(self) -> Sequence[Entry]:
        """Return the entries of all streams, the landing's own last."""
        return [*chain.from_iterable(self.others), *self.entries]

    @property
    def announced_of_any(self) -> Coverage:
        """Return what was published in any table."""
        announced = (e for e in self.entries if isinstance(e, TablePublished))
        return Coverage.union(e.coverage for e in announced)

    @property
    def on_branch(self) -> frozenset[int]:
        """Return the snapshots whose rows are on the branch: its ancestry, and if that was cut, the ledger before the
        cut.
        """
        line = {s.snapshot_id for s in ancestry(self.table.metadata, self.state.branch)}
        tag = {self.state.tag_id} if self.state.condition is Condition.CUT and self.state.tag_id is not None else set()
        return frozenset(line | tag)

    @property
    def taken_back(self) -> Coverage:
        """Return what was published by snapshots that are still in the metadata but not on the branch, and by none that
        is: rows that a rollback removed, also one to before the first ledger of this landing.
        """
        metadata = self.table.metadata
        there = {s.snapshot_id for s in ancestry(metadata, self.state.branch)}
        elsewhere = {s.snapshot_id for s in metadata.snapshots} - there
        announced = [e for e in self.all_entries if isinstance(e, TablePublished) and e.table == self.name]
        removed = Coverage.union(e.coverage for e in announced if e.snapshot_id in elsewhere)
        return removed - Coverage.union(e.coverage for e in announced if e.snapshot_id not in elsewhere)

    @property
    def rows(self) -> int | None:
        """Return the rows of the table, by its newest snapshot."""
        head = self.table.metadata.snapshot_by_id(self.state.head_id) if self.state.head_id is not None else None
        if head is None:
            return 0
        total = head.summary.additional_properties.get("total-records", "") if head.summary else ""
        return int(total) if total.isdecimal() else None


def check_log(session: LandingSession, known: KnownTable, landed: Coverage) -> None:
    """Raise unless the table can hold what the log reports."""
    remedy = f"state what the table holds with `{RESET_ASSERT} SPEC --at TOPIC:PARTITION=OFFSET,…`"
    newest = Coverage.union(s.covered for s in known.state.known_sections if s.landing == session.landing.name)
    if known_section(session, known.state) is not None and (more := landed - newest):
        snapshot = known.state.snapshot_id or known.state.tag_id or "ID"
        raise LedgerError(
            "LC7014",
            f"{known.name}: the log of {session.control.name} reports that {more} was published, but the newest ledger "
            "in the metadata does not have it: the table was rolled back, or an operator gave the range up. If that "
            f"ledger is right, use `{RESET_ASSERT} SPEC --snapshot {snapshot}`; if not, {remedy}",
        )
    if back := landed & known.taken_back:
        raise LedgerError(
            "LC7015",
            f"{known.name}: the log of {session.control.name} reports that {back} was published, by snapshots that a "
            f"rollback has removed from branch {known.state.branch}, with their rows. To read again what the source "
            f"still has, run `{RESET_OFFSETS} SPEC --from earliest`; if the rows were restored, {remedy}",
        )
    rows, count = known.rows, rows_of(known.all_entries, known.name, landed)
    if rows is not None and rows < count:
        raise LedgerError(
            "LC7016",
            f"{known.name} has {rows} rows, but the log of {session.control.name} reports {count} published rows: some "
            f"were rolled back or removed, and the log does not show which; {remedy}",
        )


def check_topics(name: str, starts: Mapping[SourcePartition, int], covered: Coverage, source: SourceState) -> None:
    """Raise an error unless it is possible for the current topics."""
    ids = source.topic_ids
    if strange := sorted({p.topic for p in starts.keys() | covered.parts.keys() if p.topic_id != ids.get(p.topic)}):
        raise SourceError(
            "LC7017",
            f"{name}: that ledger is of topic {', '.join(strange)} under another id, or of a topic that this landing "
            f"does not read. Offsets of a recreated topic are other records: run `{RESET_OFFSETS} SPEC --from "
            "earliest` to start over",
        )
    for p, s in sorted(covered.parts.items()):
        mark = source.partitions.get(p)
        if mark is None or s.ranges[-1].end > mark.high:
            end = "does not exist" if mark is None else f"ends at {mark.high}"
            raise SourceError("LC7018", f"{name} cannot hold {p} {s}: the partition {end}; check the cluster")


def known_table(session: LandingSession, name: str, log: ControlLog) -> KnownTable:
    table = session.tables.load(name)
    state, landing = read_ledger(table.metadata, session.landing.branch), session.landing.name
    return KnownTable(
        name=name,
        table=table,
        state=state,
        own=state.section(landing, session.lane),
        entries=read_entries(log.records, landing, session.lane),
        begin=log.begin,
        others=tuple(
            read_entries(log.records, landing, lane) for lane in sorted(lanes_in(log.records, landing) - {session.lane})
        ),
    )


def first_known(p: SourcePartition, known: KnownTable, start: int | None) -> int | None:
    """Return where a partition begins: at the log's oldest commit to *any* table, because a table without rows is
    announced late; ``None`` if unknown.
    """
    if announced := known.announced_of_any[p]:
        return announced.ranges[0].start
    return 0 if start is None and not known.begin else start


def with_ledger(metadata: TableMetadata) -> str:
    return ", ".join(str(s.snapshot_id) for s in metadata.snapshots if has_ledger(s)) or "none"
