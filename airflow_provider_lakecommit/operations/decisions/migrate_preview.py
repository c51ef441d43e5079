# SPDX-License-Identifier: Apache-2.0
"""Where a landing continues whose topics moved to another Kafka cluster: the preview of `lakecommit reset migrate`.

Contract: reads tables and both clusters, and writes nothing. The start is stated, or decided by the records of the old
cluster, which are found again in the copy.

Failure story: records that the copy lacks, or has at two places, are refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_lakecommit.core import BACKFILL, LedgerSection, SourcePartition, Watermark
from airflow_provider_lakecommit.cycle import LandingSession, ledger_states
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg import require_ledger
from airflow_provider_lakecommit.kafka import PartitionLog, SourceState, SourceTopics, position_in_copy
from airflow_provider_lakecommit.operations.decisions.starts import PLAIN, Start, offsets_of

SAME = "same"
"""The copy keeps offsets."""
OldEnd = tuple[SourcePartition, int]
"""A partition of the old cluster, and how far it is landed."""
Landed = dict[SourcePartition, OldEnd]
"""By partition of the new cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedPartition:
    """One partition of the new cluster. ``landed`` is how far the old one is in the data table, ``exact`` where the
    record after that is in the new one, or why this is unknown; ``None``: nothing was compared.
    """

    partition: SourcePartition
    mark: Watermark
    next: int
    landed: int | None = None
    exact: int | str | None = None

    @property
    def compared(self) -> int | None:
        """Return where the record after the landed ones is in the new cluster; ``None``: it could not be compared."""
        return self.exact if isinstance(self.exact, int) else None

    @property
    def copied(self) -> int:
        """Return where the copies of landed records end; unless they were compared, where the landing continues."""
        return self.next if self.compared is None else min(self.compared, self.next)

    @property
    def skipped(self) -> range:
        """Return the offsets of the new cluster that were never landed and are not read."""
        return range(0) if self.compared is None else range(self.compared, self.next)

    @property
    def twice(self) -> range:
        """Return the offsets of the new cluster whose records were landed from the old one and are read again."""
        return range(0) if self.compared is None else range(self.next, self.compared)

    def __str__(self) -> str:
        was = "" if self.landed is None else f", landed to {self.landed} on the old cluster"
        text = f"{self.partition}: at {self.next} of [{self.mark.start}, {self.mark.high}){was}"
        if self.exact is None:
            return f"{text}; not compared"
        if self.compared is None:
            return f"{text}; {self.exact}"
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
        compared = all(r.compared is not None for r in self.partitions if r.landed)
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
            "not_compared": [str(r.partition) for r in self.partitions if r.landed and not r.compared],
        }


def migration_preview(
    session: LandingSession,
    start: Start | None = None,
    *,
    old: Mapping[str, Any] | None = None,
    topics: Mapping[str, str] | None = None,
) -> MigrationPreview:
    """Return the effect.

    :param start: ``earliest``, ``latest``, ``same``, the first record at or after a time, or an offset per topic and
        partition of the new cluster; ``None``: the records of the old cluster decide
    :param old: brokers of the old cluster, to compare records with
    :param topics: new names of topics, by their old ones
    :raises LedgerError: no table is of another cluster, or a ledger needs an operator
    :raises SourceError: the decision leaves partitions open, or names what the new cluster does not have
    """
    session.control.ensure()
    source = session.source.watermarks()
    sections = _sections(session, source)
    former = next(iter(sections.values()), None)
    if former is None:
        raise LedgerError(
            "LC7024",
            f"landing {session.landing.name}: all tables are of cluster {source.cluster_id}, which it reads already",
        )
    stated = _stated(session, start, source)
    landed = {
        table: _landed(section, source, topics or {}, stated=isinstance(start, Mapping))
        for table, section in sections.items()
    }
    ends = {(p, at) for of in landed.values() for p, at in of.items()}
    exact = {} if old is None else _compared(session, old, former, source, ends)

    found: dict[str, tuple[MigratedPartition, ...]] = {}
    for table, of in landed.items():
        parts = (_partition(p, mark, of.get(p), exact) for p, mark in sorted(source.partitions.items()))
        if stated is None:
            first = {r.partition: r.next for r in next(iter(found.values()), ())}
            lenient = table not in session.landing.data_tables
            found[table] = tuple(replace(r, next=_next(r, start, first.get(r.partition), lenient)) for r in parts)
        else:
            found[table] = tuple(replace(r, next=stated[r.partition]) for r in parts)
        _check_within(found[table])
    leading = next(iter(found.values()))
    apart = {table: tuple(r for r in some if r not in leading) for table, some in found.items()}
    return MigrationPreview(
        source=source,
        old_cluster=former.cluster_id,
        partitions=leading,
        tables=tuple(sections),
        apart={table: some for table, some in apart.items() if some},
    )


