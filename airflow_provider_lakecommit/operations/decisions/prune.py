# SPDX-License-Identifier: Apache-2.0
"""Remove deleted topics from ledgers, because all landings of a table share the size limit of its ledger.

Contract: :func:`missing` decides what is deleted, from the current answer of the landing's cluster. A recreated topic
has another id, and ids are never reused: records of a deleted id can never land again, so a ledger may forget it. A
topic stays if the landing still names it, or if the entry does not have its new id yet (`reset offsets` decides about
it); entries of other clusters stay. An entry that lost something has a new epoch: its pending slices are read again,
and no report of the removed ranges can be accepted a second time. If any of that cannot be read again, nothing is
removed.

Failure story: nothing is written unless the cluster has answered for every topic. After a kill, some tables are pruned
and some are not; the same command continues.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from uuid import UUID

from airflow_provider_lakecommit.core import (
    LAND,
    RESET_OFFSETS,
    Coverage,
    Decision,
    LedgerSection,
    RangeSet,
    SourcePartition,
    evaluated_in,
)
from airflow_provider_lakecommit.cycle import LandingSession, endangered, ledger_state
from airflow_provider_lakecommit.exceptions import LedgerError, SourceUnavailableError
from airflow_provider_lakecommit.iceberg import LedgerState, prune_sections
from airflow_provider_lakecommit.kafka import ClusterAdmin

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """The deleted topics in the entries of one table's ledger, by landing and stream."""

    table: str
    state: LedgerState
    removed: Mapping[Key, frozenset[SourcePartition]] = field(default_factory=dict)
    cluster_id: str = ""
    ids: Mapping[str, str | None] = field(default_factory=dict)

    def landed(self, key: Key, p: SourcePartition) -> int:
        """Return the number of offsets that an entry has of a partition."""
        return sum(len(s.covered[p]) for s in self.state.sections if (s.landing, s.lane) == key)

    @property
    def what(self) -> str:
        """Return what changes, for the history of the table."""
        parts = (f"{p} of topic id {p.topic_id}" for some in self.removed.values() for p in sorted(some))
        return f"takes out {', '.join(dict.fromkeys(parts))}"


def prunable_sections(session: LandingSession) -> tuple[Prunable, ...]:
    """Return what could be removed; writes nothing.

    :raises SourceUnavailableError: the cluster does not answer
    :raises CatalogError: the catalog is unreachable
    """
    states = [(name, state) for name in session.landing.tables if (state := ledger_state(session, name)) is not None]
    topics = {p.topic for _, state in states for s in state.sections for p in (*s.starts, *s.covered.parts)}
    cluster_id, ids = _cluster_and_topics(session, sorted(topics))
    return tuple(
        Prunable(
            table=name,
            state=state,
            removed=_removed(session, state.sections, cluster_id, ids),
            cluster_id=cluster_id,
            ids=ids,
        )
        for name, state in states
    )


def prune(session: LandingSession, found: Prunable, decision: Decision | None = None) -> LedgerState:
    """Remove it from the current ledger.

    :param decision: the user who decided, for the table's history
    :raises LedgerError: the ledger is lost, or its rollback is unresolved; or reported slices would be lost
    """
    own = (session.landing.name, session.lane)
    if lost := endangered(session, found.table, found.state, found.removed):
        raise LedgerError(
            "LC7022",
            f"{found.table}: pruning a ledger starts a new epoch, which would lose reported slices that the source no "
            f"longer has: {'; '.join(lost.values())}. Nothing is changed. Run `{LAND}` of that landing to publish "
            f"them first; to give them up, run `{RESET_OFFSETS} SPEC --from earliest --give-up-reported` of that "
            "landing",
        )

    def change(sections: tuple[LedgerSection, ...]) -> dict[Key, LedgerSection | None]:
        dead = _removed(session, sections, found.cluster_id, found.ids)
        by_key = {s.key: s for s in sections}
        return {key: pruned(by_key[key], parts, session.new_id(), own=key == own) for key, parts in dead.items()}

    decided = decision and replace(decision, what=found.what)
    return prune_sections(session.tables, found.table, own, change, branch=session.landing.branch, decision=decided)


def _removed(
    session: LandingSession, sections: tuple[LedgerSection, ...], cluster_id: str, ids: Mapping[str, str | None]
) -> dict[Key, frozenset[SourcePartition]]:
    named = session.landing.topic_names
    found = {s.key: missing(s, cluster_id, ids, named if s.landing == session.landing.name else ()) for s in sections}
    return {key: parts for key, parts in found.items() if parts}


def _cluster_and_topics(session: LandingSession, topics: list[str]) -> tuple[str, dict[str, str | None]]:
    admin = ClusterAdmin(
        session.kafka,
        timeout=30.0,
        away=SourceUnavailableError,
        refused=SourceUnavailableError,
        remedy=lambda: "grant DESCRIBE on these topics: a topic without that right looks deleted",
    )
    try:
        facts = admin.topics(topics) if topics else {}
        return admin.cluster_id(), {name: None if fact is None else fact.topic_id for name, fact in facts.items()}
    finally:
        admin.close()


def missing(
    section: LedgerSection, cluster_id: str, ids: Mapping[str, str | None], named: Collection[str] = ()
) -> frozenset[SourcePartition]:
    """Return the partitions of an entry whose topics are deleted.

    :param cluster_id: of the cluster that answered
    :param ids: its answer for each topic; a topic without an answer is not deleted
    :param named: topics that the entry's landing still names, as far as known
    """
    if section.cluster_id != cluster_id:
        return frozenset()
    parts = {*section.starts, *section.covered.parts}
    known = {(p.topic, p.topic_id) for p in section.starts}
    return frozenset(
        p
        for p in parts
        if p.topic in ids
        and ids[p.topic] != p.topic_id
        and (p.topic not in named if ids[p.topic] is None else (p.topic, ids[p.topic]) in known)
    )


def pruned(section: LedgerSection, parts: Set[SourcePartition], epoch: UUID, *, own: bool) -> LedgerSection | None:
    """Return the rest of an entry, under a new epoch; ``None`` if it is empty, except for the caller's own."""
    starts = {p: start for p, start in section.starts.items() if p not in parts}
    covered = Coverage({p: ranges for p, ranges in section.covered.parts.items() if p not in parts})
    if not starts and not covered and not own:
        return None
    # Facts about deleted ranges and logs are deleted too: a position needs its ranges.
    evaluated = evaluated_in(section.evaluated, covered)
    positions = {p: at for p, at in section.positions.items() if p not in parts}
    replayed = _closed(section, parts, {p.topic for p in starts})
    left = replace(section, starts=starts, covered=covered, epoch=epoch)
    readings = tuple(e for e in section.provenance if not parts >= e.coverage.parts.keys())
    sink = section.sink and replace(section.sink, landed=section.sink.landed & covered)
    return replace(left, evaluated=evaluated, positions=positions, replayed=replayed, provenance=readings, sink=sink)


def _closed(section: LedgerSection, parts: Collection[SourcePartition], left: Collection[str]) -> Coverage:
    """Return the rest of ``replayed``. The former offsets of a recreated topic stay closed as a whole: otherwise the
    dead letters of one would count as those of the other.
    """
    kept = {p: ranges for p, ranges in section.replayed.parts.items() if p not in parts}
    former_coverage = section.covered | section.replayed
    former = {p: former_coverage[p].ranges for p in parts if p.topic in left and former_coverage[p]}
    return Coverage(kept | {p: RangeSet.of((r[0].start, r[-1].end)) for p, r in former.items()})
