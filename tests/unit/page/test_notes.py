# SPDX-License-Identifier: Apache-2.0
"""What the page knows of a landing beyond its cycles."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from airflow_provider_lakecommit.core.log import CycleOpened, Decision, Directives, SliceReported, TablePublished
from airflow_provider_lakecommit.core.model import Counts, Cycle, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange
from airflow_provider_lakecommit.page.cycles import LandingCycles, cycles_after
from airflow_provider_lakecommit.page.detail_answers import detail_of
from airflow_provider_lakecommit.page.notes import MOST, MOST_UNCOMMITTED, LandingNotes, after_report
from tests.support.story import DEAD, ORDERS, P0, P1, plan, report_of
from tests.unit.page.test_landings import row

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SKIPPED = Decision(command="reset blocked --skip", actor="ann", host="h1", at="2026-01-01T12:00:00Z", landing="orders")


class Log:
    """A landing's log, and what is known after it."""

    def __init__(self) -> None:
        self.known = LandingCycles()
        self.offset = 0

    def opens(self, run: str, version: str = "s1", *decided: Decision) -> CycleOpened:
        self.offset += 1
        cycle = Cycle(commit_id=uuid4(), dag="land", run=run, number=0, slot=0)
        opened = CycleOpened(
            offset=self.offset,
            at=NOON,
            commit_id=cycle.commit_id,
            cycle=cycle,
            plan=replace(plan([[(P0, 0, 10)]], tables=(ORDERS, DEAD)), spec_version=version),
            directives=Directives(decided=decided),
        )
        self.known = cycles_after(self.known, opened)
        return opened

    def rejects(self, opened: CycleOpened, rejects: dict[str, int], reason: str = "", **of_report: Any) -> None:
        """One report on the cycle's slice of ten offsets."""
        self.offset += 1
        of_report |= {"rejects": rejects, "reject_reason": reason}
        report = report_of(opened.plan.slices[0], attempt=uuid4(), window=opened.plan.window_id, **of_report)
        rejected = sum(rejects.values())
        counted = tuple(replace(s, counts=Counts(landed=10 - rejected, rejected=rejected)) for s in report.spans)
        report = replace(report, spans=counted)
        reported = SliceReported(offset=self.offset, at=NOON, commit_id=opened.commit_id, report=report)
        self.known = cycles_after(self.known, reported)

    def publishes(self, opened: CycleOpened, table: str = DEAD) -> None:
        self.offset += 1
        covered = opened.plan.coverage
        fields = {"table": table, "snapshot_id": self.offset, "token": uuid4(), "coverage": covered}
        entry = TablePublished(offset=self.offset, at=NOON, commit_id=opened.commit_id, **fields)
        self.known = cycles_after(self.known, entry)

    @property
    def notes(self) -> LandingNotes:
        return self.known.notes


def test_a_decision_that_is_reported_again_is_reported_once_and_the_newest_are_kept() -> None:
    log = Log()
    log.opens("a", "s1", SKIPPED)
    log.opens("b", "s1", SKIPPED)
    assert log.notes.decisions == (SKIPPED,)
    many = [replace(SKIPPED, at=f"2026-01-02T00:00:{n:02}Z") for n in range(MOST + 5)]
    log.opens("c", "s1", *many)
    assert log.notes.decisions == tuple(many[-MOST:])


def test_committed_rejects_are_counted_by_kind_and_a_report_that_comes_again_counts_nothing() -> None:
    log = Log()
    first = log.opens("a")
    log.rejects(first, {"missing_required id": 3, "bad_json": 1}, "the record has 'idx'")
    log.rejects(first, {"missing_required id": 3, "bad_json": 1})
    assert [r.reason for r in log.notes.rejects] == ["the record has 'idx'", ""], "the words are of the most"
    log.publishes(first)
    log.publishes(first)
    second = log.opens("b")
    log.rejects(second, {"bad_json": 2}, "line 1: no object")
    log.publishes(second)
    found = {r.kind: (r.records, r.reason) for r in log.notes.rejects}
    assert found == {"missing_required id": (3, "the record has 'idx'"), "bad_json": (3, "line 1: no object")}
    assert [r.kind for r in log.notes.rejects] == ["missing_required id", "bad_json"]
    assert log.notes.rejects[0].ranges == ("orders[0][0, 10)",)


def test_rejects_count_when_their_table_holds_them_however_often_they_were_read() -> None:
    """A blocked range, then a commit that fails, then a range that is read again: one dead letter each in the table."""
    log = Log()
    blocked = log.opens("a")
    log.rejects(blocked, {"bad_json": 9}, "no object", blocked="9 of 10")
    assert [(r.kind, r.records) for r in log.notes.rejects] == [("bad_json", 0)], "what blocks is named"
    failed = log.opens("b")
    log.rejects(failed, {"bad_json": 8})
    again = log.opens("c")
    log.rejects(again, {"bad_json": 7})
    log.publishes(again, ORDERS)
    assert log.notes.rejects[0].records == 0, "rows only"
    log.publishes(again)
    assert (log.notes.rejects[0].records, log.notes.uncommitted) == (7, ())
    assert [c.dead_letters for c in log.known.cycles] == [0, 0, 7]


def test_uncommitted_rejects_are_bounded() -> None:
    log = Log()
    log.rejects(log.opens("a"), {"bad_json": 9})
    (one,) = log.notes.uncommitted
    report = report_of(log.opens("b").plan.slices[0], attempt=uuid4())
    elsewhere = one._replace(spans=(Span(P1, OffsetRange(0, 1)),))
    many = LandingNotes(uncommitted=(elsewhere,) * (MOST_UNCOMMITTED + 5))
    assert len(after_report(many, report).uncommitted) == MOST_UNCOMMITTED


def test_the_kinds_that_were_observed_last_are_kept() -> None:
    log = Log()
    for n in range(MOST + 5):
        log.rejects(log.opens(f"r{n}"), {f"kind {n}": 1})
    assert [r.kind for r in log.notes.rejects] == [f"kind {n}" for n in range(5, MOST + 5)]


def test_notes_are_answered_newest_first() -> None:
    log, later = Log(), replace(SKIPPED, at="2026-01-02T12:00:00Z")
    log.opens("a", "s1", SKIPPED, later)
    for kind in ("bad_json", "missing_required id"):
        log.rejects(log.opens(kind), {kind: 1})
    detail = detail_of(replace(row("orders"), cycles=log.known), (), 0.0)
    assert [d.at for d in detail.decisions] == [later.at, SKIPPED.at]
    assert [(r.kind, r.at) for r in detail.rejects] == [("missing_required id", NOON), ("bad_json", NOON)]
