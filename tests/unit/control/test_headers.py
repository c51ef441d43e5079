# SPDX-License-Identifier: Apache-2.0
"""Record headers: reports, cycles and directives survive; corruption is a wire error."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.headers import (
    HEADER,
    cycle_from_json,
    cycle_to_json,
    directives_from_json,
    directives_to_json,
    find,
    header,
    report_from_json,
    report_to_json,
)
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import (
    Counts,
    Cycle,
    ReadPosition,
    SliceCost,
    SliceReport,
    Span,
    SpanReport,
    TableReport,
)
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import WireError
from tests.support.values import CYCLES, DIRECTIVES, FOREIGN, STEADY, corrupted, reports, value_or_error


@STEADY
@given(reports())
def test_a_report_survives(report: SliceReport) -> None:
    assert report_from_json(json.loads(json.dumps(report_to_json(report)))) == report


WITHOUT_COST = (
    b'{"v":1,"lane":"live","kind":"report","report":{"slice":"00000000-0000-0000-0000-000000000001",'
    b'"attempt":"00000000-0000-0000-0000-000000000002","window":"00000000-0000-0000-0000-000000000003","spec":"5f0e",'
    b'"spans":[["orders","topic-id",{"1":[3,10]}]],"counts":[[5,1,0,1,0]],"tables":[["shop.orders",'
    b'"00000000-0000-0000-0000-000000000004","00000000-0000-0000-0000-000000000005",0,1,1,2,5]],"bytes":321,'
    b'"ignored_fields":{"note":2},"blocked":null,"failed":null}}'
)
"""A header as it was written before reports had a cost."""
REPORT = SliceReport(
    slice_id=UUID(int=1),
    attempt=UUID(int=2),
    window_id=UUID(int=3),
    spec_version="5f0e",
    spans=(
        SpanReport(
            span=Span(SourcePartition("orders", 1, "topic-id"), OffsetRange(3, 10)),
            counts=Counts(landed=5, rejected=1, gaps=1),
        ),
    ),
    tables=(
        TableReport(
            table="shop.orders", uuid=UUID(int=4), epoch=UUID(int=5), schema_id=0, spec_id=1, events=1, files=2, rows=5
        ),
    ),
    bytes=321,
    ignored_fields={"note": 2},
)
COST = SliceCost(read_seconds=1.25, decode_seconds=0.5, write_seconds=2.007, bytes=4096)


def packed(report: SliceReport) -> bytes:
    [(_, value)] = header({"lane": "live", "kind": "report", "report": report_to_json(report)}, "x")
    return value


def test_a_report_of_before_is_read_without_a_cost_and_written_the_same() -> None:
    values = find([(HEADER, WITHOUT_COST)])
    assert values is not None
    assert report_from_json(values["report"]) == REPORT
    assert packed(REPORT) == WITHOUT_COST


def read_back(position: ReadPosition) -> ReadPosition | None:
    (span,) = REPORT.spans
    report = report_to_json(replace(REPORT, spans=(replace(span, position=position),), rules="r"))
    found = report_from_json(report)
    assert found.rules == "r"
    return found.spans[0].position


def test_a_position_of_the_span_survives() -> None:
    assert [read_back(ReadPosition(offset=o, leader_epoch=2)) for o in (4, 10)] == [
        ReadPosition(offset=4, leader_epoch=2),
        ReadPosition(offset=10, leader_epoch=2),
    ]


@pytest.mark.parametrize(("offset", "epoch"), [(3, 2), (11, 2), (10, -1)], ids=["before", "behind", "no epoch"])
def test_a_position_that_is_not_of_its_span_reports_nothing(offset: int, epoch: int) -> None:
    assert read_back(ReadPosition(offset=offset, leader_epoch=epoch)) is None


def test_a_report_with_a_cost_reports_all_else_as_a_reader_of_before_expects_it() -> None:
    """It takes version 1 and picks the keys that it knows."""
    now, before = json.loads(packed(replace(REPORT, cost=COST))), json.loads(WITHOUT_COST)
    assert now["report"]["cost"] == [1250, 500, 2007, 4096]
    known = {**now, "report": {key: now["report"][key] for key in before["report"]}}
    assert known == before
    assert report_from_json(now["report"]) == replace(REPORT, cost=COST)


@STEADY
@given(CYCLES)
def test_a_cycle_survives(cycle: Cycle) -> None:
    assert cycle_from_json(json.loads(json.dumps(cycle_to_json(cycle)))) == cycle


@STEADY
@given(DIRECTIVES)
def test_directives_survive(directives: Directives) -> None:
    assert directives_from_json(json.loads(json.dumps(directives_to_json(directives)))) == directives


def test_no_directives_take_no_room() -> None:
    assert directives_to_json(Directives()) == {}
    assert directives_from_json({}) == Directives()


def test_what_is_put_in_is_found_among_the_headers_of_others() -> None:
    assert find([("trace", b"\xff"), *header({"a": 1}, "x"), ("other", b"")]) == {"v": 1, "a": 1}


@pytest.mark.parametrize("headers", [[], [("trace", b"{}")], [("Lakecommit", b"{}")]])
def test_a_record_without_our_header_has_none(headers: list[tuple[str, bytes]]) -> None:
    assert find(headers) is None


@pytest.mark.parametrize("value", [b"", None, b"{", b"\xff\xfe", b"[]", b"z:AAAA"])
def test_our_header_corrupt_is_a_wire_error(value: bytes) -> None:
    with pytest.raises(WireError, match="LC2343"):
        find([(HEADER, value)])


def test_a_header_over_the_limit_names_the_record_and_the_remedy() -> None:
    ids = [str(UUID(int=hash(("a", n)) % (1 << 128))) for n in range(20_000)]
    with pytest.raises(WireError, match="LC2341"):
        header({"ids": ids}, "the plan")


@STEADY
@given(st.data(), reports())
def test_no_corruption_to_a_report_does_worse_than_a_wire_error(data: st.DataObject, report: SliceReport) -> None:
    values = data.draw(corrupted(report_to_json(report)) | FOREIGN)
    assert isinstance(value_or_error(report_from_json, values), (SliceReport, WireError))


def test_positions_of_unknown_fields_survive_and_a_reader_of_before_passes_over_them() -> None:
    report = replace(REPORT, unknown_at={"a.b": ("orders", 3, 17)})
    now, before = json.loads(packed(report)), json.loads(WITHOUT_COST)
    assert report_from_json(now["report"]) == report
    assert {**now, "report": {key: now["report"][key] for key in before["report"]}} == before


@pytest.mark.parametrize("place", [["orders", 3], ["orders", "3", 1], [1, 3, 1], ["orders", 3, -1], "orders"])
def test_a_corrupt_position_of_an_unknown_field_corrupts_the_report(place: object) -> None:
    report = report_to_json(REPORT) | {"unknown_at": {"a": place}}
    with pytest.raises(WireError):
        report_from_json(report)
