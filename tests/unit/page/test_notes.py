# SPDX-License-Identifier: Apache-2.0
"""What the page knows of a landing beyond its cycles."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.log import CycleOpened, Directives, SliceReported
from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.page.codec import decoder, encoder
from airflow_provider_lakecommit.page.cycles import LandingCycles, cycles_after
from airflow_provider_lakecommit.page.note_answers import notes_answer
from airflow_provider_lakecommit.page.notes import MOST, LandingNotes
from airflow_provider_lakecommit.page.table_answers import samples_of
from tests.support.story import P0, plan, report_of

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
            plan=replace(plan([[(P0, 0, 10)]]), spec_version=version),
            directives=Directives(decided=decided),
        )
        self.known = cycles_after(self.known, opened)
        return opened

    def rejects(self, opened: CycleOpened, rejects: dict[str, int], reason: str = "", **of_report: Any) -> None:
        self.offset += 1
        of_report |= {"rejects": rejects, "reject_reason": reason}
        report = report_of(opened.plan.slices[0], attempt=uuid4(), window=opened.plan.window_id, **of_report)
        told = SliceReported(offset=self.offset, at=NOON, commit_id=opened.commit_id, report=report)
        self.known = cycles_after(self.known, told)

    @property
    def notes(self) -> LandingNotes:
        return self.known.notes


def test_each_version_of_the_spec_is_told_with_the_run_that_began_it() -> None:
    log = Log()
    for run, version in (("a", "s1"), ("b", "s1"), ("c", "s2"), ("d", "s1")):
        log.opens(run, version)
    assert [(s.version, s.run) for s in log.notes.specs] == [("s1", "a"), ("s2", "c"), ("s1", "d")]


def test_a_decision_that_is_said_again_is_told_once_and_the_newest_are_kept() -> None:
    log = Log()
    log.opens("a", "s1", SKIPPED)
    log.opens("b", "s1", SKIPPED)
    assert log.notes.decisions == (SKIPPED,)
    many = [replace(SKIPPED, at=f"2026-01-02T00:00:{n:02}Z") for n in range(MOST + 5)]
    log.opens("c", "s1", *many)
    assert log.notes.decisions == tuple(many[-MOST:])


def test_rejects_are_counted_by_kind_and_a_report_that_comes_again_counts_nothing() -> None:
    log = Log()
    first = log.opens("a")
    log.rejects(first, {"missing_required id": 3, "bad_json": 1}, "the record has 'idx'")
    log.rejects(first, {"missing_required id": 3, "bad_json": 1})
    assert [r.reason for r in log.notes.rejects] == ["the record has 'idx'", ""], "the words are of the most"
    log.rejects(log.opens("b"), {"bad_json": 2}, "line 1: no object")
    found = {r.kind: (r.records, r.reason) for r in log.notes.rejects}
    assert found == {"missing_required id": (3, "the record has 'idx'"), "bad_json": (3, "line 1: no object")}
    assert [r.kind for r in log.notes.rejects] == ["missing_required id", "bad_json"]
    assert log.notes.rejects[0].ranges == ("orders[0][0, 10)",)


def test_what_blocks_is_told_too() -> None:
    log = Log()
    log.rejects(log.opens("a"), {"bad_json": 9}, "no object", blocked="9 of 10")
    assert log.notes.rejects[0].records == 9


def test_the_kinds_that_were_seen_last_are_kept() -> None:
    log = Log()
    for n in range(MOST + 5):
        log.rejects(log.opens(f"r{n}"), {f"kind {n}": 1})
    assert [r.kind for r in log.notes.rejects] == [f"kind {n}" for n in range(5, MOST + 5)]


def test_notes_outlive_a_restart_and_are_answered_newest_first() -> None:
    log = Log()
    log.opens("a", "s1", SKIPPED)
    log.rejects(log.opens("b", "s2"), {"bad_json": 1})
    assert decoder(LandingNotes)(encoder(LandingNotes)(log.notes)) == log.notes
    told = notes_answer(log.notes, None, samples_of(None))
    assert [s.version for s in told.specs] == ["s2", "s1"]
    assert (told.decisions[0].actor, told.rejects[0].kind, told.plan) == ("ann", "bad_json", None)


@pytest.mark.parametrize("version", ["", "s1"])
def test_a_plan_without_a_spec_is_of_no_version(version: str) -> None:
    log = Log()
    log.opens("a", version)
    assert len(log.notes.specs) == (1 if version else 0)
