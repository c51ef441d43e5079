# SPDX-License-Identifier: Apache-2.0
"""The plan as JSON, and that the largest one fits into its header."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.control.headers import header
from airflow_provider_lakecommit.control.plan_json import (
    MAX_SLICES,
    budget_from_json,
    plan_from_json,
    plan_to_json,
    refusal_from_json,
    time_from_json,
    time_to_json,
)
from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.model import Plan, Slice, Span, TableTarget
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.exceptions import WireError
from tests.support.values import FOREIGN, MOMENTS, STEADY, corrupted, plans, value_or_error

TABLES = ("shop.orders", "shop.orders_dead")
WINDOW = UUID(int=3)


@STEADY
@given(plans())
def test_a_plan_survives_with_the_ids_of_its_slices(plan: Plan) -> None:
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


@STEADY
@given(MOMENTS)
def test_times_survive_to_the_microsecond(at: datetime) -> None:
    assert time_from_json(time_to_json(at)) == at


def test_times_are_written_as_utc() -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert time_to_json(at) == "2026-01-01T10:00:00.000000+00:00"


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, None),
        ({"held": "a text of today", "refusal": "PENDING_BYTES"}, RefusalState.PENDING_BYTES),
        ({"held": "moon phase", "refusal": "MOON_PHASE"}, RefusalState.OTHER),
    ],
)
def test_a_refusal_is_read_by_its_name(values: dict[str, str | None], state: RefusalState | None) -> None:
    assert refusal_from_json(values) is state


@pytest.mark.parametrize("values", [{"refusal": 5}, {"refusal": ["STALLED"]}])
def test_a_refusal_that_is_no_text_is_corruption(values: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        refusal_from_json(values)


@pytest.mark.parametrize("state", RefusalState)
def test_a_refused_plan_has_the_state_by_text_and_by_name(state: RefusalState) -> None:
    values = plan_to_json(replace(largest_plan(), slices=(), refused=state))
    assert (values["held"], values["refusal"]) == (state.value, state.name)
    assert type(values["held"]) is str


def test_no_budget_stays_none() -> None:
    assert budget_from_json(None) is None


def largest_plan() -> Plan:
    """As many slices as a window may have, at scattered offsets of 200 partitions, two tables of 300 columns."""
    dice = random.Random(1)
    slices = []
    for _ in range(MAX_SLICES):
        p = SourcePartition("shop.orders.events.v1", dice.randrange(200), "0aBcDeFgHiJkLmNoPqRsTu")
        start = dice.randrange(1 << 40)
        spans = (Span(p, OffsetRange(start, start + dice.randrange(1, 250_000))),)
        slices.append(Slice(slice_id=slice_id(WINDOW, spans, TABLES), group=p.partition, spans=spans, tables=TABLES))
    fields = [{"id": n, "name": f"column_{n}", "type": "decimal(38, 9)", "required": False} for n in range(300)]
    targets = tuple(
        TableTarget(
            table=t,
            uuid=UUID(int=5),
            location=f"s3://warehouse/{t}",
            schema=json.dumps({"type": "struct", "fields": fields}),
            schema_id=0,
            spec="{}",
            spec_id=0,
            properties={"write.parquet.compression-codec": "zstd"},
            format_version=2,
            epoch=UUID(int=6),
        )
        for t in TABLES
    )
    return Plan(
        landing="orders",
        lane="live",
        spec_version="0123456789abcdef",
        window_id=WINDOW,
        slices=tuple(slices),
        targets=targets,
        ends={SourcePartition("shop.orders.events.v1", n, "0aBcDeFgHiJkLmNoPqRsTu"): 1 << 40 for n in range(200)},
        requested_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_a_sort_order_travels_and_a_plan_without_one_is_of_an_unsorted_table() -> None:
    """Plans of the release before have no such key, and get none while there is nothing to say."""
    order = '{"order-id": 1, "fields": []}'
    unsorted = largest_plan()
    first = replace(unsorted.targets[0], sort_order=order)
    written = plan_to_json(replace(unsorted, targets=(first, *unsorted.targets[1:])))

    assert [t.sort_order for t in plan_from_json(written).targets] == [order, ""]
    assert "sort_order" not in written["targets"][1]


def test_a_plan_names_tables_with_handed_out_storage_properties_and_omits_the_others() -> None:
    plan = largest_plan()
    assert "vended" not in plan_to_json(plan)
    assert plan_to_json(replace(plan, vended={TABLES[1]: True}))["vended"] == {"shop.orders_dead": True}


def test_the_largest_plan_takes_less_than_half_of_its_header() -> None:
    plan = largest_plan()
    ((_, packed),) = header({"kind": "open", "plan": plan_to_json(plan)}, "the header")
    assert len(packed) < 128 << 10


@pytest.mark.parametrize("key", ["window", "slices", "targets", "ends", "asked_at", "left", "spec", "reason"])
def test_a_missing_key_is_named(key: str) -> None:
    values = plan_to_json(largest_plan())
    del values[key]
    with pytest.raises(WireError, match="LC2361"):
        plan_from_json(values)


@STEADY
@given(st.data(), plans())
def test_no_corruption_does_worse_than_a_wire_error(data: st.DataObject, plan: Plan) -> None:
    values = data.draw(corrupted(plan_to_json(plan)) | FOREIGN)
    assert isinstance(value_or_error(plan_from_json, values), (Plan, WireError))
