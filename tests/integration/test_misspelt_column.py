# SPDX-License-Identifier: Apache-2.0
"""A column whose name is misspelt in the table, on the real broker and catalog: told early, with its cause, and landed
as soon as it is fixed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_lakecommit.core.outcome import Commit, Ended, decide
from airflow_provider_lakecommit.operators.tasks.write_jobs import left_undone
from airflow_provider_lakecommit.status.status import read_status
from airflow_provider_lakecommit.status.status_rules import StatusVerdict, status_verdict
from tests.support.groups import group_result
from tests.support.steps import check_verified
from tests.support.world import World

pytestmark = pytest.mark.integration

RECORDS = 12_000
COSTS = {
    "schema": [
        {"name": "id", "type": "long", "required": True},
        {"name": "cost", "type": "decimal(12, 2)", "required": True},
    ]
}
CAUSE = "required column cost is missing or null; the record has 'costs', which the table lacks (1500 of 1500 rejected"


def renamed(world: World, old: str, new: str) -> None:
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.rename_column(old, new)


def test_it_ends_early_with_its_cause_and_is_landed_once_it_is_fixed(
    make_world: Callable[..., World], produce: Callable[..., Any]
) -> None:
    world = make_world(1, create=COSTS, slice_records=RECORDS)
    produce(str(world.landing.topics), [json.dumps({"id": n, "costs": "1.50"}) for n in range(RECORDS)])

    opened = world.open("a")
    (result,) = world.write(opened)
    assert result.status == "blocked"
    with world.session() as session:
        (ticket,) = opened.groups
        group = group_result(world.landing, session.control, ticket)
        message = str(left_undone(group, "group 0"))
    closed = world.close("a", opened)
    verdict, reason = decide(
        Ended(plan="success", groups={0: "failed"}, commit="skipped", closed=Commit.from_dict(closed.to_dict()))
    )
    for text in (result.detail, message, reason, closed.causes[0]):
        assert text.startswith(CAUSE)
        assert "the rest was not read" in text
        assert "\n" not in text
    assert (closed.published, closed.reason, verdict) == ((), None, "failed")

    idle = world.open("b")
    assert (idle.slices, str(idle.plan.reason).partition(" [")[0]) == ((), f"blocked: {world.landing.topics}[0]")
    assert CAUSE in str(idle.plan.reason)
    with world.session() as session:
        standing, why = status_verdict(read_status(session), lag=10**6)
    assert standing is StatusVerdict.BLOCKED
    assert CAUSE in why
    world.close("b", idle)

    renamed(world, "cost", "costs")
    closed = world.run()
    assert (closed.rows, closed.blocked) == (RECORDS, ())
    again = ": the spec or the table changed since it was blocked"
    assert any(line.startswith("retrying ") and line.endswith(again) for line in world.lines)
    idle = world.open("d")
    assert idle.slices == ()
    assert any("column cost is missing" in line for line in idle.explain)
    assert any(line.startswith("WARNING: ") and "column cost is missing" in line for line in world.lines)
    check_verified(world)


def test_what_is_in_no_row_is_counted_by_field_and_by_reason(
    make_world: Callable[..., World], produce: Callable[..., Any]
) -> None:
    world = make_world(1, create=COSTS, slice_records=100)
    good = [json.dumps({"id": n, "cost": "1.50", "note": "x"}) for n in range(40)]
    bad = [json.dumps({"id": n, "costs": "1.50"}) for n in range(3)]
    produce(str(world.landing.topics), [*good, *bad, "nonsense"])
    closed = world.run()
    assert closed.ignored_fields == {"note": 40}
    assert closed.rejects == {"missing_required cost": 3, "not_json": 1}
    why = "required column cost is missing or null; the record has 'costs', which the table lacks"
    assert [w.partition(":")[2] for w in closed.warnings] == [
        " note 40",
        f" missing_required cost 3, not_json 1; most of them: {why}",
    ]
