# SPDX-License-Identifier: Apache-2.0
"""How much of its topics a landing has not planned yet.

Planned ranges count as planned even if they fail, since the next plan takes them again. Rows are offsets up to the last
stable one, an upper bound. Before the first plan, counting begins at the start of the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_lakecommit.core.log import CycleOpened, Entry
from airflow_provider_lakecommit.core.offsets import SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Unplanned records. ``bytes`` is estimated, ``age`` in seconds, ``planned`` grows with each plan that takes
    something.
    """

    rows: int
    bytes: int
    age: float | None
    planned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLimits:
    """Limits from which a backlog is landed; any one suffices. ``age`` is in seconds."""

    rows: int | None = None
    bytes: int | None = None
    age: float | None = None

    def reached(self, backlog: Backlog) -> list[str]:
        """Return a text for each reached limit."""
        out = []
        if self.rows is not None and backlog.rows >= self.rows:
            out.append(f"{backlog.rows} rows, at least {self.rows}")
        if self.bytes is not None and backlog.bytes >= self.bytes:
            out.append(f"about {backlog.bytes} bytes, at least {self.bytes}")
        if self.age is not None and backlog.age is not None and backlog.age >= self.age:
            out.append(f"the oldest is {backlog.age:.0f} s old, at least {self.age:.0f} s")
        return out


def planned_after(planned: Mapping[SourcePartition, int], entry: Entry) -> Mapping[SourcePartition, int]:
    """Return up to where each partition is planned, after one more log entry."""
    if not isinstance(entry, CycleOpened):
        return planned
    plan, out = entry.plan, dict(planned)
    spans = [(span.partition, span.range.end) for part in plan.slices for span in part.spans]
    # A plan that left nothing has all that there was, or somebody before it.
    complete = plan.ends.items() if plan.left == 0 and plan.refused is None else ()
    for partition, end in (*spans, *complete):
        out[partition] = max(out.get(partition, 0), end)
    return out


def unplanned(
    planned: Mapping[SourcePartition, int], bounds: Mapping[SourcePartition, tuple[int, int]]
) -> dict[SourcePartition, tuple[int, int]]:
    """Return the unplanned offsets per partition, as start and end.

    :param bounds: first and last stable offset of each partition
    """
    found = {p: (max(start, planned.get(p, start)), stable) for p, (start, stable) in bounds.items()}
    return {p: (begin, end) for p, (begin, end) in found.items() if begin < end}
