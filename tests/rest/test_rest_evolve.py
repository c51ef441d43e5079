# SPDX-License-Identifier: Apache-2.0
"""A table of a real REST catalog server follows its records: what is requested, and servers that do not let it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_lakecommit.iceberg.ledger.summary import record_of
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import EVOLVED
from tests.rest.gateway import Answer, Forward, Gateway, Once, Request, Rule, always
from tests.support.messes import table_of
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.rest

Produce = Callable[..., object]


@pytest.fixture
def world(make_rest_world: Callable[..., World], produce: Produce) -> World:
    """Ids 0 to 9 are landed; 10 to 19 have a field that the table lacks."""
    world = make_rest_world(evolve="add")
    produce(world.landing.topics, records(0, 10))
    world.run()
    produce(world.landing.topics, [(str(i), json.dumps({"id": i, "extra": {"x": i}})) for i in range(10, 20)])
    return world


def changes_schema(request: Request) -> bool:
    return request.is_commit and b'"add-schema"' in request.body


def check(world: World) -> None:
    world.check(Counter(range(20)))
    table = table_of(world, world.landing.table)
    assert {row["id"]: row["extra"] for row in world.rows()} == {i: {"x": i} if i >= 10 else None for i in range(20)}
    changes = [
        r.extra[EVOLVED] for s in table.metadata.snapshots if (r := record_of(s)) is not None and EVOLVED in r.extra
    ]
    assert [json.loads(t)["changes"] for t in changes] == [["add extra struct<x: optional long>"]]
    head = table.current_snapshot()
    assert head is not None
    assert head.schema_id == table.metadata.current_schema_id == 1
    check_verified(world)


def test_schema_and_reason_come_in_one_request_that_states_what_it_is_for(world: World, gateway: Gateway) -> None:
    world.run()
    (commit,) = [request for request in gateway.commits if changes_schema(request)]
    body: dict[str, Any] = json.loads(commit.body)
    assert Counter(u["action"] for u in body["updates"]) == {
        "add-schema": 1,
        "set-current-schema": 1,
        "add-snapshot": 1,
        "set-snapshot-ref": 2,
    }
    assert Counter(r["type"] for r in body["requirements"]) == {
        "assert-table-uuid": 1,
        "assert-ref-snapshot-id": 2,
        "assert-current-schema-id": 1,
        "assert-last-assigned-field-id": 1,
        "assert-default-spec-id": 1,
    }
    check(world)


@pytest.mark.parametrize("done", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("code", [409, 500])
def test_an_answer_that_is_not_the_truth_is_checked(world: World, gateway: Gateway, code: int, done: bool) -> None:
    def rule(request: Request, forward: Forward) -> Answer | None:
        if done:
            forward()
        return Answer.error(code, "CommitFailedException")

    with gateway.doing(Once(rule)):
        world.run()
    check(world)


REFUSALS = {
    "400": Answer.error(400, "BadRequestException"),
    "403": Answer.error(403, "ForbiddenException"),
    "406": Answer.error(406, "UnsupportedOperationException"),
    "501": Answer.error(501, "NotImplementedException"),
}


@pytest.mark.parametrize("answer", REFUSALS)
def test_a_server_that_refuses_schema_changes_is_named_and_the_rows_land(
    world: World, gateway: Gateway, answer: str
) -> None:
    refuses: Rule = lambda request, forward: REFUSALS[answer] if changes_schema(request) else forward()  # noqa: E731
    with gateway.doing(always(refuses)):
        world.run()
    world.check(Counter(range(20)))
    assert any("was not changed" in line and "add extra struct" in line for line in world.lines)
    check_verified(world)
