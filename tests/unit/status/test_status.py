# SPDX-License-Identifier: Apache-2.0
"""Where a landing stands, asked at every point of its life."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from airflow_provider_lakecommit.cli.status import _text
from airflow_provider_lakecommit.core.planning.headroom import Retention
from airflow_provider_lakecommit.exceptions import CatalogError, ControlTopicError
from airflow_provider_lakecommit.status.status import Status, read_status, to_dict
from tests.fakes.kafka import NOON
from tests.fakes.session import DATA, DEAD, P0, P1, FakeLanding

AWAY = ControlTopicError("LC9999", "the control topic is away")


def status(landing: FakeLanding) -> Status:
    return read_status(landing.session)


def lags(found: Status) -> dict[str, int]:
    return {str(p.partition): p.lag for p in found.partitions}


def test_before_the_first_run_everything_that_the_source_holds_is_lag(landing: FakeLanding) -> None:
    landing.source.starts = {P0: 5}
    landing.control.away = AWAY
    found = status(landing)
    (table,) = found.tables
    assert (table.condition, table.reason) == ("missing", "the table does not exist yet")
    assert lags(found) == {"orders[0]": 15, "orders[1]": 10}
    assert found.lag == 25
    assert [p.landed for p in found.partitions] == [None, None]
    assert [p.kept for p in found.partitions] == [None, None]
    assert (found.cycles, found.blocked, found.valid_through) == ((), (), None)
    # It was only checked.
    assert landing.session.tables.find(DATA) is None


def test_once_something_has_landed_a_control_topic_that_is_away_is_an_error(landing: FakeLanding) -> None:
    landing.open()
    landing.control.away = AWAY
    with pytest.raises(ControlTopicError, match="LC9999"):
        status(landing)


def test_a_catalog_that_is_away_is_an_error(landing: FakeLanding) -> None:
    landing.catalog.away = True
    with pytest.raises(CatalogError):
        status(landing)


def test_a_cycle_that_is_open_is_printed_with_what_it_holds(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: s.spans[0].partition == P1)
    (shown,) = to_dict(status(landing))["cycles"]
    assert shown["commit_id"] == str(opened.ticket.commit_id)
    assert (shown["run"], shown["live"], shown["unfinished"]) == ("a", True, 2)
    landing.clock.passes(timedelta(hours=2))
    found = status(landing)
    (shown,) = to_dict(found)["cycles"]
    assert not shown["live"]
    assert any("the next run publishes its reported slices" in line for line in _text(found))


def test_what_is_reported_waits_in_its_table_and_reports_behind_what(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: str(s) != "orders[0][0, 10)")
    found = status(landing)
    (table,) = found.tables
    assert (table.pending_slices, table.pending_files, table.pending_bytes) == (2, 2, 200)
    assert len(table.waiting) == 1
    assert "orders[0]" in table.waiting[0]
    # Only the ledger is landed; what is connected to it is as good as landed.
    assert table.ends == {P0: 0, P1: 0}
    assert lags(found) == {"orders[0]": 20, "orders[1]": 10}


def test_slices_without_files_are_nothing_to_publish(landing: FakeLanding) -> None:
    landing.report(landing.open(), files=False)
    (table,) = status(landing).tables
    assert (table.pending_slices, table.pending_files, table.pending_bytes) == (0, 0, 0)


def test_a_landing_that_has_caught_up_reports_through_when(landing: FakeLanding) -> None:
    landing.cycle()
    found = status(landing)
    (table,) = found.tables
    assert table.condition == "present"
    assert table.ends == {P0: 20, P1: 10}
    assert (found.lag, found.valid_through, found.cycles) == (0, NOON, ())
    assert [p.headroom for p in found.partitions] == [None, None]
    landing.source.starts = {P0: 15}
    assert [p.kept for p in status(landing).partitions] == [5, 10]


def test_what_an_open_transaction_holds_up_is_no_lag(landing: FakeLanding) -> None:
    landing.cycle()
    landing.source.held_up = {P1: 4}
    found = status(landing)
    assert [p.open_transactions for p in found.partitions] == [0, 4]
    assert found.lag == 0


def test_while_a_table_is_missing_nothing_is_valid_in_all_of_them(landing: FakeLanding) -> None:
    landing.cycle()
    landing.session = landing.connect(dead_letter_table=DEAD)
    found = status(landing)
    assert [(t.table, t.condition) for t in found.tables] == [(DATA, "present"), (DEAD, "missing")]
    assert found.valid_through is None


def test_a_table_with_another_landing_s_ledger_is_absent_for_this_one(landing: FakeLanding) -> None:
    landing.cycle()
    landing.session = landing.connect(name="others")
    (table,) = status(landing).tables
    assert (table.condition, table.reason) == ("absent", "it has nothing of this landing yet")
    assert table.head_id is not None
    assert (table.snapshot_id, table.ends) == (None, {})


def test_the_slowest_table_reports_the_lag(landing: FakeLanding) -> None:
    landing.cycle()
    landing.session = landing.connect(dead_letter_table=DEAD)
    landing.source.ends = {P0: 25, P1: 10}
    opened = landing.open("b")
    landing.report(opened, files=True)
    landing.close("b", opened)
    assert status(landing).lag == 0
    landing.source.ends = {P0: 31, P1: 10}
    assert lags(status(landing)) == {"orders[0]": 6, "orders[1]": 0}


def test_a_blocked_range_is_named(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: str(s) == "orders[0][0, 10)", blocked="5 rejected records, 0 allowed")
    assert status(landing).blocked == ("orders[0] [0, 10): 5 rejected records, 0 allowed",)


def test_a_headroom_that_is_short_is_a_warning_by_how_often_the_landing_runs(landing: FakeLanding) -> None:
    landing.source.kept = {"orders": Retention(time=timedelta(days=7), bytes=None)}
    landing.source.first_since = lambda _, t: (0, NOON - timedelta(days=6)) if t <= NOON - timedelta(days=6) else None
    landing.open()
    found = status(landing)
    assert found.shortest is not None
    assert (found.shortest.partition, found.shortest.left) == (P0, timedelta(days=1))
    assert found.warnings == ()
    warned = read_status(landing.session, every=timedelta(days=1)).warnings
    assert [w.split(": ")[0] for w in warned] == ["orders[0]", "orders[1]"]


def test_all_of_it_is_json_and_an_unknown_headroom_reports_that_it_is(landing: FakeLanding) -> None:
    landing.report(landing.open(), lambda s: s.spans[0].partition == P1)
    answer = json.loads(json.dumps(to_dict(status(landing))))
    assert set(answer) == {
        "landing",
        "at",
        "lag",
        "read_lag",
        "commit_lag",
        "valid_through",
        "tables",
        "partitions",
        "cycles",
        "blocked",
        "missing_topics",
        "warnings",
        "quarantined",
        "suspended",
        "lanes",
        "stopped",
        "diverged",
        "signed",
        "stalled",
        "redundant",
    }
    assert answer["tables"][0]["pending"] == {"slices": 1, "files": 1, "bytes": 100}
    assert answer["tables"][0]["ends"] == {"orders[0]": 0, "orders[1]": 0}
    first, second = answer["partitions"]
    assert (first["reported"], second["reported"]) == (first["landed"], second["stable"])
    assert (answer["read_lag"], answer["commit_lag"]) == (first["lag"], second["lag"])
    assert (first["headroom"]["known"], first["headroom"]["expires_at"]) == (False, None)
    assert second["headroom"] is None


def test_what_waits_what_is_open_and_how_far_all_is(landing: FakeLanding) -> None:
    closed = landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 10}
    landing.report(landing.open("b"), lambda s: s.spans[0].range.start == 30)
    before = landing.kinds()
    status = read_status(landing.session)
    assert status.valid_through == closed.valid_through
    assert (status.tables[0].pending_slices, status.tables[0].pending_bytes, len(status.tables[0].waiting)) == (
        1,
        100,
        1,
    )
    assert [(p.landed, p.lag, p.kept) for p in status.partitions] == [(20, 20, 20), (10, 0, 10)]
    (cycle,) = to_dict(status)["cycles"]
    assert (cycle["run"], cycle["live"], cycle["unfinished"]) == ("b", True, 1)
    assert landing.kinds() == before


def test_unread_offsets_that_may_expire_are_warned_of(landing: FakeLanding) -> None:
    landing.open()
    landing.source.kept = {"orders": Retention(time=timedelta(minutes=30), bytes=None)}
    # All records are older than any time that is requested.
    status = read_status(landing.session)
    assert len(status.warnings) == 2
    assert "land more often, or raise retention.ms of orders" in status.warnings[0]


def test_the_table_that_is_furthest_behind_reports_what_has_landed(landing: FakeLanding) -> None:
    landing.cycle("a")
    with_dead, data_only = landing.connect(dead_letter_table=DEAD), landing.session
    landing.source.ends = {P0: 25, P1: 10}
    landing.session = with_dead
    landing.open("b")
    landing.session = data_only
    landing.clock.passes(timedelta(hours=2))
    landing.cycle("c")
    assert status(landing).lag == 0
    landing.session = with_dead
    found = status(landing)
    assert [t.ends[P0] for t in found.tables] == [25, 20]
    assert [(p.landed, p.lag) for p in found.partitions] == [(20, 5), (10, 0)]


def test_a_topic_that_is_missing_is_named_and_is_no_error(landing: FakeLanding) -> None:
    landing.source.ends, landing.source.missing = {}, ("orders",)
    found = status(landing)
    assert (found.missing_topics, found.partitions, found.lag) == (("orders",), (), 0)
