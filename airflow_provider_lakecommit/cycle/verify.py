# SPDX-License-Identifier: Apache-2.0
"""The checks of `verify`: does the history of a landing's tables add up?

Contract: pure. A :class:`TableHistory` holds what the table says of itself, oldest snapshot first, on the branch's
ancestry only: what was rolled back is no part of it. :func:`check_table` and :func:`check_landing` give findings; one
that is ``wrong`` means that a promise is broken, a note is for information (commits of others, history that was
expired). Nothing is compared with the source, which forgets.

Checked per landing snapshot: every ledger can be read; no section is dropped, loses ranges or changes without a word;
the ranges that a snapshot says it adds are exactly what its ledger gained; ledgers have no hole and no overlap; the
records add up to the ranges; rows equal the record counts of the files; no token and no file path comes twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product

from airflow_provider_lakecommit.committer.summary import SnapshotKind, SnapshotRecord, pruned_sections
from airflow_provider_lakecommit.core.formats import ONE_ROW_EACH
from airflow_provider_lakecommit.core.model import Counts, LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet
from airflow_provider_lakecommit.core.routing import Role
from airflow_provider_lakecommit.landing import Landing

__all__ = [
    "AddedFile",
    "Finding",
    "LandingSnapshot",
    "Severity",
    "TableHistory",
    "TableTotals",
    "check_landing",
    "check_table",
    "totals",
]

Sections = Mapping[tuple[str, str], LedgerSection]
FATES = {Role.ROWS: "landed", Role.DEAD_LETTERS: "rejected"}
"""Of the records that are a row of a table of that role, the name of their count."""


class Severity(StrEnum):
    """How much a finding says."""

    WRONG = "wrong"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is off, or worth knowing."""

    level: Severity
    table: str
    text: str
    snapshot_id: int | None = None

    def __str__(self) -> str:
        where = f"{self.table} snapshot {self.snapshot_id}" if self.snapshot_id is not None else self.table
        return f"{self.level}: {where}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A data file that a snapshot added."""

    path: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingSnapshot:
    """What a snapshot of a landing says of itself, and the files that it really added."""

    record: SnapshotRecord
    sections: Sections
    files: tuple[AddedFile, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        return self.record.landing, self.record.lane

    @property
    def counts(self) -> Counts:
        return self.record.accounting.total


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """One table as it tells its own story. ``whole`` is false where the oldest landing snapshots were expired."""

    table: str
    snapshots: tuple[LandingSnapshot, ...]
    whole: bool
    head: tuple[str, ...] = ()
    problems: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTotals:
    """Sums over a table's history, of one landing."""

    snapshots: int
    offsets: int
    rows: int
    files: int
    counts: Counts


def totals(history: TableHistory, landing: str) -> TableTotals:
    mine = [s for s in history.snapshots if s.record.landing == landing]
    return TableTotals(
        snapshots=len(mine),
        offsets=sum(len(s.record.ranges) for s in mine),
        rows=sum(s.record.rows for s in mine),
        files=sum(len(s.files) for s in mine),
        counts=sum((s.counts for s in mine), Counts()),
    )


def check_landing(landing: Landing, histories: Iterable[TableHistory]) -> list[Finding]:
    """All findings on all tables of a landing, those between the tables last."""
    known = {h.table: h for h in histories}
    found = [finding for h in known.values() for finding in (*h.problems, *check_table(h))]
    tables = {r: [known[d.table] for d in landing.destinations if d.role is r and d.table in known] for r in Role}
    for role, some in tables.items():
        one_each = role is Role.DEAD_LETTERS or landing.format in ONE_ROW_EACH
        found += (f for h in some for f in _rows_of_records(landing.name, h, FATES[role], one_each=one_each))
    for data, dead in product(tables[Role.ROWS], tables[Role.DEAD_LETTERS]):
        found += _between(landing, data, dead)
    return found


def _rows_of_records(landing: str, history: TableHistory, fate: str, *, one_each: bool) -> Iterator[Finding]:
    """Each record of that fate is one row of the table, or at least one."""
    for s in history.snapshots:
        records = getattr(s.counts, fate)
        if s.record.landing == landing and (s.record.rows < records or (one_each and s.record.rows > records)):
            yield _wrong(history.table, s, f"{s.record.rows} rows for {records} {fate} records")


def _between(landing: Landing, data: TableHistory, dead: TableHistory) -> Iterator[Finding]:
    """Where both tables hold the same offsets since the same start, they must account for them alike."""
    if not (data.whole and dead.whole and _ledger(data, landing.name) and _same_ledger(data, dead, landing.name)):
        return
    ours, theirs = totals(data, landing.name), totals(dead, landing.name)
    if ours.counts.rejected != theirs.rows:
        text = f"{theirs.rows} rows, while {ours.counts.rejected} records of {data.table} were rejected"
        yield Finding(level=Severity.WRONG, table=dead.table, text=text)


def _ledger(history: TableHistory, landing: str) -> dict[str, LedgerSection]:
    last = history.snapshots[-1].sections if history.snapshots else {}
    return {lane: section for (name, lane), section in last.items() if name == landing}


def _same_ledger(one: TableHistory, other: TableHistory, landing: str) -> bool:
    here, there = _ledger(one, landing), _ledger(other, landing)
    return {k: (s.starts, s.covered) for k, s in here.items()} == {k: (s.starts, s.covered) for k, s in there.items()}


def check_table(history: TableHistory) -> Iterator[Finding]:
    """All that one table can be asked."""
    before: Sections | None = None if not history.whole else {}
    for s in history.snapshots:
        texts = [*_sections(before, s), *_accounting(s)] if before is not None else _accounting(s)
        yield from (_wrong(history.table, s, text) for text in texts)
        yield from (_wrong(history.table, s, text) for text in _shape(s.sections))
        before = s.sections
    tokens = Counter(s.record.token for s in history.snapshots if s.record.token is not None)
    for token, n in tokens.items():
        if n > 1:
            yield _of_table(history, f"{n} snapshots have the token {token}: the same slices were published {n} times")
    yield from (_of_table(history, text) for text in _paths(history))


def _sections(before: Sections, s: LandingSnapshot) -> Iterator[str]:
    """Each section must be what it was, plus what this snapshot says."""
    pruned = pruned_sections(s.record)
    for key in sorted({*before, *s.sections} - pruned):
        name = f"landing {key[0]!r}" + ("" if key[1] == "live" else f" lane {key[1]!r}")
        if key not in s.sections:
            yield f"the ledger of {name} is gone; the snapshot before held it"
            continue
        own = key == s.key
        if own and s.record.kind is SnapshotKind.INIT:
            continue
        had, has = before[key].covered if key in before else Coverage(), s.sections[key].covered
        said = s.record.ranges if own else Coverage()
        if lost := had - has:
            yield f"the ledger of {name} lost {lost}"
        if twice := said & had:
            yield f"{twice} was in the ledger of {name} before: landed twice"
        if (gained := has - had) != said - had:
            yield f"the ledger of {name} gained {gained}, the snapshot says {said}"


def _accounting(s: LandingSnapshot) -> Iterator[str]:
    parts = s.record.accounting.parts
    for p in sorted({*parts, *s.record.ranges.parts}):
        counts, ranges = parts.get(p, Counts()), s.record.ranges[p]
        if counts.total != len(ranges):
            yield f"{p}: {ranges} spans {len(ranges)} offsets, {counts.total} are accounted for ({counts})"
    if s.record.rows != (held := sum(f.rows for f in s.files)):
        yield f"says {s.record.rows} rows, its {len(s.files)} files hold {held}"


def _shape(sections: Sections) -> Iterator[str]:
    for (landing, _), section in sorted(sections.items()):
        for p, ranges in sorted(section.covered.parts.items()):
            if beyond := ranges - RangeSet.of((0, section.end(p))):
                yield f"the ledger of landing {landing!r} has a hole: {p} is landed to {section.end(p)} and in {beyond}"
    for (one, a), (other, b) in combinations(sorted(sections.items()), 2):
        if both := a.covered & b.covered:
            yield f"landings {one[0]!r} and {other[0]!r} both hold {both}"


def _paths(history: TableHistory) -> Iterator[str]:
    added = Counter(f.path for s in history.snapshots for f in s.files)
    yield from (f"file {path} was added by {n} snapshots" for path, n in added.items() if n > 1)
    held = Counter(history.head)
    yield from (f"file {path} is in the table {n} times" for path, n in held.items() if n > 1 and added[path] < 2)


def _wrong(table: str, s: LandingSnapshot, text: str) -> Finding:
    return Finding(level=Severity.WRONG, table=table, snapshot_id=s.record.snapshot_id, text=text)


def _of_table(history: TableHistory, text: str) -> Finding:
    return Finding(level=Severity.WRONG, table=history.table, text=text)
