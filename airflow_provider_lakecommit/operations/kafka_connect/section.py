# SPDX-License-Identifier: Apache-2.0
"""The landing's entry in the ledger of a sink's table, and what the sink has committed since the entry was made.

Contract: reads only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pyiceberg.table.snapshots import Snapshot

from airflow_provider_lakecommit.core import AdoptedSink, LedgerSection, SourcePartition
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.iceberg import SinkTurn, read_ledger, require_ledger, sink_commits, sink_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSection:
    """The landing's section in a table, with what closed lanes have, and what the sink has committed since the table
    was taken over from it. ``lanes`` are the landing's other lanes that are open. ``turn`` is that of a sink that the
    table was handed back to, or whose commits it has where it should have none.
    """

    section: LedgerSection | None = None
    lanes: tuple[str, ...] = ()
    late: tuple[Snapshot, ...] = ()
    turn: SinkTurn = field(default_factory=SinkTurn)

    def has_nothing_of(self, connector: str) -> bool:
        """Return True if it is sure that the table has nothing that this connector has read since the landing's turn
        began, or since it was handed back.
        """
        sink = None if self.section is None else self.section.sink
        if sink is None or sink.connector != connector:
            return False
        return self.turn.is_untouched if sink.lands else not self.late

    def known(self, there: Iterable[SourcePartition]) -> dict[tuple[str, int], int]:
        """Where the sink's offsets are known to be rightly, though it did not read up to there: where the landing went
        on after it, or handed the table back to it. What it has read of a later partition, it has read since.

        :param there: partitions of the source, which may have been recreated
        """
        section = self.section
        if section is None or section.sink is None:
            return {}
        since = {p: section.end(p) for p in section.starts} if section.sink.lands else section.sink.since
        return {(p.topic, p.partition): since.get(p, 0) for p in (*since, *there)}


def sink_section(session: LandingSession, table: str, group: str = "") -> SinkSection:
    """Return the entry in the table.

    :param group: that of the sink of a table that the landing has not taken over
    :raises LedgerError: the ledger of the table needs an operator
    """
    found = session.tables.find(table)
    if found is None:
        return SinkSection()
    state = read_ledger(found.metadata, session.landing.branch)
    require_ledger(state, table)
    own = state.section(session.landing.name, session.lane)
    section = None if own is None else state.whole(own)
    sink = (section and section.sink) or AdoptedSink(connector="", group=group, since={}, sequence=0)
    turn = sink_turn(found.metadata, session.landing.branch, sink)
    if section is None or section.sink is None or sink.lands:
        # Where its first turn began is unknown.
        return SinkSection(section=section, turn=turn if sink.lands else replace(turn, before=None))
    lanes = tuple(s.lane for s in state.sections if s.landing == section.landing and s.ends)
    late = tuple(sink_commits(found.metadata, session.landing.branch, sink))
    turn = replace(turn, before=late[-1].parent_snapshot_id) if late else SinkTurn()
    return SinkSection(section=section, late=late, lanes=lanes, turn=turn)
