# SPDX-License-Identifier: Apache-2.0
"""Where a table goes on after a person's word on its source partitions: `lakecommit ledger init`.

Contract: :func:`restart` is a function of its arguments. A partition that is named goes forward to what was stated,
never back over offsets that the table has; only where its log has become shorter than the ledger does a stated offset
lead back, because the offsets that the ledger has beyond it are other records now. A partition that is not named stays
where it is, whatever the source has lost of it: that is reported by the next plan, under its own name. So does what the
table has of topics that the landing does not read now. The result of a word, given again, is the same.

Failure story: what the word leaves open (a partition of which no ledger tells, and that is not named) or cannot be (an
offset that the source has removed) is handed back by name; whether that is an error is for the caller to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning import Watermark

__all__ = ["Restart", "StatedOffsets", "restart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedOffsets:
    """What a person says: where each named partition goes on.

    :param back: may lead back where a log has become shorter than the ledger
    """

    offsets: Mapping[SourcePartition, int]
    back: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A table's ledger by a word. ``given_up`` it will never read, from ``back`` on it reads again; ``removed`` has to
    be read by that word, and the source lacks it; of ``untold`` partitions nobody has said where they begin. ``behind``
    are the offsets from the word on that the table has: the word does not lead back over them.
    """

    starts: Mapping[SourcePartition, int]
    covered: Coverage
    given_up: Coverage
    back: Coverage
    removed: Coverage
    behind: Coverage
    untold: tuple[SourcePartition, ...]


Ranges = dict[SourcePartition, RangeSet]


def restart(
    word: StatedOffsets,
    marks: Mapping[SourcePartition, Watermark],
    section: LedgerSection | None,
    *,
    passed: Coverage,
    firsts: Mapping[SourcePartition, int],
) -> Restart:
    """The ledger of one table by a person's word.

    :param marks: of all partitions that the landing reads
    :param section: the table's ledger as it is
    :param passed: what the table has no rows of, by the log, and its ledger does not say yet
    :param firsts: where a partition begins that neither the ledger nor the word knows
    """
    now = {p.topic: p.topic_id for p in marks}
    starts: dict[SourcePartition, int] = {}
    untold: list[SourcePartition] = []
    ranges: dict[str, Ranges] = {"covered": {}, "given_up": {}, "back": {}, "removed": {}, "behind": {}}
    known = set() if section is None else {(p.topic, p.topic_id) for p in section.starts}
    if section is not None:
        starts = {p: o for p, o in section.starts.items() if now.get(p.topic, p.topic_id) == p.topic_id}
        ranges["covered"] = {p: s for p, s in section.covered.parts.items() if p.topic not in now}
    for p, mark in sorted(marks.items()):
        said = word.offsets.get(p)
        if section is not None and (p.topic, p.topic_id) in known:
            goal = _known(starts, ranges, p, mark, said, section, passed[p], back=word.back)
        elif said is not None or p in firsts:
            goal = starts[p] = firsts[p] if said is None else said
        else:
            untold.append(p)
            continue
        if said is not None and goal < mark.start:
            ranges["removed"][p] = RangeSet.of((goal, mark.start))
    made = {what: Coverage(parts) for what, parts in ranges.items()}
    return Restart(starts=starts, untold=tuple(untold), **made)


def _known(
    starts: dict[SourcePartition, int],
    out: Mapping[str, Ranges],
    p: SourcePartition,
    mark: Watermark,
    said: int | None,
    section: LedgerSection,
    passed: RangeSet,
    *,
    back: bool,
) -> int:
    """A partition of which the ledger tells; returns where it goes on. One newer than its topic's origin is at 0."""
    first = section.starts.get(p, 0)
    end = (section.covered[p] | passed).reach(first)
    if said is not None and said < end and end > mark.high and back:
        out["back"][p] = RangeSet.of((said, end))
        if p in starts:
            starts[p] = min(first, said)
        out["covered"][p] = RangeSet.of((min(first, said), said))
        return said
    goal = end if said is None else max(end, said)
    if said is not None and back:
        out["behind"][p] = RangeSet.of((min(said, end), end))
    out["given_up"][p] = RangeSet.of((end, goal)) - section.covered[p]
    out["covered"][p] = section.covered[p] | RangeSet.of((first, goal))
    return goal
