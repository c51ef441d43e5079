# SPDX-License-Identifier: Apache-2.0
"""The checks of `verify`: the history of a landing's tables adds up.

A :class:`TableHistory` has the history of a table, oldest snapshot first, on the branch's ancestry only: snapshots that
were rolled back are excluded. A finding that is ``wrong`` means a broken promise, a note is for information (commits of
others, expired history). Nothing is compared with the source, which expires.

Checked per landing snapshot, by :mod:`~airflow_provider_lakecommit.status.verify_table`: every ledger can be read; no
ledger entry is dropped, loses ranges or changes without a record of it; the recorded additions of a snapshot are
exactly the growth of its ledger; ledgers have no hole and no overlap; the records add up to the ranges; rows equal the
record counts of the files; no token and no file path occurs twice. Only a snapshot that replaces ranges removes files
(:mod:`~airflow_provider_lakecommit.status.replacements`). Replays of dead letters:
:mod:`~airflow_provider_lakecommit.status.replacements`.

Checked between the tables of a landing, on their common ranges: each range has as many dead letters as the data table
counts rejects, and both applied the same rules, unless there are no rejects. Ranges stated by users, or in expired
snapshots, have no accounting; that is a note if it hides a reject.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from airflow_provider_lakecommit.core import (
    DEAD_LETTER,
    Counts,
    Coverage,
    EvaluatedBy,
    LedgerSection,
    RangeSet,
    Role,
    evaluated_otherwise,
    merged,
    tables_for,
)
from airflow_provider_lakecommit.iceberg import SnapshotKind, had_before, moved_lanes
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.accounts import RangeAccounts, common_blocks, counts_in, pieces_after
from airflow_provider_lakecommit.status.lanes import Sections, moved_text, rescanned
from airflow_provider_lakecommit.status.replacements import (
    Step,
    is_replay,
    replaced_rows,
    replay_problems,
    replayed_rows,
    taken_from,
)
from airflow_provider_lakecommit.status.table_history import (
    Finding,
    LandingSnapshot,
    Severity,
    TableHistory,
    note_on,
    wrong_in,
)
from airflow_provider_lakecommit.status.upserted import dead_rows
from airflow_provider_lakecommit.status.verify_table import check_table, covered_of

DISPOSITIONS = {Role.ROWS: "landed", Role.DEAD_LETTERS: "rejected"}
"""By role: the name of the count of records that are a row of a table of that role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTotals:
    """Sums over a table's history, of one landing. Of its ``rows``, ``replaced`` were removed again, ``superseded``
    and ``deleted`` were taken out by newer records of their keys.
    """

    snapshots: int
    offsets: int
    rows: int
    files: int
    counts: Counts
    replaced: int = 0
    superseded: int = 0
    deleted: int = 0


def totals(history: TableHistory, landing: str) -> TableTotals:
    mine = [s for s in history.snapshots if s.record.landing == landing]
    return TableTotals(
        snapshots=len(mine),
        offsets=sum(len(s.record.ranges) for s in mine),
        rows=sum(s.record.rows for s in mine),
        files=sum(len(s.files) for s in mine),
        counts=sum((s.counts for s in mine), Counts()),
        replaced=sum(replaced_rows(s.record) for s in mine),
        superseded=sum(dead_rows(s.record)[0] for s in mine),
        deleted=sum(dead_rows(s.record)[1] for s in mine),
    )


