# SPDX-License-Identifier: Apache-2.0
"""The lanes of a landing that are open, as the data table's ledger tells.

Contract: reads only the table. What a lane has reported and not published counts as lacking.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecommit.core.model import FILLED, LIVE, LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet
from airflow_provider_lakecommit.cycle.prepare import ledger_state
from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["OpenLane", "open_lanes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLane:
    """A lane's section, and what its table lacks of the range."""

    section: LedgerSection
    lacking: Coverage

    @property
    def size(self) -> int:
        """Offsets of its range."""
        return sum(end - self.section.starts.get(p, 0) for p, end in self.section.ends.items())

    def lines(self) -> Iterator[str]:
        """For people."""
        s = self.section
        yield f"lane {s.lane}: {self.size - len(self.lacking)} of {self.size} offsets are in the table"
        for p, end in sorted(s.ends.items()):
            yield f"  {p} [{s.starts.get(p, 0)}, {end}): lacks {self.lacking[p]}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        s = self.section
        return {
            "lane": s.lane,
            "range": {str(p): [s.starts.get(p, 0), end] for p, end in sorted(s.ends.items())},
            "offsets": self.size,
            "lacking": self.lacking.to_dict(),
        }


def open_lanes(session: LandingSession) -> tuple[OpenLane, ...]:
    """By name.

    :raises CatalogError: the catalog is away
    """
    state = ledger_state(session, session.landing.table)
    if state is None:
        return ()
    own = [s for s in state.sections if s.landing == session.landing.name and s.lane not in (LIVE, FILLED)]
    has = state.covered()
    return tuple(OpenLane(section=s, lacking=_range(s) - has) for s in sorted(own, key=lambda s: s.lane))


def _range(section: LedgerSection) -> Coverage:
    return Coverage({p: RangeSet.of((section.starts.get(p, 0), end)) for p, end in section.ends.items()})
