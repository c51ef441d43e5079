# SPDX-License-Identifier: Apache-2.0
"""How much of its topics a landing has not planned yet.

Contract: pure. What a plan has taken up counts as planned, though it may fail: the next plan takes it up again. Rows
are offsets up to the last stable one, so an upper bound. Where nothing was ever planned, counting begins with what the
topic still has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_lakecommit.core.log import CycleOpened, Entry
from airflow_provider_lakecommit.core.offsets import SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Not planned yet: ``rows``, about so many ``bytes``, the oldest ``age`` seconds old, if there is one. ``planned``
    grows with each plan that takes something up.
    """

    rows: int
    bytes: int
    age: float | None
    planned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogLimits:
    """From when on a backlog is to be landed: any that is given. ``age`` is in seconds."""

    rows: int | None = None
    bytes: int | None = None
    age: float | None = None

    def reached(self, backlog: Backlog) -> list[str]:
        """Which ones, in words."""
        out = []
        if self.rows is not None and backlog.rows >= self.rows:
            out.append(f"{backlog.rows} rows, at least {self.rows}")
        if self.bytes is not None and backlog.bytes >= self.bytes:
            out.append(f"about {backlog.bytes} bytes, at least {self.bytes}")
        if self.age is not None and backlog.age is not None and backlog.age >= self.age:
            out.append(f"the oldest is {backlog.age:.0f} s old, at least {self.age:.0f} s")
        return out


def planned_after(planned: Mapping[SourcePartition, int], entry: Entry) -> Mapping[SourcePartition, int]:
    """Up to where each partition is planned, after one more entry of the log."""
    if not isinstance(entry, CycleOpened):
        return planned
    plan, out = entry.plan, dict(planned)
    spans = [(span.partition, span.range.end) for part in plan.slices for span in part.spans]
    # A plan that left nothing has all that there was, or somebody before it.
    whole = plan.ends.items() if plan.left == 0 and plan.refused is None else ()
    for partition, end in (*spans, *whole):
        out[partition] = max(out.get(partition, 0), end)
    return out


def unplanned(
    planned: Mapping[SourcePartition, int], marks: Mapping[SourcePartition, tuple[int, int]]
) -> dict[SourcePartition, tuple[int, int]]:
    """Offsets that nobody has planned, per partition: from, up to.

    :param marks: first and last stable offset of each partition
    """
    found = {p: (max(start, planned.get(p, start)), stable) for p, (start, stable) in marks.items()}
    return {p: (begin, end) for p, (begin, end) in found.items() if begin < end}
