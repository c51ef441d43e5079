# SPDX-License-Identifier: Apache-2.0
"""What users are reported of an upserting landing before it costs or orders wrongly: by `doctor` and by the plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.status.doctor import upsert_costs as checks
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, Level
from tests.faults.test_upserts import JSON, Model
from tests.support.world import World

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


def found(world: World) -> list[CheckResult]:
    with world.session() as session:
        return [*checks.upserts(session, session.tables.find(world.landing.table))]


def record(key: int, version: int) -> tuple[str, str]:
    return json.dumps({"id": key}), json.dumps({"name": f"v{version}", "version": version})


def test_keys_in_several_partitions_need_a_column(make_world: Make, produce: Produce) -> None:
    world = make_world(2, **JSON)
    produce(world.landing.topics, [record(n, 1) for n in range(10)], 0)
    (order,) = found(world)
    assert order.level is Level.OK
    produce(world.landing.topics, [record(n, 2) for n in range(7, 12)], 1)
    (order,) = found(world)
    assert order.level is Level.WARN
    assert re.findall(r"\d+", order.observed)[:2] == ["3", "12"]
    columns = [*JSON["create"]["schema"], {"name": "version", "type": "long"}]
    world.landing = world.landing.changed(
        create={"schema": columns}, upsert={"order_by": ["version", "offset"], "deletes": "ignore"}
    )
    (order,) = found(world)
    assert order.level is Level.OK


def test_records_without_keys_may_be_anywhere(make_world: Make, produce: Produce) -> None:
    world = make_world(2, **{**JSON, "key": {}, "upsert_deletes": "ignore"})
    for partition in (0, 1):
        produce(world.landing.topics, [(None, json.dumps({"id": n, "name": "a"})) for n in range(5)], partition)
    (order,) = found(world)
    assert order.level is Level.WARN


def test_what_a_publication_looks_up(make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch) -> None:
    world, model = make_world(**{**JSON, "create": {"schema": JSON["create"]["schema"]}}), Model(20)
    produce(world.landing.topics, model.records(80))
    world.settle()
    rows = len(world.rows())
    produce(world.landing.topics, model.records(40))
    with world.session() as session:
        (line,) = (line for line in preview(session).explain if "one row per id" in line)
    assert re.findall(r"\d+", line.partition("one row per id")[2])[0] == "0", (
        "the first publication found an empty table"
    )
    world.settle()
    with world.session() as session:
        (line,) = (line for line in preview(session).explain if "one row per id" in line)
    scanned, files, superseded, deleted = map(int, re.findall(r"\d+", line.partition("one row per id")[2])[:4])
    assert scanned >= rows
    assert files >= 2
    assert superseded + deleted > 0
    cost = found(world)[-1]
    assert cost.level is Level.OK
    monkeypatch.setattr(checks, "DEAR", 0.0)
    assert found(world)[-1].level is Level.WARN


def test_a_table_in_buckets_of_the_key_is_no_warning(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "DEAR", 0.0)
    world = make_world(1, **{**JSON, "create": {**JSON["create"], "partition_by": ["bucket(8, id)"]}})
    for _ in range(2):
        produce(world.landing.topics, [record(n, 1) for n in range(100)])
        world.settle()
    cost = found(world)[-1]
    assert cost.level is Level.OK
    assert (shown := re.search(r"(\d+)%", cost.observed)) is not None
    assert int(shown[1]) <= 12


def test_a_table_by_time_ordered_keys_is_no_warning(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "DEAR", 0.0)
    world = make_world(1, **{**JSON, "create": {"schema": JSON["create"]["schema"]}})
    for window in range(4):
        produce(world.landing.topics, [record(window * 100 + n, 1) for n in range(50)])
        world.settle()
    cost = found(world)[-1]
    assert cost.level is Level.OK
    share = re.search(r"(\d+)%", cost.observed)
    assert share is not None
    assert int(share[1]) <= 25
