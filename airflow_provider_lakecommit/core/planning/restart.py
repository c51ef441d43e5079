# SPDX-License-Identifier: Apache-2.0
"""Decide where a table continues after `lakecommit reset offsets`.

A named partition goes forward to the stated offset. It goes back only where its log is shorter than the ledger, or
diverged from some offset on (:mod:`~airflow_provider_lakecommit.core.planning.truncation`), because the ledger's
offsets beyond are other records now; it goes back no further than the divergence, if that is known. Other partitions,
and topics that the landing no longer reads, stay as they are. Repeating a decision changes nothing.

Partitions without a known beginning, and stated offsets that the source has removed, are returned for the caller to
judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedOffsets:
    """A user's decision where named partitions continue.

    :param back: go back where a log is shorter than the ledger
    :param again: also go back over landed offsets, whose rows then are in the table twice
    :param fill: leave skipped ranges to a lane
    """

    offsets: Mapping[SourcePartition, int]
    back: bool = True
    again: bool = False
    fill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A table's ledger after a decision.

    ``given_up`` is never read, ``back`` is read again, ``removed`` is needed but missing at the source, ``unstated``
    partitions have no beginning. ``behind`` is landed and not gone back over, ``again`` is, ``filled`` is left to a
    lane.
    """

    starts: Mapping[SourcePartition, int]
    covered: Coverage
    given_up: Coverage
    back: Coverage
    removed: Coverage
    behind: Coverage
    unstated: tuple[SourcePartition, ...]
    again: Coverage = field(default_factory=Coverage)
    filled: Coverage = field(default_factory=Coverage)


Ranges = dict[SourcePartition, RangeSet]


def restart(
    stated: StatedOffsets,
    watermarks: Mapping[SourcePartition, Watermark],
    section: LedgerSection | None,
    *,
    passed: Coverage,
    firsts: Mapping[SourcePartition, int],
    diverged: Mapping[SourcePartition, int] = MappingProxyType({}),
    begun: Mapping[SourcePartition, int] = MappingProxyType({}),
) -> Restart:
    """Return the ledger of one table after a decision.

    :param watermarks: of all partitions that the landing reads
    :param section: the present ledger
    :param passed: ranges without rows for the table that its ledger lacks so far
    :param firsts: where partitions begin that neither ledger nor decision name
    :param diverged: from where a log has other records than those read
    :param begun: where other tables of the landing began partitions: this one begins no earlier
    """
    now = {p.topic: p.topic_id for p in watermarks}
    starts: dict[SourcePartition, int] = {}
    unstated: list[SourcePartition] = []
    ranges: dict[str, Ranges] = {
        what: {} for what in ("covered", "given_up", "back", "removed", "behind", "again", "filled")
    }
    topics = set() if section is None else {(p.topic, p.topic_id) for p in section.starts}
    if section is not None:
        starts = {p: o for p, o in section.starts.items() if now.get(p.topic, p.topic_id) == p.topic_id}
        ranges["covered"] = {p: s for p, s in section.covered.parts.items() if p.topic not in now}
    for p, mark in sorted(watermarks.items()):
        offset = stated.offsets.get(p)
        if section is not None and (p.topic, p.topic_id) in topics:
            target, start, own = _continued(p, mark, section, passed[p], diverged.get(p), stated)
            if start is not None:
                starts[p] = start
            for what, some in own.items():
                ranges[what][p] = some
        elif offset is not None or p in firsts:
            target = starts[p] = firsts[p] if offset is None else max(offset, 0 if stated.again else begun.get(p, 0))
            if section is not None and offset is not None and stated.fill:
                ranges["filled"][p] = RangeSet.of((mark.start, max(mark.start, target)))
        else:
            unstated.append(p)
            continue
        if offset is not None and target < mark.start:
            ranges["removed"][p] = RangeSet.of((target, mark.start))
    made = {what: Coverage(parts) for what, parts in ranges.items()}
    return Restart(starts=starts, unstated=tuple(unstated), **made)


def _continued(
    p: SourcePartition,
    mark: Watermark,
    section: LedgerSection,
    passed: RangeSet,
    differs: int | None,
    stated: StatedOffsets,
) -> tuple[int, int | None, dict[str, RangeSet]]:
    """Return where a partition in the ledger continues, where it then starts if that changes, and its ranges.

    :param differs: where its log diverged
    """
    offset, landed, first = stated.offsets.get(p), section.covered[p], section.starts.get(p, 0)
    end = (landed | passed).reach(first)
    if offset is None:
        return end, None, {"covered": landed | RangeSet.of((first, end))}

    def up_to(at: int) -> RangeSet:
        # What lies before the first offset was landed by others.
        return landed & RangeSet.of((0, at)) | RangeSet.of((min(first, at), at))

    if (to := _rewound(offset, end, mark, differs, back=stated.back)) is not None:
        # What the log has there in place of records that it lost.
        lost = {"given_up": RangeSet.of((differs, to))} if differs is not None and differs < to else {}
        start = min(first, to) if p in section.starts else None
        return to, start, {"back": RangeSet.of((to, end)), "covered": up_to(to), **lost}
    # Behind a range that the table lacks it may have more.
    reached = max(end, landed.ranges[-1].end) if landed else end
    if offset < reached and stated.again:
        # What the source has removed is not read again, so it stays as it is.
        to = min(reached, max(offset, mark.start))
        again, given_up = landed & RangeSet.of((to, reached)), RangeSet.of((min(end, to), to)) - landed
        return to, min(first, to), {"again": again, "given_up": given_up, "covered": up_to(to)}
    # What the log has in place of records that it lost is left to the lane, too.
    same = end if differs is None else min(end, differs)
    if stated.fill and (target := max(same, offset)) > same:
        kept = landed & RangeSet.of((0, same)) if same < end else landed
        there = max(same, min(mark.start, target))
        filled, given_up = RangeSet.of((there, target)) - kept, RangeSet.of((same, there)) - kept
        covered = kept | RangeSet.of((min(first, same), same))
        back = RangeSet.of((same, end))
        return target, target, {"back": back, "given_up": given_up, "filled": filled, "covered": covered}
    target = max(end, offset)
    behind = {"behind": RangeSet.of((min(offset, end), end))} if stated.back else {}
    given_up = RangeSet.of((same, end)) | (RangeSet.of((end, target)) - landed)
    return target, None, {"given_up": given_up, "covered": landed | RangeSet.of((first, target)), **behind}


def _rewound(offset: int, end: int, mark: Watermark, differs: int | None, *, back: bool) -> int | None:
    """Return where a decision goes back to, if it does. A known divergence has none of the log's rows behind it."""
    if differs:
        return max(offset, differs) if max(offset, differs) < end else None
    shorter = end > mark.high or differs is not None
    return offset if offset < end and shorter and back else None
