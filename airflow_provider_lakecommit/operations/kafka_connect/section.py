# SPDX-License-Identifier: Apache-2.0
"""The ledger entry after a sink's turn, and after a landing's.

Contract: pure. An entry begins where the sink ended, and covers the ranges before that, without marks; if the landing
had a turn before, the entry keeps its ranges and gains those of the sink since. Ranges that both have landed are
reported: the ledger can hold them only once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from airflow_provider_lakecommit.core import Coverage, LedgerSection, OffsetRange, SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The landing's turn after a sink's. ``gained`` is what the sink has landed since the landing's last turn,
    ``twice`` what both have, ``back`` what the landing has handed back and the sink would read again. ``done``: it has
    begun already.
    """

    starts: Mapping[SourcePartition, int]
    covered: Coverage
    gained: Coverage = field(default_factory=Coverage)
    twice: Coverage = field(default_factory=Coverage)
    back: Coverage = field(default_factory=Coverage)
    refused: str = ""
    done: bool = False


def turn_after(
    connector: str,
    now: LedgerSection | None,
    ends: Mapping[SourcePartition, int],
    read: Collection[SourcePartition],
    *,
    data: LedgerSection | None = None,
) -> Turn:
    """Return the entry after a turn.

    :param now: the landing's, if it has one
    :param ends: where the sink's turn ended, or would have begun
    :param read: the partitions in which the sink has read
    :param data: for another table than the data table, the data table's entry, which has the start of the sink's turn.
        A table that was rolled back ends before that, and the sink has landed nothing of what it lacks.
    """
    leading = data or now
    was_handed = leading is not None and leading.sink is not None and leading.sink.lands
    if now is None or leading is None or not (now.covered or leading.covered or was_handed):
        done = now is not None and now.sink is not None and not now.sink.lands and dict(now.sink.since) == dict(ends)
        # Rows of the sink do not identify their records, and its start is unknown, so everything before counts.
        before = _spans({p: (0, end) for p, end in ends.items() if p in read})
        return Turn(starts=dict(ends), covered=before, gained=before, done=done)
    sink = leading.sink
    if sink is None or sink.connector != connector:
        after = "itself" if sink is None else f"after connector {sink.connector}"
        refused = f"landing {now.landing} has landed {now.covered} there {after}, not after connector {connector}"
        return Turn(starts=now.starts, covered=now.covered, refused=refused)
    ids = {p.topic: p.topic_id for p in ends}
    former = {p for p in (*now.starts, *now.covered.parts) if ids.get(p.topic, p.topic_id) != p.topic_id}
    topics = {p.topic for p in former}
    its = {p: end for p, end in ends.items() if p in read}
    reach = {p: leading.end(p) for p in its}
    gained = _spans({p: (reach[p], end) for p, end in its.items()})
    begun = {p: end for p, end in ends.items() if p.topic in topics}
    starts = {**begun, **{p: min(end, reach[p]) for p, end in its.items()}, **now.starts}
    starts = {p: start for p, start in starts.items() if p not in former}
    covered = Coverage({p: some for p, some in now.covered.parts.items() if p not in former}) | gained
    if sink.lands:
        back = _spans({p: (end, reach[p]) for p, end in its.items()})
        return Turn(starts=starts, covered=covered, gained=gained, back=back)
    twice = _spans({p: (sink.since.get(p, 0), min(end, reach[p])) for p, end in its.items()})
    return Turn(starts=starts, covered=covered, gained=gained, twice=twice, done=not gained and not twice)


def _spans(ranges: Mapping[SourcePartition, tuple[int, int]]) -> Coverage:
    return Coverage.of((p, OffsetRange(start, end)) for p, (start, end) in ranges.items() if start < end)
