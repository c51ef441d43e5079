# SPDX-License-Identifier: Apache-2.0
"""`lakecommit reset migrate`: where a landing continues whose topics moved to another Kafka cluster.

Contract: :func:`migration_preview` reads and writes nothing. The ranges of the old cluster stay in the tables' ledgers,
as a separate stream without runs (`live@CLUSTER`), and `verify` accounts for it as before; the landing's own stream
begins on the new cluster under a new epoch, so nothing reported on the old one is committed any more. A landing that
returns to a cluster continues where its stream ended.

Failure story: after a kill, some tables are migrated and some are not; run the same command again. Records that the
copy lacks, or has at two places, are refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from airflow_provider_lakecommit.committer import (
    MOVED,
    LedgerState,
    SnapshotKind,
    SnapshotRecord,
    require_ledger,
    swap_sections,
)
from airflow_provider_lakecommit.core import (
    BACKFILL,
    ControlPosition,
    Coverage,
    Decision,
    LedgerSection,
    OffsetRange,
    SourcePartition,
    Watermark,
)
from airflow_provider_lakecommit.cycle import (
    LandingSession,
    all_sections,
    initial_position,
    ledger_states,
    new_section,
)
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.kafka import CopyPosition, PartitionLog, SourceState, SourceTopics, position_in_copy
from airflow_provider_lakecommit.operations.decisions.starts import PLAIN, Start, offsets_of

SAME = "same"
"""The copy keeps offsets."""
OldEnd = tuple[SourcePartition, int]
"""A partition of the old cluster, and how far it is landed."""
Landed = dict[SourcePartition, OldEnd]
"""By partition of the new cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Where partitions continue; without ``start``, the records of the old cluster decide.

    :param start: ``earliest``, ``latest``, ``same``, the first record at or after a time, or an offset per topic and
        partition of the new cluster
    :param old: brokers of the old cluster, to compare records with
    :param topics: new names of topics, by their old ones
    """

    start: Start | None = None
    old: Mapping[str, Any] | None = field(default=None, repr=False)
    topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedPartition:
    """One partition of the new cluster. ``landed`` is how far the old one is in the data table, ``exact`` where the
    record after that is in the new one, if that could be compared.
    """

    partition: SourcePartition
    mark: Watermark
    next: int
    landed: int | None = None
    exact: CopyPosition | None = None

    @property
    def is_compared(self) -> bool:
        return self.exact is not None and self.exact.offset is not None

    @property
    def copied(self) -> int:
        """Return where the copies of landed records end; unless they were compared, where the landing continues."""
        at = self.exact.offset if self.exact else None
        return self.next if at is None else min(at, self.next)

    @property
    def skipped(self) -> range:
        """Return the offsets of the new cluster that were never landed and are not read."""
        at = self.exact.offset if self.exact else None
        return range(0) if at is None else range(at, self.next)

    @property
    def twice(self) -> range:
        """Return the offsets of the new cluster whose records were landed from the old one and are read again."""
        at = self.exact.offset if self.exact else None
        return range(0) if at is None else range(self.next, at)

    def __str__(self) -> str:
        was = "" if self.landed is None else f", landed to {self.landed} on the old cluster"
        text = f"{self.partition}: at {self.next} of [{self.mark.start}, {self.mark.high}){was}"
        if self.exact is None:
            return f"{text}; not compared"
        if self.exact.offset is None:
            return f"{text}; {self.exact.why}"
        if self.skipped:
            return f"{text}; SKIPS {len(self.skipped)} records"
        return f"{text}; {f'READS TWICE {len(self.twice)} records' if self.twice else 'exactly the next record'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPreview:
    """The effect of a migration. ``tables`` are those that are still of the old cluster. ``apart`` has the partitions
    of which a table has landed more or less than the first one.
    """

    source: SourceState
    old_cluster: str
    partitions: tuple[MigratedPartition, ...]
    tables: tuple[str, ...]
    apart: Mapping[str, tuple[MigratedPartition, ...]] = field(default_factory=dict)

    def of(self, table: str) -> tuple[MigratedPartition, ...]:
        """Return the partitions of one table."""
        return (*{r.partition: r for r in (*self.partitions, *self.apart.get(table, ()))}.values(),)

    @property
    def next(self) -> dict[SourcePartition, int]:
        return {r.partition: r.next for r in self.partitions}

    @property
    def what(self) -> str:
        """Return what changes, for the history of the tables."""
        ends = ", ".join(f"{p} {o}" for p, o in sorted(self.next.items()))
        skipped, twice = (sum(len(getattr(r, n)) for r in self.partitions) for n in ("skipped", "twice"))
        compared = all(r.is_compared for r in self.partitions if r.landed)
        proof = f"{skipped} records skipped, {twice} read twice" if compared else "not compared"
        return f"from cluster {self.old_cluster} to {self.source.cluster_id}, {proof}: continues at {ends}"[:300]

    def lines(self) -> Iterator[str]:
        yield f"from cluster {self.old_cluster} to {self.source.cluster_id}, in {', '.join(self.tables) or 'no table'}"
        yield from (f"  {r}" for r in self.partitions)
        yield from (f"  {table}: {r}" for table, some in self.apart.items() for r in some)
        if any(r.exact is None for r in self.partitions if r.landed):
            yield "  add --old HOST:PORT to compare with the old cluster and count skipped and repeated records"

    def to_dict(self) -> dict[str, Any]:
        return {
            "old_cluster": self.old_cluster,
            "cluster": self.source.cluster_id,
            "tables": list(self.tables),
            "next": {str(p): o for p, o in sorted(self.next.items())},
            "apart": {table: [str(r) for r in some] for table, some in self.apart.items()},
            "skipped": {str(r.partition): len(r.skipped) for r in self.partitions if r.skipped},
            "read_twice": {str(r.partition): len(r.twice) for r in self.partitions if r.twice},
            "not_compared": [
                str(r.partition) for r in self.partitions if r.landed and not (r.exact and r.exact.offset)
            ],
        }


def migration_preview(session: LandingSession, given: Move) -> MigrationPreview:
    """Return the effect.

    :raises LedgerError: no table is of another cluster, or a ledger needs an operator
    :raises SourceError: the decision leaves partitions open, or names what the new cluster does not have
    """
    session.control.ensure()
    source = session.source.watermarks()
    sections = _sections(session, source)
    old = next(iter(sections.values()), None)
    if old is None:
        raise LedgerError(
            "LC7024",
            f"landing {session.landing.name}: all tables are of cluster {source.cluster_id}, which it reads already",
        )
    stated = _stated(session, given, source)
    landed = {table: _landed(section, source, given) for table, section in sections.items()}
    ends = {(p, at) for of in landed.values() for p, at in of.items()}
    exact = {} if given.old is None else _compared(session, given.old, old, source, ends)

    found: dict[str, tuple[MigratedPartition, ...]] = {}
    for table, of in landed.items():
        first = {r.partition: r.next for r in next(iter(found.values()), ())}
        at = {p: exact.get((p, end)) for p, end in of.items()}
        lenient = table not in session.landing.data_tables
        found[table] = tuple(
            MigratedPartition(
                partition=p,
                mark=mark,
                next=stated[p]
                if stated is not None
                else _next(given, p, mark, of.get(p), at.get(p), first.get(p), lenient),
                landed=of[p][1] if p in of else None,
                exact=at.get(p),
            )
            for p, mark in sorted(source.partitions.items())
        )
        _check_within(found[table])
    leading = next(iter(found.values()))
    apart = {table: tuple(r for r in some if r not in leading) for table, some in found.items()}
    return MigrationPreview(
        source=source,
        old_cluster=old.cluster_id,
        partitions=leading,
        tables=tuple(sections),
        apart={table: some for table, some in apart.items() if some},
    )


def migrate_landing(session: LandingSession, preview: MigrationPreview, *, decision: Decision) -> dict[str, Any]:
    """Migrate as the preview showed.

    :param decision: the user who decided, for the tables' history
    :raises LedgerError: the ledger of a table has changed since
    :raises CatalogError: the catalog is unreachable
    """
    control, known = initial_position(session), all_sections(ledger_states(session).values())
    landing, decided = session.landing, replace(decision, what=preview.what)
    for table in preview.tables:
        moved = [session.lane, _kept_lane(session.lane, preview.old_cluster)]
        record = SnapshotRecord(
            kind=SnapshotKind.INIT,
            branch=landing.branch,
            landing=landing.name,
            lane=session.lane,
            extra={MOVED: json.dumps(moved)},
            decisions=(decided,),
        )
        swap_sections(session.tables, table, record, partial(_moved, session, preview, control, known, table))
        session.log(f"{table}: continues on cluster {preview.source.cluster_id}")
    return {"rebound": list(preview.tables), **preview.to_dict()}


def _sections(session: LandingSession, source: SourceState) -> dict[str, LedgerSection]:
    """Return the entries of tables of another cluster with what closed backfills have, the data table's first."""
    found = {}
    for name, state in ledger_states(session).items():
        if state is None:
            continue
        require_ledger(state, name)
        section = state.section(session.landing.name, session.lane)
        if section is not None and section.cluster_id != source.cluster_id:
            if section.sink is not None and section.sink.lands:
                raise LedgerError(
                    "LC7025", f"{name} was handed back to connector {section.sink.connector}: adopt it again first"
                )
            if lanes := [s.lane for s in state.sections if s.landing == section.landing and s.ends]:
                raise LedgerError(
                    "LC7026",
                    f"{name}: backfill {', '.join(lanes)} of landing {section.landing} is open, and its offsets are of "
                    f"the old cluster: finish it there, or close it with `{BACKFILL} SPEC --close NAME`",
                )
            found[name] = state.whole(section)
    return found


