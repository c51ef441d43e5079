# SPDX-License-Identifier: Apache-2.0
"""The state of a landing in a few words: no jargon, one word for each state, and what happens if nobody acts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.page.cycles import LandingCycles
from airflow_provider_lakecommit.page.declared_landings import UNREAD, UNSEEN
from airflow_provider_lakecommit.page.landings import LandingRow, PageTopic
from airflow_provider_lakecommit.page.observed_cycle import ObservedCycle
from airflow_provider_lakecommit.page.summary import summary_of
from airflow_provider_lakecommit.stall.group_state import State
from airflow_provider_lakecommit.stall.verdict import Diagnosis, Verdict
from tests.support.story import P0, coverage

PLACE = PageTopic("kafka_default", "control")
REFUSED = "[LC6250] landing orders: 2 of 3 checks refuse 1,204 rows, which stay on branch audit"
LANDING = State(landing=True)
OPEN = ObservedCycle(commit_id="c", began=0.0, slices=1)
BLOCKED = State(
    landing=True, blocked=((coverage([(P0, 10, 20)]), "over", 5.0), (coverage([(P0, 30, 31)]), "over", 6.0))
)


def row(verdict: Verdict, reason: str = "", state: State = LANDING, *cycles: ObservedCycle) -> LandingRow:
    found = Diagnosis(verdict=verdict, reason=reason, clears="a COMMIT_COMPLETE")
    return LandingRow(
        control_topic=PLACE,
        group="g",
        key="k",
        state=state,
        found=found,
        cycles=LandingCycles(cycles=cycles),
        dags=("land",),
    )


@pytest.mark.parametrize(
    ("found", "word", "headline"),
    [
        (row(Verdict.STALLED, "3 cycles in a row failed; the last one: no"), "stalled", "3 cycles in a row failed"),
        (
            row(Verdict.SLOWING, f"1 cycle failed; the last one: {REFUSED}"),
            "slowing",
            "2 of 3 checks refuse 1,204 rows",
        ),
        (row(Verdict.BLOCKED, "2 ranges", BLOCKED), "blocked", "11 offsets are blocked"),
        (row(Verdict.SLOWING, "no", State(landing=True, deferred=(1.0, "x"))), "slowing", "nothing is read before a"),
        (row(Verdict.UNKNOWN, UNREAD), "reading", "its control topic is being read"),
        (row(Verdict.UNKNOWN, UNSEEN), "unknown", "its DAG has run, but"),
        (row(Verdict.UNKNOWN, "", State(landing=True), OPEN), "first run", "its first window is being read"),
        (replace(row(Verdict.UNKNOWN), never_ran=True), "never ran", "its DAG has no run yet"),
        (row(Verdict.HEALTHY), "healthy", "the newest commits got through"),
    ],
)
def test_a_state_is_one_word_and_one_line(found: LandingRow, word: str, headline: str) -> None:
    summary = summary_of(found)
    assert summary.word == word
    assert summary.headline.startswith(headline)
    alarm = found.found.verdict in (Verdict.STALLED, Verdict.SLOWING, Verdict.BLOCKED)
    assert bool(summary.if_nothing) is alarm, "what happens if nobody acts"
    assert not alarm or "COMMIT_COMPLETE" not in summary.clears, "no words of the protocol"
    assert max(map(len, (summary.headline, summary.clears, summary.if_nothing))) <= 130, "a few lines on a phone"


def test_a_window_whose_records_were_all_rejected_is_a_warning_though_commits_get_through() -> None:
    def warned(counts: Counts) -> str:
        ended = ObservedCycle(commit_id="c", began=0.0, slices=1, done=1, ended=1.0, counts=counts)
        return summary_of(row(Verdict.HEALTHY, "", State(landing=True), ended)).warning

    assert warned(Counts(rejected=4, gaps=1)) == "all 4 records of the newest window were rejected"
    assert warned(Counts(rejected=4, landed=1)) == ""
    assert warned(Counts(landed=1)) == ""
