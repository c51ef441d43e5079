# SPDX-License-Identifier: Apache-2.0
"""Where a table goes on after a person's word on its source partitions: `lakecommit reset offsets`.

Contract: :func:`restart` is a function of its arguments. A partition that is named goes forward to what was stated,
never back over offsets that the table has; only where its log has become shorter than the ledger, or is another one
from some offset on (:mod:`~airflow_provider_lakecommit.core.planning.truncation`), does a stated offset lead back,
because the offsets that the ledger has beyond it are other records now. It leads back no further than to where the log
differs, if that is known. A partition that is not named stays where it is, whatever the source has lost of it: that is
reported by the next plan, under its own name. So does what the table has of topics that the landing does not read now.
The result of a word, given again, is the same.

Failure story: what the word leaves open (a partition of which no ledger tells, and that is not named) or cannot be (an
offset that the source has removed) is handed back by name; whether that is an error is for the caller to say.
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
    """What a person says: where each named partition goes on.

    :param back: may lead back where a log has become shorter than the ledger
    :param again: leads back over what is landed, too: it is read again, and its rows are in the table then
    :param fill: what a word leads forward over is left to a lane
    """

    offsets: Mapping[SourcePartition, int]
    back: bool = True
    again: bool = False
    fill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A table's ledger by a word. ``given_up`` it will never read, from ``back`` on it reads again; ``removed`` has to
    be read by that word, and the source lacks it; of ``untold`` partitions nobody has said where they begin. ``behind``
    are the offsets from the word on that the table has: the word does not lead back over them. ``again`` are those that
    it does lead back over, and ``filled`` those that it leaves to a lane.
    """

    starts: Mapping[SourcePartition, int]
    covered: Coverage
    given_up: Coverage
    back: Coverage
    removed: Coverage
    behind: Coverage
    untold: tuple[SourcePartition, ...]
    again: Coverage = field(default_factory=Coverage)
    filled: Coverage = field(default_factory=Coverage)


Ranges = dict[SourcePartition, RangeSet]


def restart(
    word: StatedOffsets,
    marks: Mapping[SourcePartition, Watermark],
    section: LedgerSection | None,
    *,
    passed: Coverage,
    firsts: Mapping[SourcePartition, int],
    diverged: Mapping[SourcePartition, int] = MappingProxyType({}),
    begun: Mapping[SourcePartition, int] = MappingProxyType({}),
) -> Restart:
    """The ledger of one table by a person's word.

    :param marks: of all partitions that the landing reads
    :param section: the table's ledger as it is
    :param passed: what the table has no rows of, by the log, and its ledger does not say yet
    :param firsts: where a partition begins that neither the ledger nor the word knows
    :param diverged: from where a log has other records than those that were read of it
    :param begun: where other tables of the landing have begun partitions: this one does not begin them earlier
    """
    now = {p.topic: p.topic_id for p in marks}
    starts: dict[SourcePartition, int] = {}
    untold: list[SourcePartition] = []
    ranges: dict[str, Ranges] = {
        what: {} for what in ("covered", "given_up", "back", "removed", "behind", "again", "filled")
    }
    topics = set() if section is None else {(p.topic, p.topic_id) for p in section.starts}
    if section is not None:
        starts = {p: o for p, o in section.starts.items() if now.get(p.topic, p.topic_id) == p.topic_id}
        ranges["covered"] = {p: s for p, s in section.covered.parts.items() if p.topic not in now}
    for p, mark in sorted(marks.items()):
        said = word.offsets.get(p)
        if section is not None and (p.topic, p.topic_id) in topics:
            known = _Known(p=p, mark=mark, section=section, passed=passed[p], differs=diverged.get(p), word=word)
            goal = _goes_on(starts, ranges, known, said)
        elif said is not None or p in firsts:
            goal = starts[p] = firsts[p] if said is None else max(said, 0 if word.again else begun.get(p, 0))
            if section is not None and said is not None and word.fill:
                ranges["filled"][p] = RangeSet.of((mark.start, max(mark.start, goal)))
        else:
            untold.append(p)
            continue
        if said is not None and goal < mark.start:
            ranges["removed"][p] = RangeSet.of((goal, mark.start))
    made = {what: Coverage(parts) for what, parts in ranges.items()}
    return Restart(starts=starts, untold=tuple(untold), **made)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A partition of which the ledger tells; ``differs`` is from where its log is another one."""

    p: SourcePartition
    mark: Watermark
    section: LedgerSection
    passed: RangeSet
    differs: int | None
    word: StatedOffsets

    def back_to(self, said: int, end: int) -> int | None:
        """Where a word leads back to, if it does. Where the log differs is known to be behind no row of it."""
        if self.differs:
            return max(said, self.differs) if max(said, self.differs) < end else None
        shorter = end > self.mark.high or self.differs is not None
        return said if said < end and shorter and self.word.back else None


def _goes_on(starts: dict[SourcePartition, int], out: Mapping[str, Ranges], known: _Known, said: int | None) -> int:
    """A partition of which the ledger tells; returns where it goes on. One newer than its topic's origin is at 0."""
    p, section = known.p, known.section
    first = section.starts.get(p, 0)
    end = (section.covered[p] | known.passed).reach(first)
    if said is not None and (to := known.back_to(said, end)) is not None:
        out["back"][p] = RangeSet.of((to, end))
        if known.differs is not None and known.differs < to:
            # What the log has there in place of records that it lost.
            out["given_up"][p] = RangeSet.of((known.differs, to))
        if p in starts:
            starts[p] = min(first, to)
        # What lies before the first offset was landed by others.
        out["covered"][p] = section.covered[p] & RangeSet.of((0, to)) | RangeSet.of((min(first, to), to))
        return to
    if said is not None and said < end and known.word.again:
        # What the source has removed is not read again, so it stays as it is.
        to = min(end, max(said, known.mark.start))
        out["again"][p] = section.covered[p] & RangeSet.of((to, end))
        starts[p] = min(first, to)
        out["covered"][p] = section.covered[p] & RangeSet.of((0, to)) | RangeSet.of((min(first, to), to))
        return to
    goal = end if said is None else max(end, said)
    # What the log has in place of records that it lost is left to the lane, too.
    same = end if known.differs is None else min(end, known.differs)
    if said is not None and known.word.fill and (goal := max(same, said)) > same:
        landed = section.covered[p] & RangeSet.of((0, same)) if same < end else section.covered[p]
        there = max(same, min(known.mark.start, goal))
        out["back"][p] = RangeSet.of((same, end))
        out["given_up"][p] = RangeSet.of((same, there)) - landed
        out["filled"][p] = RangeSet.of((there, goal)) - landed
        out["covered"][p] = landed | RangeSet.of((min(first, same), same))
        starts[p] = goal
        return goal
    if said is not None and known.word.back:
        out["behind"][p] = RangeSet.of((min(said, end), end))
    unread = min(end, end if said is None or known.differs is None else known.differs)
    out["given_up"][p] = RangeSet.of((unread, end)) | (RangeSet.of((end, goal)) - section.covered[p])
    out["covered"][p] = section.covered[p] | RangeSet.of((first, goal))
    return goal