def _landed(old: LedgerSection, source: SourceState, given: Move) -> Landed:
    """Return the old partition of each new one, and how far it is landed."""
    names = {p.topic for p in source.partitions}
    renamed = {topic: given.topics.get(topic) or _copy_of(topic, names) for topic in {p.topic for p in old.starts}}
    there = {(p.topic, p.partition): p for p in source.partitions}
    found = {}
    for p in old.starts.keys() | old.covered.parts.keys():
        new = there.get((renamed.get(p.topic) or p.topic, p.partition))
        if new is not None:
            found[new] = (p, old.end(p))
        elif old.end(p) > old.starts.get(p, 0) and not isinstance(given.start, Mapping):
            raise SourceError(
                "LC7027",
                f"the new cluster has no partition for {p}, which is landed to {old.end(p)}: name its new topic "
                f"(--topic {p.topic}=NEW), or give all offsets (--from TOPIC:0=OFFSET,…)",
            )
    return found


def _copy_of(topic: str, names: Iterable[str]) -> str | None:
    """Return the topic of that name, or one prefixed with the old cluster's name, as of MirrorMaker."""
    exact = [name for name in names if name == topic]
    found = exact or [name for name in names if name.endswith(f".{topic}")]
    return found[0] if len(found) == 1 else None


def _compared(
    session: LandingSession,
    kafka: Mapping[str, Any],
    old: LedgerSection,
    source: SourceState,
    ends: Collection[tuple[SourcePartition, OldEnd]],
) -> dict[tuple[SourcePartition, OldEnd], CopyPosition]:
    names = tuple(sorted({p.topic for _, (p, _) in ends}))
    with (
        closing(SourceTopics(kafka, names)) as originals,
        closing(SourceTopics(session.kafka, session.landing.topic_names)) as copies,
    ):
        there = originals.watermarks()
        if there.cluster_id != old.cluster_id:
            raise SourceError("LC7028", f"--old is cluster {there.cluster_id}, but the tables are of {old.cluster_id}")
        found = {}
        for new, (p, end) in sorted(ends):
            mark = there.partitions.get(p)
            if mark is None:
                found[new, (p, end)] = CopyPosition(
                    offset=None, why=f"the old cluster no longer has {p}: its topic was recreated"
                )
                continue
            original = PartitionLog(kafka=kafka, topics=originals, partition=p, mark=mark)
            copy = PartitionLog(kafka=session.kafka, topics=copies, partition=new, mark=source.partitions[new])
            found[new, (p, end)] = position_in_copy(original, end, copy)
    return found


