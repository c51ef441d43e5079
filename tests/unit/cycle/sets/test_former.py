# SPDX-License-Identifier: Apache-2.0
"""Which landings a set no longer has, by what the control log still has of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened, Entry, SliceReported, TablePublished
from airflow_provider_lakecommit.core.model import LIVE, Counts, Cycle, Plan, SliceReport, Span, SpanReport, TableReport
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.sets.former import (
    FormerLanding,
    are_missing,
    former_landing,
    reported_in,
    table_of_name,
    tables_of,
    topics_of_plan,
    was_complete,
)
from airflow_provider_lakecommit.landing import LandingSet
from tests.support.declared import nested_set

NAME = "shop.lake.orders"
AT = datetime(2026, 11, 24, tzinfo=UTC)
OWN = uuid4()
P = SourcePartition("shop.orders", 0, "id")


def shop(**fields: object) -> LandingSet:
    return LandingSet(name="shop", topics_pattern=r"shop\..*", table="lake.{topic}", **nested_set(**fields))


def opened(*topics: str, commit_id: UUID = OWN) -> CycleOpened:
    plan = Plan(
        landing=NAME,
        lane=LIVE,
        spec_version="spec",
        window_id=uuid4(),
        slices=(),
        targets=(),
        ends={SourcePartition(t, 0, "id"): 5 for t in topics},
        requested_at=AT,
    )
    cycle = Cycle(commit_id=commit_id, dag="d", run="r", number=0, slot=0)
    return CycleOpened(offset=1, at=AT, commit_id=commit_id, cycle=cycle, plan=plan)


def reported(start: int, end: int, *tables: str, rows: int = 1) -> SliceReported:
    report = SliceReport(
        slice_id=uuid4(),
        attempt=uuid4(),
        window_id=uuid4(),
        spec_version="spec",
        spans=(SpanReport(span=Span(P, OffsetRange(start, end)), counts=Counts(landed=end - start)),),
        tables=tuple(
            TableReport(table=t, uuid=OWN, epoch=OWN, schema_id=0, spec_id=0, events=1, files=1, rows=rows)
            for t in tables
        ),
    )
    return SliceReported(offset=2, at=AT, commit_id=OWN, report=report)


WHOLE = CycleClosed(offset=2, at=AT, commit_id=OWN, valid_through=AT)


def test_one_whose_topics_are_all_missing_is_named_with_its_topics() -> None:
    assert are_missing(shop(), ["shop.orders"], ["shop.other"])
    landing = former_landing(shop(), NAME, "lake.orders", ["shop.orders"], ["lake.orders"])
    text = str(FormerLanding(landing=landing, topics_missing=True))
    assert text.startswith("shop.lake.orders: its topics are missing")
    assert "(shop.orders); lake.orders stays as it is" in text


@pytest.mark.parametrize("closed", [[], [CycleClosed(offset=2, at=AT, commit_id=OWN, valid_through=None)]])
def test_what_was_not_landed_before_its_topic_went_is_reported(closed: list[Entry]) -> None:
    assert was_complete([opened("shop.orders"), WHOLE])
    assert not was_complete([opened("shop.orders"), *closed])
    landing = former_landing(shop(), NAME, "lake.orders", ["shop.orders"], ["lake.orders"])
    assert "not all of their records that the newest" in str(
        FormerLanding(landing=landing, topics_missing=True, whole=False)
    )


@pytest.mark.parametrize(
    ("topics", "known", "exclude"),
    [
        (["shop.orders", "shop.more"], ["shop.more"], ()),
        (["shop.orders"], ["shop.other"], r".*orders"),
        ([], ["shop.other"], ()),
        # A set without a pattern requests no list of topics.
        (["shop.orders"], [], ()),
    ],
)
def test_one_that_has_a_topic_left_or_that_is_excluded_is_not_missing(
    topics: Sequence[str], known: Collection[str], exclude: str
) -> None:
    assert not are_missing(shop(exclude=exclude), topics, known)


def test_of_a_plan_that_could_request_no_broker_the_one_before_reports_the_topics() -> None:
    assert topics_of_plan([opened("shop.orders"), opened(commit_id=uuid4())]) == ("shop.orders",)
    assert topics_of_plan([]) == ()


def test_the_table_of_a_landing_is_reported_by_its_records_or_its_name() -> None:
    assert table_of_name(shop(), NAME, []) == ("lake.orders", True)
    assert table_of_name(shop(), NAME, [reported(0, 5, "lake.orders", "lake.orders_dead")]) == ("lake.orders", True)
    # Names of sets may have dots: this one is of another set.
    other = [reported(0, 5, "lake.orders")]
    assert table_of_name(shop(), "shop.eu.lake.orders", other) == ("lake.orders", False)
    assert table_of_name(shop(), "store.lake.orders", other) == ("lake.orders", False)
    assert table_of_name(shop(), "orders", other) is None


def test_what_no_table_has_is_reported_by_reports_and_commits() -> None:
    done = TablePublished(
        offset=3, at=AT, commit_id=OWN, table="lake.orders", snapshot_id=1, token=OWN, coverage=Coverage.of([])
    )
    entries = [reported(0, 5, "lake.orders"), reported(5, 9, "lake.orders", rows=0), done]
    assert str(reported_in(entries, "lake.orders")) == "shop.orders[0] [0, 5)"
    done = replace(done, coverage=Coverage.of([(P, OffsetRange(0, 5))]))
    assert not reported_in([*entries, done], "lake.orders")


@pytest.mark.parametrize(
    "tables",
    [
        {"lake.orders"},
        {"lake.orders", "lake.orders_dead"},
        {"lake.orders", "lake.other_dead"},
        {"lake.orders", "lake.eu", "lake.us", "lake.dead"},
    ],
)
def test_a_former_landing_has_the_tables_that_its_slices_were_written_for(tables: set[str]) -> None:
    declared = shop(dead_letter_table="{table}_dead")
    landing = former_landing(declared, NAME, "lake.orders", ["shop.orders"], tables)
    assert (landing.tables[0], {*landing.tables}) == ("lake.orders", tables)
    assert tables_of([reported(0, 5, *tables)]) == tables


def test_of_another_set_the_command_that_publishes_is_named() -> None:
    landing = former_landing(shop(), NAME, "lake.orders", ["shop.orders"], ["lake.orders"])
    pending = Coverage.of([(P, OffsetRange(0, 5))])
    own = FormerLanding(landing=landing, pending=pending)
    assert (own.publishes, "the next run publishes it" in str(own)) == (True, True)
    other = replace(own, own=False)
    assert (other.publishes, f"publish-now SPEC --landing {NAME}" in str(other)) == (False, True)
    dropped = replace(own, dropped=True)
    assert (dropped.publishes, "lake.orders, which no longer exists" in str(dropped)) == (False, True)
    lane = replace(own, pending=Coverage(), lanes=("past",))
    assert (lane.is_open, f"backfill SPEC --landing {NAME} --close past" in str(lane)) == (True, True)