def check_landing(landing: Landing, histories: Iterable[TableHistory]) -> list[Finding]:
    """Return all findings on all tables of a landing, those between the tables last."""
    known = {h.table: h for h in histories}
    tables = {r: [known[t] for t in tables_for(landing.destinations, r) if t in known] for r in Role}
    aside = {h.table: h for h in _set_aside(landing, tables[Role.ROWS])}
    merged_histories = [aside.get(name, h) for name, h in known.items()]
    found = [finding for h in merged_histories for finding in (*h.problems, *check_table(h), *_statements(h))]
    found += _rolled_back(landing.name, known.values())
    if not any(h.taken_out.get(landing.name) for h in known.values()):
        found += _unknown(landing.name, known.values())
    for role, some in tables.items():
        one_each = role is Role.DEAD_LETTERS or landing.one_row_each
        shared = len(some) > 1
        found += (
            f
            for h in some
            for f in _rows_of_records(landing.name, h, DISPOSITIONS[role], one_each=one_each, shared=shared)
        )
    if len(landing.data_tables) > 1 and len(tables[Role.ROWS]) == len(landing.data_tables):
        found += _rows_of_all(landing, tables[Role.ROWS])
    for h in tables[Role.ROWS]:
        found += _replays(landing.name, h, one_each=landing.one_row_each)
    for data, dead in product(tables[Role.ROWS], tables[Role.DEAD_LETTERS]):
        found += _dispositions(landing.name, data, dead)
    return found


def _rolled_back(landing: str, histories: Iterable[TableHistory]) -> Iterator[Finding]:
    for h in histories:
        if rows := h.taken_out.get(landing):
            text = f"was rolled back to before the first snapshot of landing {landing}, which removed {rows} rows"
            yield wrong_in(h.table, text)


def _unknown(landing: str, histories: Iterable[TableHistory]) -> Iterator[Finding]:
    """Yield a landing that no table knows although they know others: its name differs from theirs."""
    there = {name: h.table for h in histories for s in h.snapshots for name, _ in s.sections}
    if there and landing not in there:
        others = ", ".join(f"{name!r}" for name in sorted(there))
        text = f"it has nothing of landing {landing!r}, so nothing could be checked; it has {others}"
        yield wrong_in(next(iter(there.values())), text)


def _statements(history: TableHistory) -> Iterator[Finding]:
    """Yield decisions of users: each snapshot by which they set a ledger, and the record of who and why, which outlives
    it. The newest snapshot may lack such records: then older ones have them.
    """
    before: Sections = {}
    for s in history.snapshots:
        if s.record.kind is SnapshotKind.INIT:
            yield note_on(history.table, _set_by_hand(s, before.get(s.key)), s.record.snapshot_id)
        before = s.sections
    for decision in dict.fromkeys(d for s in history.snapshots for d in s.record.decisions):
        yield note_on(history.table, f"decision of a user: {decision}")


def _set_by_hand(s: LandingSnapshot, before: LedgerSection | None) -> str:
    after, statement = s.sections.get(s.key), s.record.extra.get("attested")
    actor = f"a user {'asserted' if statement else 'set'} the ledger of landing {s.record.landing!r}"
    by = f" by {statement}" if statement else ""
    if before is None or after is None:
        starts = {} if after is None else after.starts
        return f"{actor}{by}; it starts at {', '.join(f'{p}@{o}' for p, o in sorted(starts.items())) or 'nothing'}"
    if (moved := moved_lanes(s.record)) is not None:
        return f"{actor} {moved_text(s.sections.get((s.record.landing, moved[1])), before, after)}"
    gained, lost = after.covered - before.covered - had_before(s.record), before.covered - after.covered
    changes = [f"{'holds' if statement else 'gives up'} {gained}, {len(gained)} offsets"] if gained else []
    if over := rescanned(before, after) - Coverage.union(section.covered for section in s.sections.values()):
        lanes = [f"backfill {name}" for (_, name), section in sorted(s.sections.items()) if section.ends]
        changes.append(f"skips {over}, {len(over)} offsets, left to {', '.join(lanes) or 'no backfill'}")
    changes += [f"goes back over {lost}, {len(lost)} offsets"] if lost else []
    return f"{actor}{by}; {'; '.join(changes) or 'gives up nothing'}"


def _rows_of_records(
    landing: str, history: TableHistory, disposition: str, *, one_each: bool, shared: bool
) -> Iterator[Finding]:
    """Yield snapshots with wrong rows: each record is one row, or at least one; of several tables, at most one."""
    for s in history.snapshots:
        records = getattr(s.counts, disposition)
        differs = (s.record.rows < records and not shared) or (one_each and s.record.rows > records)
        if differs and s.record.landing == landing and not is_replay(s.record):
            text = f"{s.record.rows} rows for {records} {disposition} records"
            yield wrong_in(history.table, text, s.record.snapshot_id)