def _stated(session: LandingSession, given: Move, source: SourceState) -> Mapping[SourcePartition, int] | None:
    """Return the stated offsets of the new cluster; ``None`` if the decision is about the old one."""
    if given.start is None or given.start == SAME:
        return None
    offsets = {**offsets_of(session, source.partitions, given.start, PLAIN).offsets}
    if not isinstance(given.start, Mapping):
        # After a kill, the other tables begin where the first ones did: `latest` is later by now.
        offsets |= {p: at for p, at in _begun(session, source).items() if p in offsets}
    if unnamed := sorted(source.partitions.keys() - offsets.keys()):
        raise SourceError("LC7029", f"{unnamed[0]} is not named: state its next offset, 0 for the beginning")
    return offsets


def _begun(session: LandingSession, source: SourceState) -> dict[SourcePartition, int]:
    """Return where a table that is of the new cluster already began."""
    key = session.landing.name, session.lane
    states = ledger_states(session).values()
    found = (s for state in states if state is not None and (s := state.section(*key)) is not None)
    return next((dict(s.starts) for s in found if s.cluster_id == source.cluster_id), {})


def _next(
    given: Move,
    p: SourcePartition,
    mark: Watermark,
    landed: OldEnd | None,
    exact: CopyPosition | None,
    first: int | None,
    lenient: bool,
) -> int:
    """Return where a table continues.

    :param first: where the first table continues, if this is another one: what the copy lacks of it stops nothing
    :param lenient: it rarely has rows, so its ledger may end before all records that can be compared
    """
    if landed is None:
        return mark.start
    if given.start == SAME:
        return landed[1] if first is None else max(landed[1], min(mark.start, first))
    if exact is None or exact.offset is None:
        if first is not None and lenient:
            return first
        why = exact.why if exact else "the next record is unknown"
        raise SourceError(
            "LC7030", f"{p}: {why}; state it (--from TOPIC:{p.partition}=OFFSET,…), or a time (--from 2026-03-01T12)"
        )
    return exact.offset


