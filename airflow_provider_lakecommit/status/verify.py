# SPDX-License-Identifier: Apache-2.0
"""The checks of `verify`: the history of a landing's tables adds up.

Contract: pure. A :class:`TableHistory` holds what the table says of itself, oldest snapshot first, on the branch's
ancestry only: what was rolled back is no part of it. Of the findings one that is ``wrong`` means that a promise is
broken, a note is for information (commits of others, history that was expired). Nothing is compared with the source,
which forgets.

Checked per landing snapshot, by :mod:`~airflow_provider_lakecommit.status.verify_table`: every ledger can be read; no
section is dropped, loses ranges or changes without a word; the ranges that a snapshot says it adds are exactly what its
ledger gained; ledgers have no hole and no overlap; the records add up to the ranges; rows equal the record counts of
the files; no token and no file path comes twice. Only a snapshot that replaces ranges takes files out
(:mod:`~airflow_provider_lakecommit.status.replaced`).

Replays of dead letters: :mod:`~airflow_provider_lakecommit.status.replays`.

Checked between the tables of a landing, on what both have, wherever each of them ends: of each range as many records
are dead letters as the data table says were rejected, and both judged it by the same rules, unless none was rejected.
What a person said, or what was expired, is accounted for by nobody; that is a note where it hides a reject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from airflow_provider_lakecommit.committer import SnapshotKind, had_before, moved_lanes
from airflow_provider_lakecommit.core import (
    DEAD_LETTER,
    Account,
    Counts,
    Coverage,
    Judged,
    LedgerSection,
    RangeSet,
    Role,
    merged,
    otherwise,
)
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.accounts import LedgerChange, RangeAccounts, RangeTotals, blocks_of, pieces_of
from airflow_provider_lakecommit.status.lanes import gone_over
from airflow_provider_lakecommit.status.moved import moved_text
from airflow_provider_lakecommit.status.replaced import replaced_rows, replayed_rows, taken_from
from airflow_provider_lakecommit.status.replays import Step, is_replay, replay_problems
from airflow_provider_lakecommit.status.table_history import (
    AddedFile,
    Finding,
    LandingSnapshot,
    Sections,
    Severity,
    TableHistory,
)
from airflow_provider_lakecommit.status.verify_table import check_table, covered_of, wrong_snapshot, wrong_table

__all__ = [
    "FATES",
    "AddedFile",
    "Finding",
    "LandingSnapshot",
    "Severity",
    "TableHistory",
    "TableTotals",
    "check_landing",
    "totals",
]

FATES = {Role.ROWS: "landed", Role.DEAD_LETTERS: "rejected"}
"""Of the records that are a row of a table of that role, the name of their count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTotals:
    """Sums over a table's history, of one landing. Of its ``rows``, ``replaced`` were taken out again."""

    snapshots: int
    offsets: int
    rows: int
    files: int
    counts: Counts
    replaced: int = 0


def totals(history: TableHistory, landing: str) -> TableTotals:
    mine = [s for s in history.snapshots if s.record.landing == landing]
    return TableTotals(
        snapshots=len(mine),
        offsets=sum(len(s.record.ranges) for s in mine),
        rows=sum(s.record.rows for s in mine),
        files=sum(len(s.files) for s in mine),
        counts=sum((s.counts for s in mine), Counts()),
        replaced=sum(replaced_rows(s.record) for s in mine),
    )


def check_landing(landing: Landing, histories: Iterable[TableHistory]) -> list[Finding]:
    """All findings on all tables of a landing, those between the tables last."""
    known = {h.table: h for h in histories}
    tables = {r: [known[d.table] for d in landing.destinations if d.role is r and d.table in known] for r in Role}
    aside = {h.table: h for h in _set_aside(landing, tables[Role.ROWS])}
    told = [aside.get(name, h) for name, h in known.items()]
    found = [finding for h in told for finding in (*h.problems, *check_table(h), *_words(h))]
    found += _rolled_back(landing.name, known.values())
    if not any(h.taken_out.get(landing.name) for h in known.values()):
        found += _unknown(landing.name, known.values())
    for role, some in tables.items():
        one_each = role is Role.DEAD_LETTERS or landing.one_row_each
        shared = len(some) > 1
        found += (
            f for h in some for f in _rows_of_records(landing.name, h, FATES[role], one_each=one_each, shared=shared)
        )
    if len(landing.data_tables) > 1 and len(tables[Role.ROWS]) == len(landing.data_tables):
        found += _rows_of_all(landing, tables[Role.ROWS])
    for h in tables[Role.ROWS]:
        found += _replays(landing.name, h, one_each=landing.one_row_each)
    for data, dead in product(tables[Role.ROWS], tables[Role.DEAD_LETTERS]):
        found += _fates(landing.name, data, dead)
    return found


