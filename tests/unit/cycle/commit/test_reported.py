# SPDX-License-Identifier: Apache-2.0
"""A report that says of a span that it holds no row, and what the source has there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.model import Counts, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.commit.reported import _counted_as, hidden_record, report_problem
from airflow_provider_lakecommit.exceptions import SourceUnavailableError
from tests.fakes.kafka import FakeSource
from tests.fakes.session import FakeLanding
from tests.support.declared import landing_of
from tests.support.story import P0, plan, report_of

ANEW = SourcePartition("orders", 0, "made anew")


def test_a_topic_made_anew_contradicts_no_report_on_the_old_one(landing: FakeLanding) -> None:
    (work,) = plan([[(P0, 0, 10)]]).slices
    spans = tuple(SpanReport(span=s, counts=Counts(filtered=len(s))) for s in work.spans)
    report = replace(report_of(work, attempt=UUID(int=9), files={}), spans=spans)
    same = FakeSource({P0: 20}, values=lambda span: span.range.start + 3)
    assert str(hidden_record(same, landing.session.landing, report)).endswith("there is one at offset 3")
    anew = FakeSource({ANEW: 20}, values=lambda span: span.range.start + 3)
    assert hidden_record(anew, landing.session.landing, report) is None


def test_a_partition_that_is_missing_is_not_requested(landing: FakeLanding) -> None:
    """It would never answer, and what was reported of it could not be published any more."""
    (work,) = plan([[(P0, 0, 10)]]).slices
    spans = tuple(SpanReport(span=s, counts=Counts(gaps=len(s))) for s in work.spans)
    report = replace(report_of(work, attempt=UUID(int=9), files={}), spans=spans)

    def away(_: Span) -> int | None:
        raise SourceUnavailableError("LC9999", "no answer")

    for source in (FakeSource({}, missing=("orders",), values=away), FakeSource({ANEW: 5}, values=away)):
        assert hidden_record(source, landing.session.landing, report) is None
    with pytest.raises(SourceUnavailableError):
        hidden_record(FakeSource({P0: 20}, values=away), landing.session.landing, report)


@pytest.mark.parametrize(
    ("upserts", "counts", "refused"),
    [
        (False, Counts(superseded=10), True),
        (False, Counts(deleted=10), True),
        (False, Counts(filtered=10), False),
        (True, Counts(superseded=10), True),
        (True, Counts(deleted=10), True),
        (True, Counts(filtered=10), False),
    ],
)
def test_records_without_a_row_are_not_passed_off_as_superseded_or_deleted(
    landing: FakeLanding, upserts: bool, counts: Counts, refused: bool
) -> None:
    """A forged report would cover offsets whose rows are in no table."""
    declared = landing.session.landing
    declared = (
        declared.changed(upsert={"key": ["id"]}, columns={"key": {"columns": ["id"], "format": "json"}})
        if upserts
        else declared
    )
    (work,) = plan([[(P0, 0, 10)]]).slices
    report = replace(
        report_of(work, attempt=UUID(int=9), files={}), spans=(SpanReport(span=work.spans[0], counts=counts),)
    )
    landing.open("a")
    table = landing.session.tables.load(declared.table)
    assert (report_problem(declared, table, declared.table, report, ()) is not None) is refused


ROUTED = {"route": {"field": "type", "tables": {"paid": "shop.paid", "order": "shop.orders"}}}
MANY = {"format": {"name": "csv", "csv": {"columns": ["id"], "rows": "many"}}}
EXPLODE = "select explode(items) from record"
RECORD = {"record_schema": [{"name": "items", "type": "list<string>"}]}
SQL = {"transform": {"sql": EXPLODE, **RECORD}}
SQL_OF_EACH = {"transform": {"sql": {"shop.orders": EXPLODE, "shop.paid": EXPLODE}, **RECORD}}


@pytest.mark.parametrize(
    ("changes", "table", "expected"),
    [
        ({}, "shop.orders", "landed"),
        ({}, "shop.dead", "rejected"),
        (MANY, "shop.orders", "landed"),
        (MANY, "shop.dead", "rejected"),
        (SQL, "shop.orders", "landed"),
        (ROUTED, "shop.paid", "landed"),
        # A record may have several rows of one table, and none of another: the sums may be equal by chance.
        (ROUTED | SQL_OF_EACH, "shop.paid", ""),
        (ROUTED | SQL_OF_EACH, "shop.dead", "rejected"),
    ],
)
def test_the_count_of_a_tables_rows(changes: dict[str, Any], table: str, expected: str) -> None:
    declared = landing_of(
        **{"name": "orders", "topics": "orders", "table": "shop.orders", "dead_letter_table": "shop.dead", **changes}
    )
    assert _counted_as(declared, table) == expected
