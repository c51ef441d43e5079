# SPDX-License-Identifier: Apache-2.0
"""What the steps of a cycle hand on: as small as XCom wants it, and read back as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.accounting import ODD_TIME
from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.model import Counts, Plan, Slice, Span
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.results import (
    SHOWN,
    Closed,
    CycleTicket,
    GroupResult,
    GroupTicket,
    Opened,
    PublishedSnapshot,
)

P0, P1 = (SourcePartition("orders", n, "topic-id") for n in range(2))
WINDOW, CYCLE = UUID(int=9), UUID(int=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TICKET = CycleTicket(landing="orders", lane="live", commit_id=CYCLE, slot=3, partition=2, read_from=17)


def a_slice(start: int, end: int, group: int = 0, partition: SourcePartition = P0) -> Slice:
    spans = (Span(partition, OffsetRange(start, end)),)
    return Slice(slice_id=slice_id(WINDOW, spans, ["shop.orders"]), group=group, spans=spans, tables=("shop.orders",))


def through_json(value: dict[str, Any]) -> Any:
    return json.loads(json.dumps(value))


def test_tickets_are_the_same_after_xcom() -> None:
    assert CycleTicket.from_dict(through_json(TICKET.to_dict())) == TICKET
    group = GroupTicket(cycle=TICKET, group=4, slices=2, records=30)
    assert GroupTicket.from_dict(through_json(group.to_dict())) == group


def test_a_ticket_has_the_keys_that_tasks_of_other_releases_read() -> None:
    assert TICKET.to_dict() == {
        "landing": "orders",
        "lane": "live",
        "commit_id": str(CYCLE),
        "slot": 3,
        "partition": 2,
        "read_from": 17,
    }
    assert set(GroupTicket(cycle=TICKET, group=0, slices=1, records=1).to_dict()) == {
        "cycle",
        "group",
        "slices",
        "records",
    }


def test_groups_with_work_get_one_ticket_each_in_the_order_of_their_numbers() -> None:
    slices = (a_slice(0, 5, group=4), a_slice(0, 3, group=1, partition=P1), a_slice(5, 7, group=4))
    plan = Plan(
        landing="orders",
        lane="live",
        spec_version="s",
        window_id=WINDOW,
        # A group of the plan that lost all of its ranges to another claim gets none.
        slices=(*slices, a_slice(7, 9, group=2)),
        targets=(),
        ends={P0: 9},
        requested_at=NOON,
    )
    opened = Opened(ticket=TICKET, plan=plan, slices=slices, explain=())
    assert [(g.group, g.slices, g.records) for g in opened.groups] == [(1, 1, 3), (4, 2, 7)]
    assert all(g.cycle == TICKET for g in opened.groups)


def test_a_group_that_is_complete_reports_only_what_is_safe() -> None:
    assert str(GroupResult(done=2, saved_records=30)) == (
        "2 slices (30 records) are reported and will not be read again"
    )


@pytest.mark.parametrize(
    ("left", "more"), [(1, ""), (SHOWN, ""), (SHOWN + 1, " and 1 more slices"), (SHOWN + 9, " and 9 more slices")]
)
def test_a_line_counts_all_offsets_that_are_read_again_and_names_a_few_slices(left: int, more: str) -> None:
    slices = tuple(a_slice(10 * n, 10 * n + 10) for n in range(left))
    text = str(GroupResult(done=0, saved_records=0, left=slices, blocked=("budget",)))
    listed = "; ".join(str(s) for s in slices[:SHOWN])
    assert text.endswith(f"; {10 * left} offsets will be read again: {listed}{more}; blocked: budget")


def test_what_is_left_of_a_group_goes_to_xcom_as_text_and_in_full() -> None:
    result = GroupResult(done=1, saved_records=5, left=tuple(a_slice(n, n + 1) for n in range(SHOWN + 1)))
    assert through_json(result.to_dict()) == {
        "done": 1,
        "saved_records": 5,
        "left": [f"orders[0][{n}, {n + 1})" for n in range(SHOWN + 1)],
        "blocked": [],
    }


def snapshot(table: str, rows: int) -> PublishedSnapshot:
    return PublishedSnapshot(
        table=table,
        snapshot_id=2**62,
        commit_id=CYCLE,
        coverage=Coverage.of([(P1, OffsetRange(0, 2)), (P0, OffsetRange(0, 4)), (P0, OffsetRange(6, 9))]),
        rows=rows,
        files=1,
        counts=Counts(landed=3, rejected=2, filtered=2, gaps=1, skipped=1),
    )


def test_a_snapshot_reports_the_next_dag_its_ranges_and_every_record_s_disposition() -> None:
    snapshot_json = through_json(snapshot("shop.orders", 3).to_dict())
    assert snapshot_json["snapshot_id"] == 2**62
    assert snapshot_json["offsets"] == {"orders[0]": [[0, 4], [6, 9]], "orders[1]": [[0, 2]]}
    assert snapshot_json["counts"] == {"landed": 3, "rejected": 2, "filtered": 2, "gaps": 1, "skipped": 1}


def test_rows_of_a_cycle_are_those_of_its_data_table() -> None:
    published = (snapshot("shop.orders", 3), snapshot("shop.dead", 40), snapshot("shop.orders", 4))
    closed = Closed(commit_id=CYCLE, table="shop.orders", published=published)
    assert closed.rows == 7
    assert through_json(closed.to_dict())["rows"] == 7
    assert Closed(commit_id=CYCLE).rows == 0


def test_a_cycle_that_ended_is_reported_in_json_values() -> None:
    closed = Closed(commit_id=CYCLE, left=2, valid_through=NOON, missing=("a",), ignored_fields={"x": 3})
    assert through_json(closed.to_dict()) == {
        "commit_id": str(CYCLE),
        "published": [],
        "rows": 0,
        "waiting": [],
        "missing": ["a"],
        "blocked": [],
        "voided": [],
        "left": 2,
        "valid_through": "2026-01-01T12:00:00.000000+00:00",
        "reason": None,
        "finished": False,
        "note": "",
        "ignored_fields": {"x": 3},
        "rejects": {},
        "reject_reason": "",
        "causes": [],
        "redundant": 0,
        "stopped": "",
        "failed": {},
    }
    assert Closed(commit_id=CYCLE).to_dict()["valid_through"] is None


def test_what_is_in_no_row_is_a_warning_with_counts() -> None:
    closed = Closed(
        commit_id=CYCLE,
        ignored_fields={f"f{n}": n for n in range(1, 30)},
        rejects={"wrong_value cost": 3, "not_json": 4},
    )
    fields, rejects = closed.warnings
    assert fields.startswith(
        "fields without a column of exactly that name were left out, in this many records: f29 29, f28 28"
    )
    assert fields.endswith("f10 10 and 9 more")
    assert rejects == "records were rejected: not_json 4, wrong_value cost 3"
    assert Closed(commit_id=CYCLE).warnings == ()


def test_records_that_were_all_rejected_are_reported_as_that_with_the_reason() -> None:
    dead = PublishedSnapshot(
        table="shop.dead",
        snapshot_id=1,
        commit_id=CYCLE,
        coverage=Coverage(),
        rows=60,
        files=1,
        counts=Counts(rejected=60),
    )
    why = "required column idx is missing or null; the record has 'id', which the table lacks"
    closed = Closed(commit_id=CYCLE, published=(dead,), rejects={"missing_required idx": 60}, reject_reason=why)
    message = f"no record gave a row, all were rejected: missing_required idx 60; most of them: {why}"
    assert closed.warnings == (message,)
    some = replace(dead, counts=Counts(landed=1, rejected=60))
    assert replace(closed, published=(some,)).warnings == (message.replace("no record gave a row, all", "records"),)
    # Of another cycle of the same run it is not known here.
    assert replace(closed, published=()).warnings == replace(closed, published=(some,)).warnings


@pytest.mark.parametrize(
    ("rejected", "share"), [(99, ""), (100, ", 1.0% of the window"), (420, ", 4.2% of the window")]
)
def test_from_one_percent_on_the_share_of_rejected_records_is_reported(rejected: int, share: str) -> None:
    counts = Counts(landed=10_000 - rejected, rejected=rejected, gaps=5_000)
    (warning,) = Closed(commit_id=CYCLE, counts=counts, rejects={"not_json": rejected}).warnings
    assert warning.startswith(f"records were rejected{share}")
    assert ("of the window" in warning) is bool(share)


def test_a_window_of_nothing_but_tombstones_has_a_warning() -> None:
    (message,) = Closed(commit_id=CYCLE, counts=Counts(filtered=50, gaps=7)).warnings
    assert message == "no record gave a row, all are tombstones (no value) or were left out by SQL: records 50"
    assert Closed(commit_id=CYCLE, counts=Counts(filtered=50, landed=1)).warnings == ()
    assert Closed(commit_id=CYCLE, counts=Counts(gaps=50)).warnings == ()


def test_times_that_are_hardly_meant_so_are_a_warning_of_their_own() -> None:
    closed = Closed(commit_id=CYCLE, ignored_fields={"x": 3, f"{ODD_TIME}at (epoch_millis)": 200})
    assert closed.warnings == (
        "fields without a column of exactly that name were left out, in this many records: x 3",
        "times in January/February 1970, in a coarser unit than `timestamps` states, in this many records: "
        "at (epoch_millis) 200",
    )
