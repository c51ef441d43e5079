# SPDX-License-Identifier: Apache-2.0
"""The checks of `verify` on the history of one table: each step is what its snapshot states.

:mod:`~airflow_provider_lakecommit.status.verify` lists them. If older snapshots were expired, the first remaining one
is accepted as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations

from airflow_provider_lakecommit.core import Counts, Coverage, RangeSet, is_filled
from airflow_provider_lakecommit.iceberg import SnapshotKind, had_before, merged_sections, moved_lanes, pruned_sections
from airflow_provider_lakecommit.status.lanes import Sections, closed_wrongly, filled_of, moved_wrongly
from airflow_provider_lakecommit.status.replacements import (
    back_again,
    copied_rows,
    removal_problems,
    rows_problems,
    taken_from,
)
from airflow_provider_lakecommit.status.table_history import Finding, LandingSnapshot, TableHistory, note_on, wrong_in
from airflow_provider_lakecommit.status.upserted import live_problem


def check_table(history: TableHistory) -> Iterator[Finding]:
    before: Sections | None = None if not history.whole else {}
    taken: dict[str, Coverage] = {}
    for s in history.snapshots:
        texts = [*_accounting(s)]
        if before is not None:
            had = covered_of(before, s.record.landing)
            texts = [*_sections(before, s), *texts, *removal_problems(s.record, [rows for _, rows in s.removed], had)]
        yield from (wrong_in(history.table, text, s.record.snapshot_id) for text in texts)
        if out := taken_from(s.record, s.record.landing):
            taken[s.record.landing] = taken.get(s.record.landing, Coverage()) | out
        shape = _shape(s.sections, taken)
        yield from (wrong_in(history.table, text, s.record.snapshot_id) for text in shape)
        before = s.sections
    tokens = Counter(s.record.token for s in history.snapshots if s.record.token is not None)
    for token, n in tokens.items():
        if n > 1:
            text = f"{n} snapshots have the token {token}: the same slices were published again"
            yield wrong_in(history.table, text)
    yield from (wrong_in(history.table, text) for text in _paths(history))
    if (live := live_problem(history)) is not None:
        yield wrong_in(history.table, live)
    yield from _replaced(history)


def _replaced(history: TableHistory) -> Iterator[Finding]:
    for landing in sorted({s.record.landing for s in history.snapshots}):
        records = [s.record for s in history.snapshots if s.record.landing == landing]
        for snapshot_id, wrong, text in rows_problems(records, whole=history.whole):
            yield (wrong_in if wrong else note_on)(history.table, text, snapshot_id)
        out = Coverage.union(taken_from(r, landing) for r in records)
        if out and (left := out - covered_of(history.snapshots[-1].sections, landing)):
            text = f"{left} was removed from the ledger of landing {landing!r} and not landed again"
            yield note_on(history.table, text)
    for path in back_again((name for s in history.snapshots for name, _ in s.removed), history.head):
        yield wrong_in(history.table, f"file {path} was replaced, but another writer has restored it")


def _sections(before: Sections, s: LandingSnapshot) -> Iterator[str]:
    """Yield ledger entries that are not the previous ones plus the additions of this snapshot."""
    closed, moved = merged_sections(s.record), moved_lanes(s.record)
    yield from closed_wrongly(closed, before, s.sections, had_before(s.record))
    for key in sorted(
        {*before, *s.sections} - pruned_sections(s.record) - closed - filled_of(closed, {*before, *s.sections})
    ):
        if moved is not None and key[0] == s.record.landing:
            yield from moved_wrongly(before, s.sections, key, moved)
            continue
        name = f"landing {key[0]!r}" + ("" if key[1] == "live" else f" backfill {key[1]!r}")
        if key not in s.sections:
            yield f"the ledger of {name} is missing; the snapshot before had it"
            continue
        own = key == s.key
        if own and s.record.kind is SnapshotKind.INIT:
            continue
        had, has = before[key].covered if key in before else Coverage(), s.sections[key].covered
        if s.record.kind is SnapshotKind.INIT and key[0] == s.record.landing and is_filled(key[1]):
            # A user's decision may also go back over the ranges of closed backfills.
            had &= has
        had = had - taken_from(s.record, key[0])
        stated = s.record.ranges if own else Coverage()
        if lost := had - has:
            yield f"the ledger of {name} lost {lost}"
        if twice := stated & had:
            yield f"{twice} was in the ledger of {name} before: landed twice"
        if (gained := has - had) != stated - had:
            yield f"the ledger of {name} gained {gained}, but the snapshot reports {stated}"


def _accounting(s: LandingSnapshot) -> Iterator[str]:
    parts = s.record.accounting
    for p in sorted({*parts, *s.record.ranges.parts}):
        counts, ranges = parts.get(p, Counts()), s.record.ranges[p]
        if counts.total != len(ranges):
            yield f"{p}: {ranges} spans {len(ranges)} offsets, but {counts.total} are accounted for ({counts})"
    if s.record.rows + (copied := copied_rows(s.record)) != (in_files := sum(rows for _, rows in s.files)):
        text = f"{s.record.rows} rows" + (f" and {copied} copied ones" if copied else "")
        yield f"reports {text}, but its {len(s.files)} files have {in_files}"


def _shape(sections: Sections, taken: Mapping[str, Coverage]) -> Iterator[str]:
    covered = Coverage.union(s.covered for s in sections.values())
    for (landing, lane), section in sorted(sections.items()):
        # A separately recorded removal is no hole.
        known = covered | taken.get(landing, Coverage())
        # Ranges of closed backfills are in many pieces.
        for p, ranges in sorted(section.covered.parts.items() if not is_filled(lane) else ()):
            end = known[p].reach(section.starts.get(p, 0))
            # A table that was rolled back alone may lack ranges before those of a connector.
            of_sink = section.sink.landed[p] if section.sink else RangeSet()
            if beyond := ranges - RangeSet.of((0, end)) - of_sink:
                yield f"the ledger of landing {landing!r} has a hole: {p} is landed to {end} and in {beyond}"
    for (one, a), (other, b) in combinations(sorted(sections.items()), 2):
        if both := a.covered & b.covered:
            yield f"landings {one[0]!r} and {other[0]!r} both have {both}"


def _paths(history: TableHistory) -> Iterator[str]:
    added = Counter(path for s in history.snapshots for path, _ in s.files)
    yield from (f"file {path} was added by {n} snapshots" for path, n in added.items() if n > 1)
    counts = Counter(history.head)
    yield from (f"file {path} is in the table {n} times" for path, n in counts.items() if n > 1 and added[path] < 2)


def covered_of(sections: Sections, landing: str) -> Coverage:
    """Return the ranges of all streams of a landing."""
    return Coverage.union(s.covered for (name, _), s in sections.items() if name == landing)
