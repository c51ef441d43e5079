# SPDX-License-Identifier: Apache-2.0
"""Record headers: reports, cycles and directives survive; damage is a wire error."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import Cycle, SliceReport
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.wire.headers import (
    HEADER,
    HEADER_LIMIT,
    cycle_from_json,
    cycle_to_json,
    directives_from_json,
    directives_to_json,
    find,
    header,
    report_from_json,
    report_to_json,
)
from tests.support.values import CYCLES, DIRECTIVES, FOREIGN, STEADY, damaged, reports, value_or_error


@STEADY
@given(reports())
def test_a_report_survives(report: SliceReport) -> None:
    assert report_from_json(json.loads(json.dumps(report_to_json(report)))) == report


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
def test_our_header_damaged_is_a_wire_error(value: bytes) -> None:
    with pytest.raises(WireError, match="a control record's header is damaged"):
        find([(HEADER, value)])


def test_a_header_over_the_limit_names_the_record_and_the_remedy() -> None:
    ids = [str(UUID(int=hash(("a", n)) % (1 << 128))) for n in range(20_000)]
    with pytest.raises(WireError, match=rf"^the plan takes \d+ bytes, the limit is {HEADER_LIMIT}: use larger slices"):
        header({"ids": ids}, "the plan")


@STEADY
@given(st.data(), reports())
def test_no_damage_to_a_report_does_worse_than_a_wire_error(data: st.DataObject, report: SliceReport) -> None:
    values = data.draw(damaged(report_to_json(report)) | FOREIGN)
    assert isinstance(value_or_error(report_from_json, values), (SliceReport, WireError))