def _set_aside(landing: Landing, histories: Sequence[TableHistory]) -> Iterator[TableHistory]:
    """Yield the missing tables of a route whose records are dead letters until they exist, without their finding. If
    the rows of the others are not all landed records, or unknown, these tables may have been dropped.
    """
    if landing.routing is None or landing.routing.missing != DEAD_LETTER or not landing.one_row_each:
        return
    found = _rows_and_landed(landing, histories)
    for h in histories:
        made = h.table == landing.table or landing.create_of(h.table) is not None
        if h.absent and not made and found is not None and found[1] == {found[0]}:
            text = "the table does not exist: by `missing` of the route, its records are dead letters until it does"
            yield replace(h, problems=(note_on(h.table, text),))


def _rows_and_landed(landing: Landing, histories: Sequence[TableHistory]) -> tuple[int, set[int]] | None:
    """Return their rows, and the landed records of each; ``None`` if these are not the same records."""
    known = [h for h in histories if h.snapshots]
    sums = [totals(h, landing.name) for h in known]
    ranges = {str(covered_of(h.snapshots[-1].sections, landing.name)) for h in known}
    if len(ranges) != 1 or not all(h.whole for h in histories) or any(t.replaced for t in sums):
        return None
    return sum(t.rows for t in sums), {t.counts.landed for t in sums}


def _rows_of_all(landing: Landing, histories: Sequence[TableHistory]) -> Iterator[Finding]:
    """Yield tables that break: with equal ranges and no replacement, each landed record is a row of one table. A table
    without rows is one that joins, without a landed record yet, or it was recreated.
    """
    if (found := _rows_and_landed(landing, histories)) is None:
        return
    rows, landed = found
    if not all(h.snapshots for h in histories):
        empty = next(h for h in histories if not h.snapshots)
        if rows < max(landed):
            text = f"has nothing of landing {landing.name}, but {max(landed)} landed records are {rows} rows of the"
            yield wrong_in(empty.table, f"{text} other tables: it was dropped or recreated")
        return
    if len(landed) > 1 or rows < max(landed) or (landing.one_row_each and rows > max(landed)):
        counts = " or ".join(map(str, sorted(landed)))
        text = f"it and the other tables of rows have {rows} rows for {counts} landed records"
        yield wrong_in(histories[0].table, text)


def _replays(landing: str, history: TableHistory, *, one_each: bool) -> Iterator[Finding]:
    ledgers = [[s for (name, _), s in of.sections.items() if name == landing] for of in history.snapshots]
    known = zip((None, *ledgers), ledgers, strict=False)
    steps: list[Step] = [(s.record, before, after) for s, (before, after) in zip(history.snapshots, known, strict=True)]
    for snapshot_id, text in replay_problems(landing, steps, pieces_in(history, landing), one_each=one_each):
        yield wrong_in(history.table, text, snapshot_id)


def _dispositions(landing: str, data: TableHistory, dead: TableHistory) -> Iterator[Finding]:
    """Yield ranges where the other table has not exactly the records that the data table has no row of."""
    rejects, in_data, in_dead = Coverage(), pieces_in(data, landing), pieces_in(dead, landing)
    for p, block in common_blocks(in_data, in_dead):
        ours, theirs = counts_in(in_data[p], block), counts_in(in_dead.get(p, {}), block)
        if ours is None or ours.rejected or theirs is None or theirs.rejected:
            rejects |= Coverage({p: RangeSet.of(block)})
        if (problem := _disposition(f"{p} {block}", ours, theirs, data.table)) is not None:
            yield Finding(level=problem[0], table=dead.table, text=problem[1])
    rules_of_data = _evaluated(data, landing)
    for rules, ranges in _evaluated(dead, landing).items():
        if anew := evaluated_otherwise(rules_of_data, ranges, rules) & rejects:
            text = f"{anew} was evaluated by other rules than in {data.table}: a record may be in both, or in neither"
            yield wrong_in(dead.table, text)


