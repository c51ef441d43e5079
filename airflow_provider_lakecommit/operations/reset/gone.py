# SPDX-License-Identifier: Apache-2.0
"""Find the offsets in a ledger whose topics no longer exist.

Contract: pure. A recreated topic has another id, and ids are never reused: records of a deleted id can never land
again, so a ledger may forget it. Nothing else is deleted: no topic that the landing still names, no topic whose new id
the entry does not have yet (`reset offsets` decides about it), no entry of another cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core import Coverage, LedgerSection, RangeSet, SourcePartition, evaluated_in


def gone(
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
    judged = evaluated_in(section.evaluated, covered)
    positions = {p: at for p, at in section.positions.items() if p not in parts}
    replayed = _closed(section, parts, {p.topic for p in starts})
    left = replace(section, starts=starts, covered=covered, epoch=epoch)
    readings = tuple(e for e in section.provenance if not parts >= e.coverage.parts.keys())
    sink = section.sink and replace(section.sink, landed=section.sink.landed & covered)
    return replace(left, evaluated=judged, positions=positions, replayed=replayed, provenance=readings, sink=sink)


def _closed(section: LedgerSection, parts: Collection[SourcePartition], left: Collection[str]) -> Coverage:
    """Return the rest of ``replayed``. The former offsets of a recreated topic stay closed as a whole: otherwise the
    dead letters of one would count as those of the other.
    """
    kept = {p: ranges for p, ranges in section.replayed.parts.items() if p not in parts}
    gone = section.covered | section.replayed
    former = {p: gone[p].ranges for p in parts if p.topic in left and gone[p]}
    return Coverage(kept | {p: RangeSet.of((r[0].start, r[-1].end)) for p, r in former.items()})
