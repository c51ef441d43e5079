# SPDX-License-Identifier: Apache-2.0
"""Planning: which ranges are missing, where a window ends and why, how it is cut into groups and slices.

Contract: planned are *all missing ranges, oldest first*: per table ``[ledger end, last stable offset)`` minus what is
accepted, claimed or blocked. A range that only one table lacks is planned for that table alone. Nothing is planned
beyond a blocked range of its partition. The result is a function of its arguments: the same inputs cut the same slices.

Failure story: offsets that retention removed, a topic made anew, another cluster or a log shorter than the ledger are
:class:`SourceError` that name the partitions and the command; nothing is skipped and nothing resets by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from airflow_provider_lakecommit.core.entangled import entangled_partitions
from airflow_provider_lakecommit.core.model import Budget, Slice, Span, slice_id, window_id
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.state import LandingState, TableLedger
from airflow_provider_lakecommit.exceptions import SourceError

__all__ = [
    "SLICE_BYTES",
    "Chosen",
    "Missing",
    "Watermark",
    "WindowLimits",
    "choose",
    "cut",
    "find_missing",
    "mean_size",
    "window_of",
    "worth_a_look",
]

SLICE_BYTES = 256 << 20
"""Estimated bytes of record values that one slice reads at most."""
BIG_RECORD = 1 << 20
"""Bytes of a record as big as topics take them by default."""
MANY_RECORDS = 50_000
"""Of a slice: so many take longer to read than a look at their sizes does."""
_WHOLE = 1 << 40
"""What a full slice weighs, so that records of several sizes can be weighed together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """Borders of a source partition: log start, last stable offset, high watermark; and its leader's epoch, if told,
    which is no border.
    """

    start: int
    stable: int
    high: int
    leader_epoch: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """Opt-in limits of a window, and how it is cut. ``record_bytes`` is what a record is taken for (0: not known);
    ``sizes`` counts for partitions where it is more: a few records of one partition may all be small by chance, so they
    never make its slices larger. ``max_slices`` is how many a plan can hold.
    """

    groups: int = 1
    slice_records: int = 250_000
    max_records: int | None = None
    max_bytes: int | None = None
    max_slices: int | None = None
    record_bytes: int = 0
    sizes: Mapping[SourcePartition, int] = field(default_factory=dict)

    @property
    def window_records(self) -> int | None:
        """The tighter one of both limits, in records."""
        by_bytes = max(1, self.max_bytes // (self.record_bytes or 1024)) if self.max_bytes else None
        return min((n for n in (self.max_records, by_bytes) if n is not None), default=None)

    def per_slice(self, p: SourcePartition) -> int:
        """Records of a partition in a slice that has no others."""
        size = max(self.sizes.get(p, 0), self.record_bytes)
        return max(1, min(self.slice_records, SLICE_BYTES // size if size else self.slice_records))


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Missing ranges by the tables that lack them, and per partition why the window cannot go further. ``gone`` is what
    a table beside the data table lacks and the source has removed.
    """

    ranges: Mapping[tuple[str, ...], Coverage]
    notes: Mapping[SourcePartition, str] = field(default_factory=dict)
    gone: Mapping[str, Coverage] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(c) for c in self.ranges.values())

    @property
    def coverage(self) -> Coverage:
        """Whatever table lacks it."""
        return Coverage.of(item for c in self.ranges.values() for item in c.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a window takes of what is missing, and how many offsets it leaves."""

    ranges: Mapping[tuple[str, ...], Coverage]
    left: int
    explain: tuple[str, ...]

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(Span(p, r) for c in self.ranges.values() for p, r in c.items())


def find_missing(
    landing_state: LandingState, watermarks: Mapping[SourcePartition, Watermark], claims: Coverage
) -> Missing:
    """All missing ranges. What the first table, which has the data, holds already stops nothing: a table beside it that
    lacks it, where the source has removed it too, waits for a person by itself.

    :raises SourceError: offsets below the log start are needed, the topic was made anew, or the log ends before the
        ledger
    """
    _check_topics(landing_state, watermarks)
    blocked, per_table, notes, gone = landing_state.blocked_coverage, {}, {}, []
    landed, left_behind = _landed_data(landing_state), dict[str, Coverage]()
    for table, ledger in landing_state.ledgers.items():
        accepted = landing_state.accepted_coverage(table)
        missing: dict[SourcePartition, RangeSet] = {}
        for p, mark in watermarks.items():
            begin, end = ledger.section.end(p), mark.stable
            if begin > mark.high:
                raise SourceError(_shorter(table, p, begin, mark))
            if blocked[p]:
                end = min(end, blocked[p].ranges[0].start)
                notes[p] = f"blocked at {end}: `lakecommit unblock` says how to go on"
            elif mark.stable < mark.high:
                notes[p] = (
                    f"an open transaction holds the last stable offset at {mark.stable}, "
                    f"the high watermark is {mark.high}"
                )
            wanted = RangeSet.of((begin, max(begin, end))) - _in_table(ledger, p) - accepted[p] - claims[p]
            removed = wanted & RangeSet.of((0, mark.start))
            if behind := Coverage({p: removed & landed[p]}):
                left_behind[table] = left_behind.get(table, Coverage()) | behind
            gone += [f"{p} {r} of {table}" for r in removed - landed[p]]
            missing[p] = wanted - (removed & landed[p])
        per_table[table] = Coverage(missing)
    if gone:
        raise SourceError(
            f"offsets that are not landed were removed from the source by its retention: {', '.join(gone)}; "
            f"to go on without them: `lakecommit ledger init --from earliest`, which shows first what it gives up; "
            f"what is reported is published all the same"
        )
    return Missing(ranges=_by_tables(per_table), notes=notes, gone=left_behind)


def _landed_data(landing_state: LandingState) -> Coverage:
    """What the data table has; it is the first one."""
    data = next(iter(landing_state.ledgers.values()), None)
    return Coverage() if data is None else data.section.covered | data.others


def worth_a_look(missing: Coverage, limits: WindowLimits) -> bool:
    """Whether it matters how big the records are: a slice could hold much more than it should, were they big. Where the
    size of those that landed is known (``record_bytes``), only a large slice is worth the time.
    """
    least = max(SLICE_BYTES // BIG_RECORD + 1, MANY_RECORDS if limits.record_bytes else 0)
    return any(min(len(s), limits.per_slice(p)) >= least for p, s in missing.parts.items())


def mean_size(missing: Coverage, sizes: Mapping[SourcePartition, int]) -> int:
    """Bytes of a record, over all partitions whose sizes are known; 0 when none is."""
    records = {p: len(missing[p]) for p in sizes}
    return sum(n * sizes[p] for p, n in records.items()) // max(1, sum(records.values()))


def _in_table(ledger: TableLedger, p: SourcePartition) -> RangeSet:
    """Also behind a hole, and also of another landing: what a table has is never read for it again."""
    return ledger.section.covered[p] | ledger.others[p]


def _check_topics(landing_state: LandingState, watermarks: Mapping[SourcePartition, Watermark]) -> None:
    now = {p.topic: p.topic_id for p in watermarks}
    for table, ledger in landing_state.ledgers.items():
        for p in sorted(ledger.section.starts):
            if p.topic in now and now[p.topic] != p.topic_id:
                raise SourceError(
                    f"topic {p.topic} was made anew: {table} holds offsets of topic id {p.topic_id}, the topic now has "
                    f"id {now[p.topic]}; to land the new topic from its start: `lakecommit ledger init --from earliest`"
                )
            if p.topic in now and p not in watermarks:
                raise SourceError(
                    f"topic {p.topic} has lost partition {p.partition} that {table} has a ledger of; "
                    f"is this the right cluster?"
                )


def _shorter(table: str, p: SourcePartition, end: int, mark: Watermark) -> str:
    return (
        f"{table} has landed {p} up to {end}, but the partition ends at {mark.high}: records were lost at the source "
        f"or this is another cluster; after checking: `lakecommit ledger init --from latest`, or from the offset where "
        f"its new records begin"
    )


def _by_tables(per_table: Mapping[str, Coverage]) -> dict[tuple[str, ...], Coverage]:
    """Split by the exact set of tables that lack a range."""
    out: dict[tuple[str, ...], Coverage] = {}
    for table, lacking in per_table.items():
        rest, refined = lacking, {}
        for tables, have in out.items():
            both = have & lacking
            refined[tables] = have - lacking
            refined[(*tables, table)] = both
            rest = rest - both
        refined[(table,)] = rest
        out = {t: c for t, c in refined.items() if c}
    return out


def choose(missing: Missing, watermarks: Mapping[SourcePartition, Watermark], limits: WindowLimits) -> Chosen:
    """Take everything, or the oldest ranges of every partition up to the limit, shared evenly over the partitions."""
    whole = missing.coverage
    needs = {p: len(s) for p, s in whole.parts.items()}
    shares = _share(needs, limits.window_records)
    oldest = Coverage({p: _first(s, shares[p]) for p, s in whole.parts.items()})
    taken = {tables: c & oldest for tables, c in sorted(missing.ranges.items())}
    left = len(whole) - len(oldest)
    return Chosen(
        ranges=taken, left=left, explain=tuple(_explain(taken, needs, shares, watermarks, missing.notes, limits))
    )


def _share(needs: Mapping[SourcePartition, int], allowed: int | None) -> dict[SourcePartition, int]:
    """Offsets per partition: an even share for each, what one does not need goes to the others."""
    if allowed is None or sum(needs.values()) <= allowed:
        return dict(needs)
    shares, rest = {}, allowed
    for i, p in enumerate(sorted(needs, key=lambda p: (needs[p], p))):
        shares[p] = min(needs[p], rest // (len(needs) - i))
        rest -= shares[p]
    return shares


def _first(s: RangeSet, n: int) -> RangeSet:
    out: list[OffsetRange] = []
    for r in s:
        if n <= 0:
            break
        out.append(OffsetRange(r.start, min(r.end, r.start + n)))
        n -= len(out[-1])
    return RangeSet.of(*out)


def _explain(
    taken: Mapping[tuple[str, ...], Coverage],
    needs: Mapping[SourcePartition, int],
    shares: Mapping[SourcePartition, int],
    watermarks: Mapping[SourcePartition, Watermark],
    notes: Mapping[SourcePartition, str],
    limits: WindowLimits,
) -> Iterable[str]:
    for p in sorted(watermarks):
        ranges = " and ".join(f"{c[p]} for {', '.join(t)}" for t, c in taken.items() if c[p]) or "nothing"
        left = needs.get(p, 0) - shares.get(p, 0)
        if left:
            why = f"the window's limit of {limits.window_records} records leaves {left}"
        else:
            why = notes.get(p) or (
                f"up to the last stable offset {watermarks[p].stable}" if needs.get(p) else "nothing new"
            )
        yield f"{p}: {ranges}; {why}"


def window_of(chosen: Chosen, landing_state: LandingState, *, landing: str, lane: str, spec_version: str) -> UUID:
    """Identity of the window that takes these ranges under the ledgers' epochs."""
    epochs = {t: ledger.section.epoch for t, ledger in landing_state.ledgers.items()}
    return window_id(landing, lane, spec_version, epochs, chosen.spans)


def cut(
    chosen: Chosen,
    landing_state: LandingState,
    limits: WindowLimits,
    *,
    landing: str,
    lane: str,
    spec_version: str,
) -> tuple[Slice, ...]:
    """Cut the chosen ranges into slices by group: full ones, and small rests packed together. They come oldest first:
    by what their partitions have before them in this window, so that any head of them leaves the newest. A partition
    that has a range to be tried alone, or a slice that is entangled, shares no slice: others would wait with it.
    """
    whole = Coverage.of((s.partition, s.range) for s in chosen.spans)
    window = window_of(chosen, landing_state, landing=landing, lane=lane, spec_version=spec_version)
    out: list[tuple[int, Slice]] = []
    waiting = entangled_partitions(landing_state)
    for tables, coverage in sorted(chosen.ranges.items()):
        raised = Coverage.of(item for r in landing_state.raised for item in r.coverage.items())
        troubled = Coverage({p: s for p, s in coverage.parts.items() if p in waiting or landing_state.suspects[p]})
        alone = (coverage & (landing_state.suspects | raised)) | troubled
        for group, spans in _pack(coverage - alone, limits, _apart(alone, landing_state)):
            out.append(
                (
                    max(_before(s, whole) // limits.per_slice(s.partition) for s in spans),
                    Slice(
                        slice_id=slice_id(window, spans, tables),
                        group=group,
                        spans=spans,
                        tables=tables,
                        budget=_budget(spans, landing_state),
                    ),
                )
            )
    out.sort(key=lambda item: (item[0], item[1].group, item[1].spans))
    return tuple(s for _, s in out)


def _before(span: Span, whole: Coverage) -> int:
    """How many offsets of its partition the window takes before a span."""
    start = span.range.start
    return sum(min(r.end, start) - r.start for r in whole[span.partition] if r.start < start)


@dataclass(slots=True)
class _Bin:
    """Small rests that make a slice together. Two ranges of one partition never share a slice: the older one would wait
    for what lies between them.
    """

    spans: list[Span] = field(default_factory=list)
    partitions: set[SourcePartition] = field(default_factory=set)
    weight: int = 0

    def takes(self, p: SourcePartition, weight: int) -> bool:
        return self.weight + weight <= _WHOLE and p not in self.partitions

    def add(self, span: Span, weight: int) -> None:
        self.spans.append(span)
        self.partitions.add(span.partition)
        self.weight += weight


def _apart(coverage: Coverage, landing_state: LandingState) -> Iterable[tuple[SourcePartition, OffsetRange]]:
    """The ranges, those of each raised budget by themselves, as no other range is judged by it; and of each those that
    are suspected.
    """
    for own in (*(r.coverage for r in reversed(landing_state.raised)), coverage):
        both, coverage = coverage & own, coverage - own
        for some in (both & landing_state.suspects, both - landing_state.suspects):
            yield from some.items()


def _pack(
    coverage: Coverage, limits: WindowLimits, alone: Iterable[tuple[SourcePartition, OffsetRange]]
) -> Iterable[tuple[int, tuple[Span, ...]]]:
    """Group and spans of every slice."""
    rests: dict[int, list[_Bin]] = {}
    for p, r in coverage.items():
        group, size = p.partition % limits.groups, limits.per_slice(p)
        full = len(r) // size
        for k in range(full):
            yield group, (Span(p, OffsetRange(r.start + k * size, r.start + (k + 1) * size)),)
        if rest := OffsetRange(r.start + full * size, r.end):
            bins = rests.setdefault(group, [])
            weight = len(rest) * _WHOLE // size
            fitting = next((b for b in bins if b.takes(p, weight)), None)
            if fitting is None:
                bins.append(fitting := _Bin())
            fitting.add(Span(p, rest), weight)
    for group, bins in rests.items():
        for b in bins:
            yield group, tuple(sorted(b.spans))
    for p, r in alone:
        size = limits.per_slice(p)
        for start in range(r.start, r.end, size):
            yield p.partition % limits.groups, (Span(p, OffsetRange(start, min(r.end, start + size))),)


def _budget(spans: Sequence[Span], landing_state: LandingState) -> Budget | None:
    """The newest raised budget that touches one of the spans."""
    of = Coverage.of((s.partition, s.range) for s in spans)
    return next((r.budget for r in reversed(landing_state.raised) if r.coverage.overlaps(of)), None)
