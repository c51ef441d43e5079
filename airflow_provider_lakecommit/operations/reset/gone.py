# SPDX-License-Identifier: Apache-2.0
"""What of a ledger is gone for good: offsets of topics that do not exist any more.

Contract: pure. A topic that is made anew has another id, and an id never comes back: no record of an id that is gone
can be landed again, so a ledger need not remember it. Nothing else is ever gone: not a topic that the landing still
names, not one whose new id the section does not know yet (that is for `reset offsets` to decide), not a section of
another cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core import Coverage, LedgerSection, RangeSet, SourcePartition, judged_in

__all__ = ["gone", "pruned"]


def gone(
    section: LedgerSection, cluster_id: str, ids: Mapping[str, str | None], named: Collection[str] = ()
) -> frozenset[SourcePartition]:
    """The partitions of a section whose topics are gone.

    :param cluster_id: of the cluster that was asked
    :param ids: what it says of each topic; one that it was not asked for is not gone
    :param named: topics that the section's landing still names, as far as that is known
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
    """What is left of a section, under a new epoch; ``None`` for nothing, but for that of whoever asks."""
    starts = {p: start for p, start in section.starts.items() if p not in parts}
    covered = Coverage({p: ranges for p, ranges in section.covered.parts.items() if p not in parts})
    if not starts and not covered and not own:
        return None
    # What is known of ranges and logs that are gone goes with them: without its ranges a position has no place.
    judged = judged_in(section.judged, covered)
    positions = {p: at for p, at in section.positions.items() if p not in parts}
    replayed = _closed(section, parts, {p.topic for p in starts})
    left = replace(section, starts=starts, covered=covered, epoch=epoch)
    readings = tuple(e for e in section.provenance if not parts >= e.coverage.parts.keys())
    sink = section.sink and replace(section.sink, landed=section.sink.landed & covered)
    return replace(left, judged=judged, positions=positions, replayed=replayed, provenance=readings, sink=sink)


def _closed(section: LedgerSection, parts: Collection[SourcePartition], left: Collection[str]) -> Coverage:
    """What is left of ``replayed``. Of a topic that was made anew the former offsets stay closed as a whole: else the
    dead letters of one would be taken for those of the other.
    """
    kept = {p: ranges for p, ranges in section.replayed.parts.items() if p not in parts}
    gone = section.covered | section.replayed
    former = {p: gone[p].ranges for p in parts if p.topic in left and gone[p]}
    return Coverage(kept | {p: RangeSet.of((r[0].start, r[-1].end)) for p, r in former.items()})
