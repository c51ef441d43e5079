# SPDX-License-Identifier: Apache-2.0
"""Replacements in a history: one that adds up has no findings, and each way to forge one is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.model import Counts, ReadPosition, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange
from airflow_provider_lakecommit.iceberg.ledger.replaced import (
    REPLACED,
    Replaced,
    renewed_epoch,
    replaced_of,
    sections_after,
)
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind
from airflow_provider_lakecommit.status.table_history import LandingSnapshot, Severity
from airflow_provider_lakecommit.status.verify import check_landing
from airflow_provider_lakecommit.status.verify_table import check_table
from tests.unit.status.test_verify import (
    FIRST,
    LANDING,
    ORIGIN,
    P0,
    P1,
    SECOND,
    cover,
    history,
    section,
    snapshot,
    texts,
)

REPLAY = "replay-1"
TOOK = Replaced(
    ranges=cover((P0, 5, 15)),
    rows=10,
    copied_rows=9,
    deleted_rows=0,
    dropped_files=0,
    rewritten_files=2,
    rewritten_bytes=1,
)
REMOVED = (("f2", 10), ("f3", 9))
COPIES = (("c2", 5), ("c3", 4))


LEFT = cover((P0, 0, 5), (P1, 0, 4))


def deleting(took: Replaced = TOOK, covered: Coverage = LEFT) -> LandingSnapshot:
    """Of what the first two snapshots landed, a part is taken out."""
    made = snapshot(4, covered, kind=SnapshotKind.REPLACE, rows=0, files=COPIES)
    return replace(made, record=replace(made.record, extra={REPLACED: took.to_text()}), removed=REMOVED)


def anew() -> LandingSnapshot:
    """The same ranges come back in a stream of their own."""
    lane = replace(section(cover((P0, 5, 15)), starts={P0: 5}), lane=REPLAY)
    files = (*COPIES, ("new", 10))
    made = snapshot(
        4, cover((P0, 0, 5), (P1, 0, 4)), cover((P0, 5, 15)), kind=SnapshotKind.REPLACE, files=files, others=[lane]
    )
    return replace(made, record=replace(made.record, lane=REPLAY, extra={REPLACED: TOOK.to_text()}), removed=REMOVED)


def wrong(*snapshots: LandingSnapshot, head: Iterable[str] | None = None) -> str:
    table = history(ORIGIN, FIRST, SECOND, *snapshots)
    if head is not None:
        table = replace(table, head=tuple(head))
    else:
        removed = {path for s in table.snapshots for path, _ in s.removed}
        table = replace(table, head=tuple(p for p in table.head if p not in removed))
    return texts(f for f in check_table(table) if f.level is Severity.WRONG)


@pytest.mark.parametrize("made", [deleting, anew])
def test_a_replacement_that_adds_up_has_no_findings(made: Callable[[], LandingSnapshot]) -> None:
    assert wrong(made()) == ""


def test_what_is_landed_again_afterwards_adds_up() -> None:
    again = snapshot(5, cover((P0, 0, 15), (P1, 0, 4)), cover((P0, 5, 15)))
    assert wrong(deleting(), again) == ""
    found = texts(check_landing(LANDING, [history(ORIGIN, FIRST, SECOND, deleting())]))
    assert "orders[0] [5, 15) was removed from the ledger of landing 'orders' and not landed again" in found


def without_extra(s: LandingSnapshot) -> LandingSnapshot:
    return replace(s, record=replace(s.record, extra={}))


@pytest.mark.parametrize(
    ("forged", "message"),
    [
        (without_extra(deleting()), "does not record which"),
        (replace(deleting(), removed=(*REMOVED, ("more", 3))), "removed files had 22"),
        (replace(deleting(), removed=REMOVED[:1]), "2 rewritten, but 1 are removed"),
        (replace(deleting(), files=COPIES[:1]), "reports 0 rows and 9 copied ones, but its 1 files have 5"),
        (deleting(replace(TOOK, copied_rows=4)), "its 2 files have 9"),
        (deleting(replace(TOOK, rows=30, copied_rows=9, deleted_rows=0)), "but at most"),
        (deleting(replace(TOOK, ranges=cover((P0, 5, 30)))), "[15, 30), which the ledger did not have"),
        (deleting(replace(TOOK, ranges=cover((P0, 7, 15)))), "lost orders[0] [5, 7)"),
        (deleting(covered=cover((P0, 0, 8), (P1, 0, 4))), "gained orders[0] [5, 8), but the snapshot reports nothing"),
        (
            replace(anew(), record=replace(anew().record, ranges=cover((P0, 5, 12)))),
            "gained orders[0] [5, 15), but the snapshot reports orders[0] [5, 12)",
        ),
        (replace(SECOND, removed=REMOVED[:1], record=replace(SECOND.record, snapshot_id=9)), "but does not record it"),
    ],
)
def test_each_forgery_is_found(forged: LandingSnapshot, message: str) -> None:
    before = () if forged.record.kind is SnapshotKind.REPLACE else (FIRST,)
    found = wrong(forged) if not before else texts(check_table(history(ORIGIN, FIRST, forged)))
    assert message in found


def test_a_replaced_file_that_another_writer_brings_back_is_found() -> None:
    assert "file f2 was replaced, but another writer has restored it" in wrong(deleting(), head=["c2", "c3", "f2"])


def test_ranges_of_another_landing_are_not_taken_with_it() -> None:
    theirs = section(cover((P1, 4, 9)), landing="returns", starts={P1: 4})
    before = replace(SECOND, sections={**SECOND.sections, theirs.key: theirs})
    after = deleting()
    found = texts(check_table(history(ORIGIN, FIRST, before, after)))
    assert "the ledger of landing 'returns' is missing" in found
    lost = replace(theirs, covered=cover((P1, 4, 5)))
    found = texts(
        check_table(history(ORIGIN, FIRST, before, replace(after, sections={**after.sections, lost.key: lost})))
    )
    assert "the ledger of landing 'returns' lost orders[1] [5, 9)" in found


def test_the_accounts_of_what_was_landed_anew_count() -> None:
    """Of replaced ranges the dead letters are those of the new rows."""
    table = replace(history(ORIGIN, FIRST, SECOND, anew()), head=("new", "c2", "c3"))
    rejected = {P0: Counts(landed=9, rejected=1)}
    dead = [
        ORIGIN,
        snapshot(2, cover((P0, 0, 5)), cover((P0, 0, 5)), rows=0),
        snapshot(3, cover((P0, 0, 15)), cover((P0, 5, 15)), account=rejected, rows=1),
    ]
    assert texts(f for f in check_landing(LANDING, [table]) if f.level is Severity.WRONG) == ""
    found = texts(check_landing(LANDING, [table, history(*dead, table="shop.dead")]))
    assert "of orders[0] [5, 15) it has 1 rows, but 0 records of shop.orders were rejected" in found


def test_the_statement_comes_back_and_corruption_is_none() -> None:
    record = deleting().record
    assert replaced_of(record) == TOOK
    assert replaced_of(replace(record, extra={REPLACED: "x"})) is None
    assert replaced_of(replace(record, kind=SnapshotKind.APPEND)) is None


TOKEN = UUID(int=5)
LIVE_SECTION = replace(
    section(cover((P0, 0, 20), (P1, 0, 5))),
    evaluated={"r1": cover((P0, 0, 20))},
    positions={P0: ReadPosition(offset=20, leader_epoch=1), P1: ReadPosition(offset=5, leader_epoch=1)},
)
LANE = replace(section(Coverage(), starts={P0: 5}), lane=REPLAY, epoch=UUID(int=2))
OTHER = section(cover((P1, 5, 9)), landing="returns", starts={P1: 5})


def test_what_is_missing_for_good_renews_every_stream_of_the_landing() -> None:
    taken = cover((P0, 5, 20))
    live, lane, other = sections_after([LIVE_SECTION, LANE, OTHER], ("orders", "live"), taken, (), TOKEN, {})
    assert live.covered == cover((P0, 0, 5), (P1, 0, 5))
    assert live.evaluated == {"r1": cover((P0, 0, 5))}
    assert {p: at.offset for p, at in live.positions.items()} == {P0: 5, P1: 5}
    assert (live.epoch, lane.epoch) == (renewed_epoch(TOKEN, live), renewed_epoch(TOKEN, lane))
    assert live.epoch != lane.epoch
    assert other == OTHER


def test_what_another_stream_lands_anew_renews_no_other() -> None:
    taken = cover((P0, 5, 20))
    anew = StagedSlice(
        slice_id=UUID(int=6),
        attempt=UUID(int=7),
        window_id=UUID(int=8),
        epoch=LANE.epoch,
        spans=(SpanReport(span=Span(P0, OffsetRange(5, 20)), counts=Counts(landed=15)),),
        files=(),
        rows=15,
        schema_id=0,
        spec_id=0,
        rules="r2",
    )
    live, lane, _ = sections_after([LIVE_SECTION, LANE, OTHER], ("orders", REPLAY), taken, (anew,), TOKEN, {})
    assert (live.epoch, lane.epoch) == (LIVE_SECTION.epoch, LANE.epoch)
    assert (lane.covered, lane.evaluated) == (taken, {"r2": taken})