def _check_within(found: Iterable[MigratedPartition]) -> None:
    if beyond := [f"{r.partition} ends at {r.mark.high}, not at {r.next}" for r in found if r.next > r.mark.high]:
        raise SourceError("LC7031", f"{'; '.join(beyond)}: nothing is changed; check that the copy is complete")
    if removed := [f"{r.partition} begins at {r.mark.start}, not at {r.next}" for r in found if r.next < r.mark.start]:
        raise SourceError("LC7032", f"{'; '.join(removed)}: nothing is changed; give offsets that the new cluster has")


def _kept_lane(lane: str, cluster_id: str) -> str:
    return f"{lane}@{cluster_id}"


def _moved(
    session: LandingSession,
    preview: MigrationPreview,
    control: ControlPosition,
    known: Collection[LedgerSection],
    table: str,
    state: LedgerState,
) -> tuple[LedgerSection, ...] | None:
    """Return the ledger with the old cluster's entry put aside, and the landing's own on the new one."""
    require_ledger(state, table)
    own = state.section(session.landing.name, session.lane)
    if own is None or own.cluster_id == preview.source.cluster_id:
        return None
    if own.cluster_id != preview.old_cluster:
        raise LedgerError("LC7033", f"{table} was migrated to cluster {own.cluster_id}: run the command again")
    kept = replace(
        own, lane=_kept_lane(session.lane, own.cluster_id), epoch=session.new_id(), control=control, positions={}
    )
    back = state.section(session.landing.name, _kept_lane(session.lane, preview.source.cluster_id))
    starts, covered = _on_the_new(preview, back, back and state.whole(back), table)
    section = new_section(session, preview.source, starts, covered, control, before=back or own, known=known)
    section = replace(section, provenance=back.provenance if back else ())
    others = [s for s in state.sections if s.key not in {own.key, kept.key, back.key if back else None}]
    # What was read from another cluster is not read again: no dead letter is closed by that.
    replayed = own.replayed | (back.replayed if back else Coverage())
    return (*others, kept, replace(section, sink=None, replayed=replayed, suspended=own.suspended))


def _on_the_new(
    preview: MigrationPreview, back: LedgerSection | None, whole: LedgerSection | None, table: str
) -> tuple[dict[SourcePartition, int], Coverage]:
    """Return starts and coverage. Records of a copied partition that were landed from the old cluster are covered,
    without marks; if the landing returns to a cluster, so are those that it had of it and skips.

    :param whole: the former entry, with what closed backfills have
    """
    parts = preview.of(table)
    ends = {r.partition: r.next for r in parts}
    if back is None or whole is None:
        return ends, Coverage.of((r.partition, OffsetRange(0, r.copied)) for r in parts if r.landed is not None)
    if again := [f"{p} {whole.end(p)}" for p, end in sorted(ends.items()) if p in back.starts and end < whole.end(p)]:
        raise LedgerError(
            "LC7034",
            f"{table} has landed from this cluster before, up to {', '.join(again)}: nothing is changed, because "
            f"those records would be landed again; state offsets from there on",
        )
    passed = Coverage.of(
        (p, OffsetRange(whole.end(p), end)) for p, end in ends.items() if p in back.starts and whole.end(p) < end
    )
    return {**ends, **back.starts}, back.covered | passed
