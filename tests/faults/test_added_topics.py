# SPDX-License-Identifier: Apache-2.0
"""A topic that was added to a landing, and whose rows a table loses again by a rollback or a dropped branch: reading
begins again where the topic was added, not where it ends by then.

In memory: the plans, tasks and tables are the product's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.operations.decisions.audit_decision import audit_preview, decide_audit
from tests.faults.test_routes import FIELDS, check, mixed
from tests.support.in_memory import TOPIC, MemoryWorld, memory_world
from tests.support.steps import check_verified
from tests.support.world import SCHEMA, Killed, deaths

pytestmark = pytest.mark.faults

OTHER = "refunds"
OPTIONS: dict[str, Any] = {
    "create": {"schema": [{"name": "id", "type": "long", "required": True}]},
    "window": {"start": "latest"},
}
REASON = Decision(command="reset blocked", actor="ana", host="here", at="2026-11-28T00:00:00", landing="rows")


def some(first: int, count: int) -> list[tuple[str, str]]:
    return [(str(n), json.dumps({"id": n})) for n in range(first, first + count)]


def ids(world: MemoryWorld) -> list[int]:
    return sorted(row["id"] for row in world.rows())


def test_after_a_rollback_to_before_the_topic_was_added(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.settle()
        world.send(*some(0, 5))
        with world.session() as session:
            before = session.tables.load(world.landing.table).current_snapshot()
        world.broker.create(OTHER, 1)
        world.broker.produce(OTHER, some(100, 5), 0)
        world.landing = world.landing.changed(topics=[TOPIC, OTHER])
        world.settle()
        assert ids(world) == [*range(5)]
        world.broker.produce(OTHER, some(200, 5), 0)
        world.settle()
        assert ids(world) == [*range(5), *range(200, 205)]
        with world.session() as session:
            table = session.tables.load(world.landing.table)
            table.manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        world.broker.produce(OTHER, some(300, 5), 0)
        world.settle()
        assert ids(world) == [*range(5), *range(200, 205), *range(300, 305)]
        check_verified(world)


def test_after_the_branch_was_dropped(tmp_path: Path) -> None:
    audited = {"checks": ["SELECT * FROM added_rows WHERE id >= 150"], "branch": "audit"}
    with memory_world(tmp_path, **OPTIONS, **audited) as world:
        world.settle()
        world.send(*some(0, 5))
        world.broker.create(OTHER, 1)
        world.broker.produce(OTHER, some(100, 5), 0)
        world.landing = world.landing.changed(topics=[TOPIC, OTHER])
        world.broker.produce(TOPIC, some(150, 1), 0)
        with pytest.raises(TableError, match="LC6250"):
            world.run()
        world.broker.produce(OTHER, some(200, 5), 0)
        with pytest.raises(TableError, match="LC6250"):
            world.run()
        with world.session() as session:
            decide_audit(session, audit_preview(session, drop=True), REASON, drop=True)
        world.landing = world.landing.changed(
            publish={"branch": "audit", "checks": ["SELECT * FROM added_rows WHERE id < 0"]}
        )
        world.settle()
        assert ids(world) == [*range(5), 150, *range(200, 205)]
        check_verified(world)


def test_a_table_that_gets_the_topic_later_begins_where_the_first_one_did(tmp_path: Path) -> None:
    """A plan is killed between the two tables."""
    with memory_world(tmp_path, **{**OPTIONS, **FIELDS, "create": SCHEMA}) as world:
        world.settle()
        world.broker.create(OTHER, 1)
        world.landing = world.landing.changed(topics=[TOPIC, OTHER])
        with deaths(1, "after"), pytest.raises(Killed):
            world.run()
        world.broker.produce(OTHER, mixed(0, 40), 0)
        world.settle()
        check(world, 0, 40)
        check_verified(world)
