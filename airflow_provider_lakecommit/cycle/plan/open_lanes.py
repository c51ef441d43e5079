# SPDX-License-Identifier: Apache-2.0
"""The open backfills of a landing, by the ledgers of its tables.

Contract: reads only the tables. A backfill is open while any table has an entry of it: a table that lags may have a
larger range than the data table, or be the only one. The first table with the range in its entry shows what is missing:
one without rows, like most dead-letter tables, rarely records what it has passed. A backfill that replaces has a
snapshot in each table, so each shows what it lacks. Reported slices that are not published count as missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecommit.core import Coverage, LedgerSection, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.plan.known import ledger_states
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.iceberg import LedgerState


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLane:
    """A backfill's entries by table, and the missing part of its range."""

    name: str
    sections: Mapping[str, LedgerSection]
    lacking: Coverage

    @property
    def bounds(self) -> dict[SourcePartition, OffsetRange]:
        """Return its range, over all tables; empty if its ledger was written without an end."""
        out: dict[SourcePartition, OffsetRange] = {}
        for s in self.sections.values():
            for p, end in s.ends.items():
                start, known = s.starts.get(p, 0), out.get(p)
                out[p] = OffsetRange(min(start, known.start), max(end, known.end)) if known else OffsetRange(start, end)
        return out

    @property
    def size(self) -> int:
        """Return the number of offsets of its range."""
        return sum(map(len, self.bounds.values()))

    @property
    def replaces(self) -> bool:
        """Return True if some table replaces its rows of the range."""
        return any(s.replaces for s in self.sections.values())

    def lines(self) -> Iterator[str]:
        done = "are replaced" if self.replaces else "are in the tables"
        yield f"backfill {self.name}: {self.size - len(self.lacking)} of {self.size} offsets {done}"
        yield from (f"  {p} {r}: lacks {self.lacking[p]}" for p, r in sorted(self.bounds.items()))

    def to_dict(self) -> dict[str, Any]:
        return {
            "lane": self.name,
            "replaces": self.replaces,
            "range": {str(p): [r.start, r.end] for p, r in sorted(self.bounds.items())},
            "offsets": self.size,
            "lacking": self.lacking.to_dict(),
        }


def open_lanes(session: LandingSession) -> tuple[OpenLane, ...]:
    """Return the open backfills by name.

    :raises CatalogError: the catalog is unavailable
    """
    return lanes_in(session.landing.name, ledger_states(session))


def lanes_in(landing: str, states: Mapping[str, LedgerState | None]) -> tuple[OpenLane, ...]:
    """Return the open backfills of a landing in the given ledgers."""
    sections: dict[str, dict[str, LedgerSection]] = {}
    lacking: dict[str, Coverage] = {}
    for table, state in states.items():
        for s in () if state is None else state.sections:
            if state is not None and s.landing == landing and s.ends:
                known = Coverage.union(other.bounds for other in sections.get(s.lane, {}).values())
                behind = s.bounds - s.covered if s.replaces else s.bounds - known - state.covered()
                sections.setdefault(s.lane, {})[table] = s
                lacking[s.lane] = lacking.get(s.lane, Coverage()) | behind
    return tuple(OpenLane(name=n, sections=sections[n], lacking=lacking[n]) for n in sorted(sections))
