# SPDX-License-Identifier: Apache-2.0
"""A person's word on what a table holds, where its metadata does not tell any more: `lakecommit ledger attest`.

Contract: :func:`look_up` reads and writes nothing; what it gives is what :func:`attest` then writes, by one
compare-and-swap per table that is refused if the ledger of that table has changed since. The section that is written
has a new epoch, so nothing that was pending is committed to it, and its snapshot says where the word came from. Unlike
``ledger init`` an attested ledger may also go *back*: the person answers for the rows, and is shown beforehand which
offsets would be read again and which never.

A log does not know what became of a table afterwards: where the metadata remember a ledger that has less, or the table
has fewer rows than the log says, its word is refused. What is reported and the source no longer has is not voided: it
is published before, or the section keeps the epoch where the word is that of the newest ledger; else it has to be given
up by a word of its own.

Failure story: killed in between, some tables have the attested ledger and some have not; the same command can be given
again. A word that cannot be true (offsets past the end of the log, another topic) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState, read_ledger
from airflow_provider_lakecommit.committer.ledger_updates import OtherSections, attest_section
from airflow_provider_lakecommit.committer.summary import has_ledger, sections_of
from airflow_provider_lakecommit.core.announced import announced_in, rows_of
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.log import Entry, TablePublished, Unreadable
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning import Watermark
from airflow_provider_lakecommit.core.routing import Role, role_of
from airflow_provider_lakecommit.core.truncation import positions_up_to
from airflow_provider_lakecommit.core.voiding import Loss, irreplaceable, losses, losses_text
from airflow_provider_lakecommit.cycle.epochs import new_section, origin_position
from airflow_provider_lakecommit.cycle.pending import endangered, known_section, known_state
from airflow_provider_lakecommit.cycle.session import LandingSession
from airflow_provider_lakecommit.cycle.write import read_entries
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.kafka.control_log import ControlLog
from airflow_provider_lakecommit.kafka.source_topic import SourceState

__all__ = ["Attested", "AttestedTable", "attest", "from_log", "from_offsets", "from_snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestedTable:
    """What is about to be said of one table. ``before`` is what its ledger says now, ``announced`` what the control log
    says was published in it; ``others`` are sections of other landings that come back with the named snapshot, ``old``
    is the newest section that is known. A new epoch would have ``lost`` what is reported and cannot be read again;
    ``endangered`` is the same of other landings, by the epochs of their sections. ``rows`` are those of the table now,
    of all writers.
    """

    table: str
    word: str
    state: LedgerState
    section: LedgerSection
    before: Coverage
    announced: Coverage
    others: tuple[LedgerSection, ...] | None = None
    old: LedgerSection | None = None
    lost: tuple[Loss, ...] = ()
    endangered: Mapping[UUID, str] = field(default_factory=dict)
    rows: int | None = None

    @property
    def kept(self) -> LedgerSection | None:
        """The section under the epoch that it had, where the word is what the newest ledger said: then what is reported
        for it can be published still.
        """
        if self.old is None or self.state.condition is not Condition.CUT or self.old.covered != self.section.covered:
            return None
        return replace(self.section, epoch=self.old.epoch, control=self.old.control)

    @property
    def others_lost(self) -> tuple[str, ...]:
        """What others have reported and would lose: sections that come back keep their epochs, those of a table that
        was rolled back cannot.
        """
        return tuple(self.endangered.values()) if self.state.condition is Condition.ROLLED_BACK else ()

    @property
    def loses(self) -> str:
        """What is reported and would be lost."""
        own = losses_text(self.lost) if self.lost and self.kept is None else ""
        return "; ".join(filter(None, (own, *self.others_lost)))

    @property
    def again(self) -> Coverage:
        """Landed by the ledger or the log, and not by this word: read again, so doubled if the rows are there."""
        return (self.before | self.announced) - self.section.covered

    @property
    def unsaid(self) -> Coverage:
        """Landed by this word only: never read, so lost if the rows are not there."""
        return self.section.covered - self.before - self.announced


@dataclass(frozen=True, slots=True, kw_only=True)
class Attested:
    """The whole of it."""

    tables: tuple[AttestedTable, ...]
    marks: Mapping[SourcePartition, Watermark]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """One table as it is, for making the word, and all that the control partition still holds, from ``begin`` on."""

    name: str
    table: Table
    state: LedgerState
    own: LedgerSection | None
    entries: Sequence[Entry]
    begin: int

    @property
    def announced(self) -> Coverage:
        """What the log says was published in it."""
        return announced_in(self.entries, self.name, self.state.table_uuid)

    @property
    def announced_of_any(self) -> Coverage:
        """What was published in any table."""
        said = (e for e in self.entries if isinstance(e, TablePublished))
        return Coverage.of(item for e in said for item in e.coverage.items())

    @property
    def rows(self) -> int | None:
        """Rows of the table, as its newest snapshot counts them."""
        head = self.table.metadata.snapshot_by_id(self.state.head_id) if self.state.head_id is not None else None
        if head is None:
            return 0
        total = head.summary.additional_properties.get("total-records", "") if head.summary else ""
        return int(total) if total.isdecimal() else None


Said = tuple[str, Mapping[SourcePartition, int], Coverage, tuple[LedgerSection, ...] | None]
"""Where a word is from, the first offsets, what is landed, and sections of others."""
Word = Callable[[_Known, SourceState], Said]


def from_snapshot(session: LandingSession, snapshot_id: int) -> Attested:
    """The word that the table which has this snapshot holds what the ledger in it says.

    :raises LedgerError: no table of the landing has such a snapshot, or there is no ledger of this landing in it
    :raises WireError: the ledger in it is damaged
    """
    tables = [(name, t) for name in session.landing.tables if (t := session.tables.find(name)) is not None]
    name = next((n for n, t in tables if t.metadata.snapshot_by_id(snapshot_id) is not None), None)
    if name is None:
        raise LedgerError(
            f"no table of landing {session.landing.name} has a snapshot {snapshot_id}; with a ledger there are: "
            f"{'; '.join(f'{n}: {_with_ledger(t.metadata)}' for n, t in tables) or 'none'}"
        )

    def word(known: _Known, _: SourceState) -> Said:
        snapshot = known.table.metadata.snapshot_by_id(snapshot_id)
        sections = sections_of(snapshot) if snapshot is not None and has_ledger(snapshot) else ()
        own = next((s for s in sections if (s.landing, s.lane) == (session.landing.name, session.lane)), None)
        if own is None:
            raise LedgerError(
                f"snapshot {snapshot_id} of {name} holds no ledger of landing {session.landing.name}; these do: "
                f"{_with_ledger(known.table.metadata)}"
            )
        return f"snapshot {snapshot_id}", own.starts, own.covered, tuple(s for s in sections if s is not own)

    return _said(session, (name,), word)


def from_log(session: LandingSession, tables: Sequence[str] | None = None) -> Attested:
    """The word that a table holds what the control log says was published in it. What the log has forgotten is taken to
    be in the table too: all before the oldest range of a partition that it remembers.

    :param tables: by default those whose ledger is not in order
    :raises LedgerError: the log remembers nothing of them, or holds what cannot be read
    """

    def word(known: _Known, source: SourceState) -> Said:
        if unread := next((e for e in known.entries if isinstance(e, Unreadable)), None):
            raise LedgerError(
                f"{known.name}: a record of {session.control.name} at offset {unread.offset} cannot be read, and may "
                f"tell of a commit ({unread.reason}): say what the table holds with `lakecommit ledger attest SPEC "
                f"--snapshot ID` or `--at TOPIC:PARTITION=OFFSET,…`"
            )
        if not known.announced and role_of(session.landing.destinations, known.name) is Role.ROWS:
            raise LedgerError(
                f"control topic {session.control.name} remembers no commit of landing {session.landing.name} to "
                f"{known.name}: say what it holds with `lakecommit ledger attest SPEC --at TOPIC:PARTITION=OFFSET,…`"
            )
        landed = Coverage({p: s for p, s in known.announced.parts.items() if p in source.partitions})
        own = known.own.starts if known.own else {}
        starts = {p: _first(p, known, own.get(p)) for p in source.partitions}
        if unknown := sorted(p for p, start in starts.items() if start is None and source.partitions[p].high):
            raise LedgerError(
                f"{known.name}: the log of {session.control.name} was cut by its retention and remembers nothing of "
                f"{', '.join(map(str, unknown))}: say what the table holds with `lakecommit ledger attest SPEC --at "
                f"TOPIC:PARTITION=OFFSET,…`"
            )
        _check_log(session, known, landed)
        return f"the log of {session.control.name}", {p: s or 0 for p, s in starts.items()}, landed, None

    return _said(session, tables, word)


def from_offsets(
    session: LandingSession, at: Mapping[tuple[str, int], int], tables: Sequence[str] | None = None
) -> Attested:
    """The word that a table holds everything below these offsets, by (topic, partition).

    :param tables: by default those whose ledger is not in order
    :raises SourceError: there is no such partition
    :raises LedgerError: a partition is not named, and no ledger tells of it
    """

    def word(known: _Known, source: SourceState) -> Said:
        places = {(p.topic, p.partition): p for p in source.partitions}
        if strange := [f"{t}[{n}]" for t, n in at if (t, n) not in places]:
            raise SourceError(f"{', '.join(strange)}: the source has no such partition")
        starts = {p: known.own.starts.get(p, 0) if known.own else 0 for p in source.partitions}
        unnamed = [p for place, p in places.items() if place not in at]
        if unnamed and known.own is None:
            raise LedgerError(
                f"{known.name} has no ledger that tells of {', '.join(map(str, sorted(unnamed)))}: name them too, with "
                f"0 where nothing is landed"
            )
        parts = {p: known.own.covered[p] for p in unnamed} if known.own else {}
        for (topic, number), offset in at.items():
            p = places[topic, number]
            starts[p] = min(starts[p], offset)
            parts[p] = RangeSet.of(OffsetRange(starts[p], offset))
        return "a person's offsets", starts, Coverage(parts), None

    return _said(session, tables, word)


def attest(
    session: LandingSession,
    said: Attested,
    *,
    decision: Decision | None = None,
    give_up_reported: bool = False,
    rows_of_others: OtherSections = OtherSections.ASK,
) -> dict[str, Any]:
    """Write it.

    :param decision: who says it, for the tables' history
    :param give_up_reported: also what is reported and the source has no more
    :param rows_of_others: the person's word on them, where the ledger is lost
    :raises LedgerError: the ledger of a table has changed since it was looked up, or what is reported would be lost
    :raises CatalogError: the catalog is away
    """
    if not give_up_reported and (lost := [t for t in said.tables if t.loses]):
        raise LedgerError(
            f"{'; '.join(f'{t.table}: {t.loses}' for t in lost)} is reported and the source has it no "
            f"more: nothing is changed, as a new epoch would lose it. Where the ledger is in order `lakecommit land` "
            f"publishes it first, where it was cut `--snapshot` with its newest snapshot keeps it; to give it up: "
            f"`--give-up-reported`"
        )
    for t in said.tables:
        what = f"holds {t.section.covered}, by {t.word}; read again {t.again}, never read {t.unsaid}"
        state = attest_section(
            session.tables,
            t.table,
            (t.kept if t.lost else None) or t.section,
            seen=t.state,
            others=t.others,
            rows_of_others=rows_of_others,
            keep=t.endangered.keys(),
            word=t.word,
            branch=session.landing.branch,
            decision=None if decision is None else replace(decision, what=what),
        )
        session.log(f"{t.table}: the ledger is now what was attested, in snapshot {state.snapshot_id}")
    return {"attested": {t.table: {str(p): t.section.end(p) for p in sorted(said.marks)} for t in said.tables}}


def _said(session: LandingSession, tables: Sequence[str] | None, word: Word) -> Attested:
    session.control.ensure()
    source = session.source.watermarks()
    log = session.control.read(session.control.partition_for(session.landing.group_id), None)
    known = [_known(session, name, log) for name in tables or session.landing.tables]
    if tables is None:
        known = [k for k in known if k.own is None or k.state.condition is not Condition.PRESENT]
        if not known:
            raise LedgerError(
                f"every table of landing {session.landing.name} has its ledger; to set one all the same, name it: "
                f"`--table {session.landing.table}`"
            )
    return Attested(tables=tuple(_one(session, k, source, word) for k in known), marks=source.partitions)


def _one(session: LandingSession, known: _Known, source: SourceState, word: Word) -> AttestedTable:
    source_of_word, starts, covered, others = word(known, source)
    _check(known.name, starts, covered, source)
    old = known_section(session, known.state)
    section = new_section(session, source, starts, covered, origin_position(session), before=old)
    if old is not None and old.cluster_id == source.cluster_id:
        there = {p: section.end(p) for p in source.partitions}
        section = replace(section, positions=positions_up_to(old.positions, there))
    pending = known_state(session, {known.name: known.state})
    kept = irreplaceable(pending.accepted[known.name], source.partitions, known.name) if pending else ()
    return AttestedTable(
        table=known.name,
        word=source_of_word,
        state=known.state,
        section=section,
        before=known.own.covered if known.own else Coverage(),
        announced=known.announced,
        others=others,
        old=old,
        endangered={} if known.state.condition is Condition.PRESENT else endangered(session, known.name, known.state),
        rows=known.rows,
        lost=losses((a for a in kept if a.coverage - covered), source.partitions),
    )


def _check_log(session: LandingSession, known: _Known, landed: Coverage) -> None:
    """Can the table hold what the log says?

    :raises LedgerError: a ledger that the metadata remember has less, or the table has fewer rows
    """
    remedy = "say what the table holds with `lakecommit ledger attest SPEC --at TOPIC:PARTITION=OFFSET,…`"
    newest = known_section(session, known.state)
    if newest is not None and (more := landed - newest.covered):
        snapshot = known.state.snapshot_id or known.state.tag_id or "ID"
        raise LedgerError(
            f"{known.name}: the log of {session.control.name} says that {more} was published, which the newest ledger "
            f"that the metadata know does not have: it was rolled back, or given back by a person. If that ledger is "
            f"right, `lakecommit ledger attest SPEC --snapshot {snapshot}`; if not, {remedy}"
        )
    rows, said = known.rows, rows_of(known.entries, known.name, landed)
    if rows is not None and rows < said:
        raise LedgerError(
            f"{known.name} has {rows} rows, by the log of {session.control.name} {said} were published in it: some "
            f"were rolled back or removed, and the log does not tell which; {remedy}"
        )


def _check(name: str, starts: Mapping[SourcePartition, int], covered: Coverage, source: SourceState) -> None:
    """Can it be true of the topics as they are?"""
    ids = source.topic_ids
    if strange := sorted({p.topic for p in starts.keys() | covered.parts.keys() if p.topic_id != ids.get(p.topic)}):
        raise SourceError(
            f"{name}: that ledger is of topic {', '.join(strange)} under another id, or of a topic that this landing "
            f"does not read: the offsets of a topic made anew are other records; "
            f"`lakecommit ledger init SPEC --from earliest` starts it over"
        )
    for p, s in sorted(covered.parts.items()):
        mark = source.partitions.get(p)
        if mark is None or s.ranges[-1].end > mark.high:
            end = "does not exist" if mark is None else f"ends at {mark.high}"
            raise SourceError(f"{name} cannot hold {p} {s}: the partition {end}; is this the right cluster?")


def _known(session: LandingSession, name: str, log: ControlLog) -> _Known:
    table = session.tables.load(name)
    state = read_ledger(table.metadata, session.landing.branch)
    return _Known(
        name=name,
        table=table,
        state=state,
        own=state.section(session.landing.name, session.lane),
        entries=read_entries(log.records, session.landing.name, session.lane),
        begin=log.begin,
    )


def _first(p: SourcePartition, known: _Known, start: int | None) -> int | None:
    """Where a partition begins: where the log's oldest commit to *any* table does, because a table without rows is
    announced late; ``None`` when nobody can tell.
    """
    if said := known.announced_of_any[p]:
        return said.ranges[0].start
    return 0 if start is None and not known.begin else start


def _with_ledger(metadata: TableMetadata) -> str:
    return ", ".join(str(s.snapshot_id) for s in metadata.snapshots if has_ledger(s)) or "none"