def _partition(
    p: SourcePartition, mark: Watermark, old: OldEnd | None, exact: Mapping[tuple[SourcePartition, OldEnd], int | str]
) -> MigratedPartition:
    """Return a partition that would begin with its first record."""
    if old is None:
        return MigratedPartition(partition=p, mark=mark, next=mark.start)
    return MigratedPartition(partition=p, mark=mark, next=mark.start, landed=old[1], exact=exact.get((p, old)))


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


def _landed(old: LedgerSection, source: SourceState, topics: Mapping[str, str], *, stated: bool) -> Landed:
    """Return the old partition of each new one, and how far it is landed.

    :param stated: offsets are stated, so that an old partition may be without a new one
    """
    names = {p.topic for p in source.partitions}
    renamed = {topic: topics.get(topic) or _copy_of(topic, names) for topic in {p.topic for p in old.starts}}
    there = {(p.topic, p.partition): p for p in source.partitions}
    found = {}
    for p in old.starts.keys() | old.covered.parts.keys():
        new = there.get((renamed.get(p.topic) or p.topic, p.partition))
        if new is not None:
            found[new] = (p, old.end(p))
        elif old.end(p) > old.starts.get(p, 0) and not stated:
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
) -> dict[tuple[SourcePartition, OldEnd], int | str]:
    names = tuple(sorted({p.topic for _, (p, _) in ends}))
    with (
        closing(SourceTopics(kafka, names)) as originals,
        closing(SourceTopics(session.kafka, session.landing.topic_names)) as copies,
    ):
        there = originals.watermarks()
        if there.cluster_id != old.cluster_id:
            raise SourceError("LC7028", f"--old is cluster {there.cluster_id}, but the tables are of {old.cluster_id}")
        found: dict[tuple[SourcePartition, OldEnd], int | str] = {}
        for new, (p, end) in sorted(ends):
            mark = there.partitions.get(p)
            if mark is None:
                found[new, (p, end)] = f"the old cluster no longer has {p}: its topic was recreated"
                continue
            original = PartitionLog(kafka=kafka, topics=originals, partition=p, mark=mark)
            copy = PartitionLog(kafka=session.kafka, topics=copies, partition=new, mark=source.partitions[new])
            found[new, (p, end)] = position_in_copy(original, end, copy)
    return found


def _stated(session: LandingSession, start: Start | None, source: SourceState) -> Mapping[SourcePartition, int] | None:
    """Return the stated offsets of the new cluster; ``None`` if the decision is about the old one."""
    if start is None or start == SAME:
        return None
    offsets = {**offsets_of(session, source.partitions, start, PLAIN).offsets}
    if not isinstance(start, Mapping):
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


def _next(one: MigratedPartition, start: Start | None, first: int | None, lenient: bool) -> int:
    """Return where a table continues.

    :param first: where the first table continues, if this is another one: what the copy lacks of it stops nothing
    :param lenient: it rarely has rows, so its ledger may end before all records that can be compared
    """
    p, mark, exact = one.partition, one.mark, one.exact
    if one.landed is None:
        return mark.start
    if start == SAME:
        return one.landed if first is None else max(one.landed, min(mark.start, first))
    if not isinstance(exact, int):
        if first is not None and lenient:
            return first
        why = exact or "the next record is unknown"
        raise SourceError(
            "LC7030", f"{p}: {why}; state it (--from TOPIC:{p.partition}=OFFSET,…), or a time (--from 2026-03-01T12)"
        )
    return exact


def _check_within(found: Iterable[MigratedPartition]) -> None:
    if beyond := [f"{r.partition} ends at {r.mark.high}, not at {r.next}" for r in found if r.next > r.mark.high]:
        raise SourceError("LC7031", f"{'; '.join(beyond)}: nothing is changed; check that the copy is complete")
    if removed := [f"{r.partition} begins at {r.mark.start}, not at {r.next}" for r in found if r.next < r.mark.start]:
        raise SourceError("LC7032", f"{'; '.join(removed)}: nothing is changed; give offsets that the new cluster has")
