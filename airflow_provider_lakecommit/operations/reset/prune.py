# SPDX-License-Identifier: Apache-2.0
"""Remove deleted topics from ledgers, because all landings of a table share the size limit of its ledger.

Contract: :mod:`~airflow_provider_lakecommit.operations.reset.gone` decides what is deleted, from the current answer of
the landing's cluster; entries of other clusters stay. An entry that lost something has a new epoch: its pending slices
are read again, and no report of the removed ranges can be accepted a second time. If any of that cannot be read again,
nothing is removed.

Failure story: nothing is written unless the cluster has answered for every topic. After a kill, some tables are pruned
and some are not; the same command continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_provider_lakecommit.committer import LedgerState, prune_sections
from airflow_provider_lakecommit.core import LAND, RESET_OFFSETS, Decision, LedgerSection, SourcePartition
from airflow_provider_lakecommit.cycle import LandingSession, endangered, ledger_state
from airflow_provider_lakecommit.exceptions import LedgerError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import ClusterAdmin
from airflow_provider_lakecommit.operations.reset.gone import gone, pruned

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """The deleted topics in the entries of one table's ledger, by landing and stream."""

    table: str
    state: LedgerState
    gone: Mapping[Key, frozenset[SourcePartition]] = field(default_factory=dict)
    cluster_id: str = ""
    ids: Mapping[str, str | None] = field(default_factory=dict)

    def landed(self, key: Key, p: SourcePartition) -> int:
        """How many offsets of a partition a section has."""
        return sum(len(s.covered[p]) for s in self.state.sections if (s.landing, s.lane) == key)

    @property
    def what(self) -> str:
        """For the table's history."""
        parts = (f"{p} of topic id {p.topic_id}" for some in self.gone.values() for p in sorted(some))
        return f"takes out {', '.join(dict.fromkeys(parts))}"


def look(session: LandingSession) -> tuple[Prunable, ...]:
    """Return what could be removed; writes nothing.

    :raises SourceUnavailableError: the cluster does not answer
    :raises CatalogError: the catalog is unreachable
    """
    states = [(name, state) for name in session.landing.tables if (state := ledger_state(session, name)) is not None]
    topics = {p.topic for _, state in states for s in state.sections for p in (*s.starts, *s.covered.parts)}
    cluster_id, ids = _asked(session, sorted(topics))
    return tuple(
        Prunable(
            table=name,
            state=state,
            gone=_gone(session, state.sections, cluster_id, ids),
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
    if lost := endangered(session, found.table, found.state, found.gone):
        raise LedgerError(
            "LC7022",
            f"{found.table}: pruning a ledger starts a new epoch, which would lose reported slices that the source no "
            f"longer has: {'; '.join(lost.values())}. Nothing is changed. Run `{LAND}` of that landing to publish "
            f"them first; to give them up, run `{RESET_OFFSETS} SPEC --from earliest --give-up-reported` of that "
            "landing",
        )

    def change(sections: tuple[LedgerSection, ...]) -> dict[Key, LedgerSection | None]:
        dead = _gone(session, sections, found.cluster_id, found.ids)
        by_key = {s.key: s for s in sections}
        return {key: pruned(by_key[key], parts, session.new_id(), own=key == own) for key, parts in dead.items()}

    told = None if decision is None else replace(decision, what=found.what)
    return prune_sections(session.tables, found.table, own, change, branch=session.landing.branch, decision=told)


def _gone(
    session: LandingSession, sections: tuple[LedgerSection, ...], cluster_id: str, ids: Mapping[str, str | None]
) -> dict[Key, frozenset[SourcePartition]]:
    named = session.landing.topic_names
    found = {s.key: gone(s, cluster_id, ids, named if s.landing == session.landing.name else ()) for s in sections}
    return {key: parts for key, parts in found.items() if parts}


def _asked(session: LandingSession, topics: list[str]) -> tuple[str, dict[str, str | None]]:
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
