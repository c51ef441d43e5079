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
            known = _Known(p=p, mark=mark, section=section, passed=passed[p], differs=diverged.get(p), stated=stated)
            target = _continue_at(starts, ranges, known, offset)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A partition in the ledger; ``differs`` is where its log diverged."""

    p: SourcePartition
    mark: Watermark
    section: LedgerSection
    passed: RangeSet
    differs: int | None
    stated: StatedOffsets

    def rewind_to(self, offset: int, end: int) -> int | None:
        """Return where a decision goes back to, if it does. A known divergence has none of the log's rows behind it."""
        if self.differs:
            return max(offset, self.differs) if max(offset, self.differs) < end else None
        shorter = end > self.mark.high or self.differs is not None
        return offset if offset < end and shorter and self.stated.back else None


def _continue_at(
    starts: dict[SourcePartition, int], out: Mapping[str, Ranges], known: _Known, offset: int | None
) -> int:
    """Move a partition in the ledger; return where it continues."""
    p, section = known.p, known.section
    first = section.starts.get(p, 0)
    end = (section.covered[p] | known.passed).reach(first)
    if offset is not None and (to := known.rewind_to(offset, end)) is not None:
        out["back"][p] = RangeSet.of((to, end))
        if known.differs is not None and known.differs < to:
            # What the log has there in place of records that it lost.
            out["given_up"][p] = RangeSet.of((known.differs, to))
        if p in starts:
            starts[p] = min(first, to)
        # What lies before the first offset was landed by others.
        out["covered"][p] = section.covered[p] & RangeSet.of((0, to)) | RangeSet.of((min(first, to), to))
        return to
    # Behind a range that the table lacks it may have more.
    reached = max(end, section.covered[p].ranges[-1].end) if section.covered[p] else end
    if offset is not None and offset < reached and known.stated.again:
        # What the source has removed is not read again, so it stays as it is.
        to = min(reached, max(offset, known.mark.start))
        out["again"][p] = section.covered[p] & RangeSet.of((to, reached))
        out["given_up"][p] = RangeSet.of((min(end, to), to)) - section.covered[p]
        starts[p] = min(first, to)
        out["covered"][p] = section.covered[p] & RangeSet.of((0, to)) | RangeSet.of((min(first, to), to))
        return to
    target = end if offset is None else max(end, offset)
    # What the log has in place of records that it lost is left to the lane, too.
    same = end if known.differs is None else min(end, known.differs)
    if offset is not None and known.stated.fill and (target := max(same, offset)) > same:
        landed = section.covered[p] & RangeSet.of((0, same)) if same < end else section.covered[p]
        there = max(same, min(known.mark.start, target))
        out["back"][p] = RangeSet.of((same, end))
        out["given_up"][p] = RangeSet.of((same, there)) - landed
        out["filled"][p] = RangeSet.of((there, target)) - landed
        out["covered"][p] = landed | RangeSet.of((min(first, same), same))
        starts[p] = target
        return target
    if offset is not None and known.stated.back:
        out["behind"][p] = RangeSet.of((min(offset, end), end))
    unread = min(end, end if offset is None or known.differs is None else known.differs)
    out["given_up"][p] = RangeSet.of((unread, end)) | (RangeSet.of((end, target)) - section.covered[p])
    out["covered"][p] = section.covered[p] | RangeSet.of((first, target))
    return target