def _disposition(block: str, ours: Counts | None, theirs: Counts | None, data: str) -> tuple[Severity, str] | None:
    if ours is None or ours.rejected == (0 if theirs is None else theirs.rejected):
        return None
    if theirs is None:
        text = f"it does not account for all of {block}, and {ours.rejected} records of {data} were rejected there"
        return Severity.NOTE, f"{text}: it is behind, or a user stated that it has them"
    text = f"of {block} it has {theirs.rejected} rows, but {ours.rejected} records of {data} were rejected"
    if theirs.skipped > ours.skipped:
        return Severity.NOTE, f"{text}: a user gave up {theirs.skipped} offsets"
    if 0 < theirs.rejected - ours.rejected <= ours.skipped - theirs.skipped:
        # Given up while the landing had no dead-letter table, which has read them since.
        return Severity.NOTE, f"{text}: a user gave up {ours.skipped} offsets of {data}"
    return Severity.WRONG, f"{text}: a record is in both tables, or in neither"


def pieces_in(history: TableHistory, landing: str) -> RangeAccounts:
    """Return the accounting of each range of a landing in a table's history."""
    had, pieces = Coverage(), RangeAccounts()
    for s in history.snapshots:
        has = covered_of(s.sections, landing)
        own = s.record.landing == landing
        ranges, account = (s.record.ranges, s.record.accounting) if own else (Coverage(), {})
        if taken := taken_from(s.record, landing):
            pieces = pieces_after(pieces, had, had - taken, Coverage(), {})
            had = had - taken
        pieces = pieces_after(pieces, had, has, ranges, account)
        had = has
    return pieces


def replayed_in(history: TableHistory, landing: str) -> Coverage:
    """Return the offsets whose dead letters became rows of a table, as far as its history remains."""
    found = Coverage()
    for s in history.snapshots:
        if s.record.landing == landing:
            found = (found - taken_from(s.record, landing)) | replayed_rows(s.record)
        # Ranges that are read again have rows of their own.
        found &= covered_of(s.sections, landing)
    return found


def _evaluated(history: TableHistory, landing: str) -> EvaluatedBy:
    last = history.snapshots[-1].sections if history.snapshots else {}
    found = (item for (name, _), s in last.items() if name == landing for item in s.evaluated.items())
    return merged({}, found, most=None)


def verified_to_dict(
    landing: Landing, histories: Iterable[TableHistory], findings: Sequence[Finding]
) -> dict[str, Any]:
    return {
        "landing": landing.name,
        "ok": not any(f.level is Severity.WRONG for f in findings),
        "tables": [
            {"table": h.table, "whole": h.whole, "taken_by_others": h.fewer, **asdict(totals(h, landing.name))}
            for h in histories
        ],
        "findings": [
            {"level": f.level.value, "table": f.table, "snapshot_id": f.snapshot_id, "text": f.text} for f in findings
        ],
    }


def verified_text(landing: Landing, histories: Iterable[TableHistory], findings: Sequence[Finding]) -> Iterable[str]:
    fewer = 0
    for history in histories:
        t = totals(history, landing.name)
        fewer += history.fewer
        yield (
            f"{history.table}: {t.snapshots} snapshots, {t.offsets} offsets = "
            + " + ".join(f"{n} {name}" for name, n in t.counts.to_dict().items())
            + f"; {t.rows} rows in {t.files} files"
            + "".join(
                f", of which {n} were {what}"
                for what, n in (("replaced", t.replaced), ("superseded", t.superseded), ("deleted", t.deleted))
                if n
            )
        )
    yield from (f"  {finding}" for finding in findings)
    standing = "NOT all right" if any(f.level is Severity.WRONG for f in findings) else "all right"
    yield f"{landing.name}: {standing}" + (f", except {fewer} rows that other writers removed" if fewer else "")
