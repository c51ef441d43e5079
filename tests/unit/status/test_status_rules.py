# SPDX-License-Identifier: Apache-2.0
"""What `status` ends with: the table, row by row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.status.partition_status import PartitionStatus
from airflow_provider_lakecommit.status.status import Status, TableStatus, read_status
from airflow_provider_lakecommit.status.status_rules import StatusVerdict, status_verdict
from tests.fakes.kafka import NOON
from tests.fakes.session import DATA, P0, P1, FakeLanding

P = SourcePartition("orders", 0, "id")
TABLE = TableStatus(
    table="shop.orders", condition="present", reason="", snapshot_id=1, head_id=1, foreign_since=0, ends={P: 10}
)


def at(landed: int | None = 10, stable: int = 10, start: int = 0) -> PartitionStatus:
    lag = max(0, stable - (start if landed is None else landed))
    return PartitionStatus(
        partition=P, start=start, stable=stable, high=stable, landed=landed, lag=lag, open_transactions=0
    )


def found(**changes: Any) -> Status:
    well = Status(
        landing="orders",
        at=NOON + timedelta(minutes=10),
        tables=(TABLE,),
        partitions=(at(),),
        cycles=(),
        blocked=(),
        valid_through=NOON,
    )
    return replace(well, **changes)


@pytest.mark.parametrize(
    ("status", "allowed", "standing", "why"),
    [
        pytest.param(found(), {}, StatusVerdict.WELL, "", id="all is landed"),
        pytest.param(found(partitions=(at(9),)), {}, StatusVerdict.BEHIND, "1 offsets are not", id="one is not"),
        pytest.param(found(partitions=(at(9),)), {"lag": 1}, StatusVerdict.WELL, "", id="as many as are allowed"),
        pytest.param(found(partitions=(at(8),)), {"lag": 1}, StatusVerdict.BEHIND, "--max-lag is 1", id="one more"),
        pytest.param(found(partitions=(at(8),)), {"age": timedelta(hours=1)}, StatusVerdict.WELL, "", id="only age"),
        pytest.param(found(), {"age": timedelta(minutes=9)}, StatusVerdict.BEHIND, "--max-age is 0:09", id="too old"),
        pytest.param(
            found(valid_through=found().at + timedelta(minutes=6)),
            {"age": timedelta(days=9)},
            StatusVerdict.BEHIND,
            "in the future: a clock is wrong",
            id="of a clock that is ahead",
        ),
        pytest.param(
            found(valid_through=None),
            {"age": timedelta(days=9)},
            StatusVerdict.BEHIND,
            "valid-through time is unknown",
            id="unknown age",
        ),
        pytest.param(
            found(partitions=(at(8),)),
            {"lag": 1, "age": timedelta(hours=1)},
            StatusVerdict.BEHIND,
            "--max-lag",
            id="both are asked for",
        ),
        pytest.param(
            found(partitions=(at(9),), stopped="incompatible records: column n is int"),
            {"lag": 99},
            StatusVerdict.BLOCKED,
            "not all is planned: incompatible records: column n is int",
            id="stopped",
        ),
        pytest.param(
            found(partitions=(at(9),), stopped="orders[0] was another log", diverged="orders[1] is another log"),
            {"lag": 99},
            StatusVerdict.BLOCKED,
            "not all is planned: orders[1] is another log",
            id="diverged",
        ),
        pytest.param(
            found(tables=(replace(TABLE, condition="missing"),)),
            {"lag": 99, "age": timedelta(days=9)},
            StatusVerdict.BEHIND,
            "nothing was landed in shop.orders",
            id="it never landed",
        ),
        pytest.param(
            found(missing_topics=("orders",)),
            {"lag": 99},
            StatusVerdict.BEHIND,
            "topic orders is missing",
            id="no topic",
        ),
        pytest.param(
            found(partitions=(replace(at(), open_transactions=5, stale_transaction=True),)),
            {"lag": 99},
            StatusVerdict.BEHIND,
            "a transaction has blocked 5 offsets of orders[0] from 10 on",
            id="a transaction that does not end",
        ),
        pytest.param(
            found(partitions=(replace(at(), open_transactions=5),)), {}, StatusVerdict.WELL, "", id="one that may"
        ),
        pytest.param(
            found(blocked=("orders[0] [3, 9): bad", "x")),
            {"lag": 99},
            StatusVerdict.BLOCKED,
            "bad is blocked, and 1 more",
            id="blocked",
        ),
        pytest.param(
            found(tables=(replace(TABLE, condition="rolled back"),)),
            {},
            StatusVerdict.BLOCKED,
            "shop.orders: its ledger is rolled back",
            id="a ledger needs a person",
        ),
        pytest.param(
            found(partitions=(at(3, start=5),)), {"lag": 99}, StatusVerdict.BLOCKED, "2 offsets of", id="removed"
        ),
        pytest.param(
            found(stalled="commits failed", blocked=("a range",)),
            {},
            StatusVerdict.STALLED,
            "commits failed",
            id="stalled is worst",
        ),
    ],
)
def test_the_first_row_that_applies_decides(
    status: Status, allowed: dict[str, Any], standing: StatusVerdict, why: str
) -> None:
    statuses, reason = status_verdict(status, **allowed)
    assert statuses is standing
    assert why in reason
    assert bool(reason) is (standing is not StatusVerdict.WELL)


def test_commits_that_fail_as_often_as_the_landing_reports_are_a_stall(landing: FakeLanding) -> None:
    landing.session = landing.connect(stalled_cycles=2)
    landing.cycle()
    for run in ("b", "c"):
        assert read_status(landing.session).stalled == ""
        opened = landing.open(run)
        landing.catalog.away = True
        with pytest.raises(CatalogError):
            landing.close(run, opened)
        landing.catalog.away = False
    assert "commits failed in 2 cycles in a row; the last one: CatalogError" in read_status(landing.session).stalled


def test_a_table_that_was_dropped_needs_a_user_unlike_one_that_never_was(landing: FakeLanding) -> None:
    assert status_verdict(read_status(landing.session))[0] is StatusVerdict.BEHIND
    landing.cycle()
    landing.session.tables.catalog.drop_table(DATA)
    shown = read_status(landing.session)
    assert [(t.condition, t.reason[:14]) for t in shown.tables] == [("lost", "it was dropped")]
    assert status_verdict(shown) == (StatusVerdict.BLOCKED, f"{DATA}: its ledger is lost")


def test_a_ledger_that_was_rolled_back_past_is_not_one_that_never_was(landing: FakeLanding) -> None:
    landing.cycle()
    table = landing.session.tables.load(DATA)
    empty = table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).to_arrow()
    landing.session.tables.catalog.drop_table(DATA)
    anew = landing.session.tables.catalog.create_table(DATA, table.schema(), properties=table.properties)
    anew.append(empty)
    before = anew.metadata.snapshots[-1].snapshot_id
    landing.session.tables.catalog.load_table(DATA)
    ledger_init(landing.session, "earliest")
    landing.session.tables.load(DATA).manage_snapshots().set_current_snapshot(before).commit()
    (shown,) = read_status(landing.session).tables
    assert (shown.condition, "is not on the branch any more" in shown.reason) == ("lost", True)


def test_what_is_reported_and_the_source_has_no_more_is_not_lost(landing: FakeLanding) -> None:
    landing.cycle()
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("pending"))
    landing.source.starts = {P0: 40}
    verdict, why = status_verdict(read_status(landing.session))
    assert (verdict, why) == (StatusVerdict.BEHIND, "20 offsets are not landed")
    landing.source.ends, landing.source.starts = {P0: 60, P1: 10}, {P0: 50}
    verdict, why = status_verdict(read_status(landing.session))
    assert verdict is StatusVerdict.BLOCKED
    assert why.startswith("10 offsets of orders[0] were removed from the source before they were landed")