def _rolled_back(landing: str, histories: Iterable[TableHistory]) -> Iterator[Finding]:
    for h in histories:
        if rows := h.taken_out.get(landing):
            text = f"was rolled back to before the first snapshot of landing {landing}, and {rows} rows with it"
            yield wrong_table(h, text)


def _unknown(landing: str, histories: Iterable[TableHistory]) -> Iterator[Finding]:
    """A landing of which no table knows, where others are: its name is another one than theirs."""
    there = {name: h.table for h in histories for s in h.snapshots for name, _ in s.sections}
    if there and landing not in there:
        others = ", ".join(f"{name!r}" for name in sorted(there))
        text = f"nothing of landing {landing!r} is in it, so that nothing could be checked; there is {others}"
        yield Finding(level=Severity.WRONG, table=next(iter(there.values())), text=text)


def _words(history: TableHistory) -> Iterator[Finding]:
    """What persons decided: each snapshot by which they set a ledger, and their own record of who and why, which
    outlives it. A release that does not know of such records does not carry them on: then older snapshots have them.
    """
    before: Sections = {}
    for s in history.snapshots:
        if s.record.kind is SnapshotKind.INIT:
            yield Finding(
                level=Severity.NOTE,
                table=history.table,
                snapshot_id=s.record.snapshot_id,
                text=_set_by_hand(s, before.get(s.key)),
            )
        before = s.sections
    for decision in dict.fromkeys(d for s in history.snapshots for d in s.record.decisions):
        yield Finding(level=Severity.NOTE, table=history.table, text=f"a person decided: {decision}")


def _set_by_hand(s: LandingSnapshot, before: LedgerSection | None) -> str:
    after, word = s.sections.get(s.key), s.record.extra.get("attested")
    who = f"a person {'attested' if word else 'set'} the ledger of landing {s.record.landing!r}"
    by = f" by {word}" if word else ""
    if before is None or after is None:
        starts = {} if after is None else after.starts
        return f"{who}{by}; it begins at {', '.join(f'{p}@{o}' for p, o in sorted(starts.items())) or 'nothing'}"
    if (moved := moved_lanes(s.record)) is not None:
        return f"{who} {moved_text(s.sections.get((s.record.landing, moved[1])), before, after)}"
    gained, lost = after.covered - before.covered - had_before(s.record), before.covered - after.covered
    said = [f"{'holds' if word else 'gives up'} {gained}, {len(gained)} offsets"] if gained else []
    if over := gone_over(before, after) - Coverage.union(section.covered for section in s.sections.values()):
        lanes = [f"lane {name}" for (_, name), section in sorted(s.sections.items()) if section.ends]
        said.append(f"goes forward over {over}, {len(over)} offsets, left to {', '.join(lanes) or 'nobody'}")
    said += [f"goes back over {lost}, {len(lost)} offsets"] if lost else []
    return f"{who}{by}; {'; '.join(said) or 'gives up nothing'}"


def _rows_of_records(
    landing: str, history: TableHistory, fate: str, *, one_each: bool, shared: bool
) -> Iterator[Finding]:
    """Each record of that fate is one row of the table, or at least one; of one of several tables, at most one."""
    for s in history.snapshots:
        records = getattr(s.counts, fate)
        differs = (s.record.rows < records and not shared) or (one_each and s.record.rows > records)
        if differs and s.record.landing == landing and not is_replay(s.record):
            yield wrong_snapshot(history.table, s, f"{s.record.rows} rows for {records} {fate} records")


def _set_aside(landing: Landing, histories: Sequence[TableHistory]) -> Iterator[TableHistory]:
    """The missing tables whose records are dead letters as long as they are, as the landing says, told as that. Where
    the rows of the others are not all that landed, or nobody can tell, they may have been dropped.
    """
    if landing.routing is None or landing.routing.missing != DEAD_LETTER or not landing.one_row_each:
        return
    found = _rows_and_landed(landing, histories)
    for h in histories:
        made = h.table == landing.table or landing.create_of(h.table) is not None
        if h.absent and not made and found is not None and found[1] == {found[0]}:
            text = "there is no such table: as `missing` of the route says, its records are dead letters until there is"
            yield replace(h, problems=(Finding(level=Severity.NOTE, table=h.table, text=text),))


def _rows_and_landed(landing: Landing, histories: Sequence[TableHistory]) -> tuple[int, set[int]] | None:
    """Their rows, and how many records landed by each; ``None`` where these are not of the same records."""
    known = [h for h in histories if h.snapshots]
    sums = [totals(h, landing.name) for h in known]
    ranges = {str(covered_of(h.snapshots[-1].sections, landing.name)) for h in known}
    if len(ranges) != 1 or not all(h.whole for h in histories) or any(t.replaced for t in sums):
        return None
    return sum(t.rows for t in sums), {t.counts.landed for t in sums}


