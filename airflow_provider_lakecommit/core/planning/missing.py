# SPDX-License-Identifier: Apache-2.0
"""Find the missing ranges, and choose where a window ends.

Missing are, per table, ``[ledger end, last stable offset)`` minus what is accepted, claimed or blocked, oldest first. A
range that only one table lacks is planned for that table alone. Nothing beyond a blocked range of a partition is
planned.

Offsets that retention removed, a recreated topic, another cluster or a log shorter than the ledger raise a
:class:`SourceError` that names the partitions and the command. Nothing is skipped or reset automatically.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from airflow_provider_lakecommit.core.commands import BACKFILL, RESET_OFFSETS, UNBLOCK
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.state import LandingState
from airflow_provider_lakecommit.exceptions import SourceError

SLICE_BYTES = 256 << 20
"""Estimated bytes of record values that one slice reads at most."""
BIG_RECORD = 1 << 20
"""The default size limit of a record."""
MANY_RECORDS = 50_000
"""Records that take longer to read than a check of their sizes."""

RangesByTables = Mapping[tuple[str, ...], Coverage]
"""Ranges by the exact set of tables that lack them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """A partition's log start, last stable offset and high watermark, and its leader's epoch if known."""

    start: int
    stable: int
    high: int
    leader_epoch: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """Opt-in limits of a window, and how it is cut.

    ``record_bytes`` is the assumed size of a record (0: unknown); ``sizes`` apply to partitions where they are larger.
    A small sample may be small by chance, so it never makes slices larger. ``max_slices`` is how many a plan can hold,
    ``dear`` how many times the mean a partition's record costs. ``by_load`` groups slices by cost instead of partition.
    """

    groups: int = 1
    slice_records: int = 250_000
    max_records: int | None = None
    max_bytes: int | None = None
    max_slices: int | None = None
    record_bytes: int = 0
    sizes: Mapping[SourcePartition, int] = field(default_factory=dict)
    dear: Mapping[SourcePartition, float] = field(default_factory=dict)
    by_load: bool = False

    @property
    def window_records(self) -> int | None:
        by_bytes = max(1, self.max_bytes // (self.record_bytes or 1024)) if self.max_bytes else None
        return min((n for n in (self.max_records, by_bytes) if n is not None), default=None)

    def per_slice(self, p: SourcePartition) -> int:
        """Return the records of a slice of this partition alone."""
        size = max(self.sizes.get(p, 0), self.record_bytes)
        most = int(self.slice_records / self.dear.get(p, 1))
        return max(1, min(most, SLICE_BYTES // size if size else most))


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Missing ranges by the tables that lack them, and per partition why the window ends.

    ``gone`` is what other tables than the data table lack and the source has removed.
    """

    ranges: RangesByTables
    notes: Mapping[SourcePartition, str] = field(default_factory=dict)
    removed: Mapping[str, Coverage] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(c) for c in self.ranges.values())

    @property
    def coverage(self) -> Coverage:
        """Return all missing ranges."""
        return Coverage.union(self.ranges.values())


def find_missing(
    landing_state: LandingState,
    watermarks: Mapping[SourcePartition, Watermark],
    claims: Coverage,
    diverged: Collection[SourcePartition] = (),
) -> Missing:
    """Return all missing ranges.

    Ranges that the data table has, another table lacks and the source has removed stop nothing; they wait for a user.

    :param diverged: partitions whose logs no longer have the landed records: nothing of them is planned
    :raises SourceError: needed offsets are below the log start, the topic was recreated, or the log ends before the
        ledger
    """
    _check_topics(landing_state, watermarks)
    blocked, per_table, lost = landing_state.blocked_coverage, {}, []
    notes = dict.fromkeys(diverged, "its log no longer has the landed records, so nothing of it is planned")
    # The data table is the first one.
    landed = next((data.all_covered for data in landing_state.ledgers.values()), Coverage())
    left_behind: dict[str, Coverage] = {}
    for table, ledger in landing_state.ledgers.items():
        accepted = landing_state.accepted_coverage(table)
        missing: dict[SourcePartition, RangeSet] = {}
        for p, mark in watermarks.items():
            if p in diverged or (ledger.section.ends and p not in ledger.section.ends):
                # Of the latter the lane is for another table alone.
                continue
            begin, end = ledger.end(p), mark.stable
            if begin > mark.high:
                raise SourceError("LC1302", _shorter(table, p, begin, mark))
            if blocked[p]:
                end = min(end, blocked[p].ranges[0].start)
                notes[p] = f"blocked at {end}: decide with `{UNBLOCK}` (or --raise N, --skip)"
            elif mark.stable < mark.high:
                notes[p] = (
                    f"an open transaction holds the last stable offset at {mark.stable}, "
                    f"the high watermark is {mark.high}"
                )
            lacking = RangeSet.of((begin, max(begin, end))) - ledger.has(p) - accepted[p] - claims[p]
            removed = lacking & RangeSet.of((0, mark.start))
            if behind := Coverage({p: removed & landed[p]}):
                left_behind[table] = left_behind.get(table, Coverage()) | behind
            lost += [(p, r, table) for r in removed - landed[p]]
            missing[p] = lacking - (removed & landed[p])
        per_table[table] = Coverage(missing)
    if lost:
        raise _removed_error(lost, landing_state)
    return Missing(ranges=by_tables(per_table), notes=notes, removed=left_behind)


def _removed_error(
    lost: Iterable[tuple[SourcePartition, OffsetRange, str]], landing_state: LandingState
) -> SourceError:
    sections = [ledger.section for ledger in landing_state.ledgers.values()]
    bounded = next((s.lane for s in sections if s.ends), None)
    remedy = f"`{BACKFILL} SPEC --close {bounded}`" if bounded else f"`{RESET_OFFSETS} SPEC --from earliest`"
    # A lane that replaces publishes nothing of what it has before it has all.
    again = any(s.replaces for s in sections)
    rest = "the same command then replays the remaining records" if again else "finished slices are still published"
    return SourceError(
        "LC1303",
        f"{len(Coverage.of((p, r) for p, r, _ in lost)):,} offsets that are not landed were removed from the source by "
        f"its retention: {', '.join(f'{p} {r} of {table}' for p, r, table in lost)}; "
        f"to go on without them: {remedy}, which shows first what it gives up; {rest}",
    )


def needs_size_check(missing: Coverage, limits: WindowLimits) -> bool:
    """Return True if record sizes matter: large records could make a slice far too large.

    If the size of landed records is known, only a large slice is worth a check.
    """
    least = max(SLICE_BYTES // BIG_RECORD + 1, MANY_RECORDS if limits.record_bytes else 0)
    return any(min(len(s), limits.per_slice(p)) >= least for p, s in missing.parts.items())


def mean_size(missing: Coverage, sizes: Mapping[SourcePartition, int]) -> int:
    """Return the mean size of a record over partitions with known sizes; 0 if there are none."""
    records = {p: len(missing[p]) for p in sizes}
    return sum(n * sizes[p] for p, n in records.items()) // max(1, sum(records.values()))


def _check_topics(landing_state: LandingState, watermarks: Mapping[SourcePartition, Watermark]) -> None:
    now = {p.topic: p.topic_id for p in watermarks}
    for table, ledger in landing_state.ledgers.items():
        for p in sorted(ledger.section.starts):
            if p.topic in now and now[p.topic] != p.topic_id:
                raise SourceError(
                    "LC1304",
                    f"topic {p.topic} was recreated: {table} holds offsets of topic id {p.topic_id}, the topic now has "
                    f"id {now[p.topic]}; {_made_anew(ledger.section)}",
                )
            if p.topic in now and p not in watermarks:
                raise SourceError(
                    "LC1305",
                    f"topic {p.topic} has no partition {p.partition}, but the ledger of {table} has; check that this "
                    "is the right cluster",
                )


def _made_anew(section: LedgerSection) -> str:
    if section.ends:
        return f"no more records of stream {section.lane} can be read: `{BACKFILL} SPEC --close {section.lane}`"
    return f"to land the new topic from its start: `{RESET_OFFSETS} SPEC --from earliest`"


def _shorter(table: str, p: SourcePartition, end: int, mark: Watermark) -> str:
    return (
        f"{table} has landed {p} up to {end}, but the partition ends at {mark.high}: records were lost at the source "
        f"or this is another cluster; check which, then continue with `{RESET_OFFSETS} SPEC --from latest`, or from "
        "the offset of its first new record"
    )


def by_tables(per_table: Mapping[str, Coverage]) -> dict[tuple[str, ...], Coverage]:
    """Group ranges by the exact set of tables that lack them."""
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


def choose(missing: Missing, limits: WindowLimits) -> RangesByTables:
    """Take everything, or the oldest ranges up to the limit, shared evenly by the partitions."""
    parts = missing.coverage.parts
    shares = _share({p: len(s) for p, s in parts.items()}, limits.window_records)
    oldest = Coverage({p: _first(s, shares[p]) for p, s in parts.items()})
    return {tables: c & oldest for tables, c in sorted(missing.ranges.items())}


def _share(needs: Mapping[SourcePartition, int], allowed: int | None) -> dict[SourcePartition, int]:
    """Share offsets evenly; what one partition does not need goes to the others."""
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


def explain(
    chosen: RangesByTables, missing: Missing, watermarks: Mapping[SourcePartition, Watermark], limits: WindowLimits
) -> Iterator[str]:
    """Yield per partition what a window takes of it, and why it ends there."""
    needed, taken = missing.coverage, Coverage.union(chosen.values())
    for p in sorted(watermarks):
        ranges = " and ".join(f"{c[p]} for {', '.join(t)}" for t, c in chosen.items() if c[p]) or "nothing"
        if left := len(needed[p]) - len(taken[p]):
            why = f"the window's limit of {limits.window_records} records leaves {left}"
        else:
            why = missing.notes.get(p) or (
                f"up to the last stable offset {watermarks[p].stable}" if needed[p] else "nothing new"
            )
        yield f"{p}: {ranges}; {why}"
