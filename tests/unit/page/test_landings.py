# SPDX-License-Identifier: Apache-2.0
"""The rows of the page: their order, their lags, and which of them a search means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_lakecommit.core.identity import group_id
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.page.cycles import LandingCycles
from airflow_provider_lakecommit.page.detail_answers import detail_of
from airflow_provider_lakecommit.page.landings import LandingRow, PageTopic, key_of, page_topics, ranked, search
from airflow_provider_lakecommit.page.notes import LandingNotes, ObservedReject
from airflow_provider_lakecommit.page.partitions import PagePartition
from airflow_provider_lakecommit.page.remedies import remedies
from airflow_provider_lakecommit.stall.group_state import State
from airflow_provider_lakecommit.stall.verdict import Diagnosis, Verdict
from tests.support.story import P0, coverage

PLACE = PageTopic("kafka_default", "control")
LANDING = State(landing=True)


def row(
    name: str,
    verdict: Verdict = Verdict.HEALTHY,
    since: float | None = None,
    *,
    dags: tuple[str, ...] = ("land",),
    partitions: tuple[PagePartition, ...] = (),
    state: State = LANDING,
) -> LandingRow:
    return LandingRow(
        control_topic=PLACE,
        group=(group := group_id(name) if state.landing else name),
        key=key_of(PLACE, group),
        state=state,
        found=Diagnosis(verdict=verdict, reason="", since=since),
        cycles=LandingCycles(tables=(f"shop.{name}",)),
        dags=dags,
        partitions=partitions,
    )


def test_the_worst_come_first_then_what_is_so_the_longest() -> None:
    rows = [
        row("well"),
        row("late", Verdict.STALLED, 200.0),
        row("dead", Verdict.DEAD, 300.0),
        row("blocked", Verdict.BLOCKED),
        row("later", Verdict.STALLED, 100.0),
        row("a-well"),
        row("unknown", Verdict.UNKNOWN),
    ]
    assert [r.name for r in search(ranked(rows).values())[0]] == [
        "dead",
        "later",
        "late",
        "blocked",
        "unknown",
        "a-well",
        "well",
    ]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, {"orders", "clicks"}),
        ({"text": "SHOP.ORD"}, {"orders"}),
        ({"text": "nothing"}, set()),
        ({"dag": "land_clicks"}, {"clicks"}),
        ({"dag": "land"}, set()),
        ({"verdicts": ["stalled"]}, {"orders"}),
    ],
)
def test_a_search_means_names_tables_dags_and_verdicts(query: dict[str, object], found: set[str]) -> None:
    rows = [row("orders", Verdict.STALLED, dags=("land_orders",)), row("clicks", dags=("land_clicks",))]
    got, counts = search(rows, **query)  # type: ignore[arg-type]
    assert {r.name for r in got} == found
    if "verdicts" in query:
        assert counts == {"stalled": 1, "healthy": 1}


def partition(**ends: int) -> PagePartition:
    return PagePartition(topic="orders", partition=0, **ends)


@pytest.mark.parametrize(
    ("partitions", "read", "commit"),
    [
        ((), None, None),
        ((partition(planned=10),), None, None),
        ((partition(end=100, reported=60, published=40),), 40, 20),
        ((partition(end=100, published=40),), 60, None),
        ((partition(end=100),), 100, None),
        ((partition(end=50, reported=60, published=60),), 0, 0),
    ],
)
def test_read_lag_and_commit_lag_are_two_numbers(
    partitions: tuple[PagePartition, ...], read: int | None, commit: int | None
) -> None:
    landing = row("orders", partitions=partitions)
    assert (landing.read_lag, landing.commit_lag) == (read, commit)


def test_a_key_distinguishes_equal_names_of_two_topics_and_fits_an_address() -> None:
    keys = {key_of(PageTopic(c, t), "g") for c in ("a", "b") for t in ("x", "y")} | {key_of(PLACE, "../../x\x1f")}
    assert len(keys) == 5
    assert all(key.isalnum() for key in keys)


def test_what_helps_fits_the_verdict_and_is_quoted() -> None:
    stalled = row("orders", Verdict.STALLED, dags=("land; rm -rf /",))
    commands = [command for command, _ in remedies(stalled)]
    assert commands[0] == "lakecommit doctor --dag 'land; rm -rf /' --landing orders"
    assert 1 <= len(commands) <= 3
    blocked = State(landing=True, blocked=((coverage([(P0, 0, 5)]), "over budget", 0.0),))
    assert "--retry" in remedies(row("orders", Verdict.BLOCKED, state=blocked))[0][0]
    typed = remedies(row("orders", dags=()))
    assert typed[0][0] == "lakecommit status SPEC.yaml"
    rejects = (ObservedReject(kind="not_json", records=1, since=0.0, at=0.0, ranges=(), reason=""),)
    rejected = replace(row("orders", dags=()), cycles=LandingCycles(notes=LandingNotes(rejects=rejects)))
    found = [command for command, _ in remedies(rejected)]
    assert "lakecommit dead-letters SPEC.yaml --values" in found
    assert not any("dead-letters" in command for command in commands), "nothing was rejected"
    assert remedies(replace(stalled, dags=("one\ntwo",))) == []
    assert remedies(row("connect-orders", Verdict.DEAD, state=State()))[0][0].endswith("--connector orders --dry-run")


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ("", [("kafka_default", "own")]),
        ("kafka_eu", [("kafka_eu", "own")]),
        ("a/x, b/y ,a/x,", [("a", "x"), ("b", "y")]),
        ("a/x/y", [("a", "x/y")]),
    ],
)
def test_which_topics_are_watched(stated: str, found: list[tuple[str, str]]) -> None:
    assert [(t.connection, t.topic) for t in page_topics(stated, "own")] == found


@pytest.mark.parametrize("stated", ["/x", "a/", "a/x,/"])
def test_a_topic_without_a_name_is_refused(stated: str) -> None:
    with pytest.raises(SpecError, match="LC8701"):
        page_topics(stated, "own")


def test_blocked_ranges_are_listed_by_kind_the_largest_first() -> None:
    why = "too many ({0} rejected records): slice orders[0] [{0}, {1})".format
    parts = ((coverage([(P0, 0, 5)]), why(0, 5), 7.0), (coverage([(P0, 10, 40)]), "failed in 3 cycles: memory", 9.0))
    again = (coverage([(P0, 50, 52)]), why(50, 52), 8.0)
    detail = detail_of(row("orders", Verdict.BLOCKED, state=State(landing=True, blocked=(*parts, again))), (), 0.0)
    kinds = [(b.kind, b.offsets, b.parts, b.since.timestamp()) for b in detail.blocked_ranges]
    assert kinds == [("failed in 3 cycles", 30, 1, 9.0), ("too many", 7, 2, 7.0)]
    assert detail.blocked == sum(b.offsets for b in detail.blocked_ranges)