def _rows_of_all(landing: Landing, histories: Sequence[TableHistory]) -> Iterator[Finding]:
    """Where all tables have the same ranges, and nothing was replaced, each record that landed is a row of one. A table
    that has none is one that joins, of which nothing landed yet, or it was made anew.
    """
    if (found := _rows_and_landed(landing, histories)) is None:
        return
    rows, landed = found
    if not all(h.snapshots for h in histories):
        empty = next(h for h in histories if not h.snapshots)
        if rows < max(landed):
            text = (
                f"has nothing of landing {landing.name}, and {max(landed)} records that landed are {rows} rows of the"
            )
            yield wrong_table(empty, f"{text} other tables: it was dropped, or made anew")
        return
    if len(landed) > 1 or rows < max(landed) or (landing.one_row_each and rows > max(landed)):
        told = " or ".join(map(str, sorted(landed)))
        yield wrong_table(histories[0], f"it and the other tables of rows have {rows} rows for {told} landed records")


def _replays(landing: str, history: TableHistory, *, one_each: bool) -> Iterator[Finding]:
    """Dead letters that became rows."""
    ledgers = [[s for (name, _), s in of.sections.items() if name == landing] for of in history.snapshots]
    known = zip((None, *ledgers), ledgers, strict=False)
    steps: list[Step] = [(s.record, before, after) for s, (before, after) in zip(history.snapshots, known, strict=True)]
    for snapshot_id, text in replay_problems(landing, steps, pieces_in(history, landing), one_each=one_each):
        yield Finding(level=Severity.WRONG, table=history.table, snapshot_id=snapshot_id, text=text)


def _fates(landing: str, data: TableHistory, dead: TableHistory) -> Iterator[Finding]:
    """Each record that the data table has no row of is in the other one, and no other record."""
    rejects = Coverage()
    for block in blocks_of(pieces_in(data, landing), pieces_in(dead, landing)):
        if block.ours is None or block.ours.rejected or block.theirs is None or block.theirs.rejected:
            rejects |= Coverage({block.partition: RangeSet.of(block.range)})
        if (said := _fate(block, data.table)) is not None:
            yield Finding(level=said[0], table=dead.table, text=said[1])
    ours, theirs = (_judged(history, landing) for history in (data, dead))
    for rules, ranges in theirs.items():
        if anew := otherwise(ours, ranges, rules) & rejects:
            text = f"{anew} was judged by other rules than in {data.table}: a record may be in both, or in neither"
            yield Finding(level=Severity.WRONG, table=dead.table, text=text)


def _fate(block: RangeTotals, data: str) -> tuple[Severity, str] | None:
    """What is to be said of a range."""
    ours, theirs = block.ours, block.theirs
    if ours is None or ours.rejected == (0 if theirs is None else theirs.rejected):
        return None
    if theirs is None:
        text = f"of {block} it does not account for all, and {ours.rejected} records of {data} were rejected there"
        return Severity.NOTE, f"{text}: it is behind, or a person said that it has them"
    text = f"of {block} it has {theirs.rejected} rows, while {ours.rejected} records of {data} were rejected"
    if theirs.skipped > ours.skipped:
        return Severity.NOTE, f"{text}: a person gave up {theirs.skipped} offsets"
    if 0 < theirs.rejected - ours.rejected <= ours.skipped - theirs.skipped:
        # Given up while the landing had no dead-letter table, which has read them since.
        return Severity.NOTE, f"{text}: a person gave up {ours.skipped} offsets of {data}"
    return Severity.WRONG, f"{text}: a record is in both tables, or in neither"


def pieces_in(history: TableHistory, landing: str) -> RangeAccounts:
    """What a table's history accounts for of each range of a landing."""
    had, steps = Coverage(), []
    for s in history.snapshots:
        has = covered_of(s.sections, landing)
        own = s.record.landing == landing
        ranges, account = (s.record.ranges, s.record.accounting) if own else (Coverage(), Account())
        if taken := taken_from(s.record, landing):
            steps.append(LedgerChange(had=had, has=had - taken, ranges=Coverage(), account=Account()))
            had = had - taken
        steps.append(LedgerChange(had=had, has=has, ranges=ranges, account=account))
        had = has
    return pieces_of(steps)


def replayed_in(history: TableHistory, landing: str) -> Coverage:
    """Return the offsets whose dead letters became rows of a table, as far as its history is left."""
    found = Coverage()
    for s in history.snapshots:
        if s.record.landing == landing:
            found = (found - taken_from(s.record, landing)) | replayed_rows(s.record)
        # What is read again has rows of its own.
        found &= covered_of(s.sections, landing)
    return found


def _judged(history: TableHistory, landing: str) -> Judged:
    """By the newest ledger."""
    last = history.snapshots[-1].sections if history.snapshots else {}
    found = (item for (name, _), s in last.items() if name == landing for item in s.judged.items())
    return merged({}, found, most=None)
