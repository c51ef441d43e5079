# SPDX-License-Identifier: Apache-2.0
"""Windows that wait on their branch for a decision, while old snapshots are expired: they can be published afterwards.

In memory: the plans, tasks, checks and tables are the product's own.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.committer import trim_snapshots
from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg import KEEP_SNAPSHOTS
from airflow_provider_lakecommit.operations.decisions.audit import audit_preview, decide_audit
from airflow_provider_lakecommit.operations.maintenance.expire import expire
from tests.support.in_memory import TOPIC, MemoryWorld, memory_world
from tests.support.steps import check_verified

pytestmark = pytest.mark.faults

OPTIONS: dict[str, Any] = {
    "create": {"schema": [{"name": "id", "type": "long", "required": True}]},
    "checks": ["SELECT * FROM added_rows WHERE id < 0"],
    "branch": "audit",
}
REASON = Decision(command="reset blocked", actor="ana", host="here", at="2026-11-28T00:00:00", landing="rows")


def some(*numbers: int) -> list[tuple[str, str]]:
    return [(str(n), json.dumps({"id": n})) for n in numbers]


def decided(world: MemoryWorld, *, drop: bool) -> None:
    with world.session() as session:
        decide_audit(session, audit_preview(session, drop=drop).to_dict(), REASON)


@pytest.mark.parametrize("by", ["age", "number"])
@pytest.mark.parametrize("first", [[], [1, 2]])
def test_waiting_windows_are_released_after_an_expiry(tmp_path: Path, by: str, first: list[int]) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        for n in first:
            world.send(*some(n))
        for n in (-1, 10, 11):
            world.broker.produce(TOPIC, some(n), 0)
            with pytest.raises(TableError, match="LC6250"):
                world.run()
        with world.session() as session:
            table = session.tables.load(world.landing.table)
            if by == "age":
                assert [e.error for e in expire(session, older_than=-timedelta(minutes=1), remove=True)] == ["", ""]
            else:
                with table.transaction() as change:
                    change.set_properties({KEEP_SNAPSHOTS: "1"})
                trim_snapshots(session.tables, world.landing.table, "audit", audited=True)
            left = len(session.tables.load(world.landing.table).metadata.snapshots)
            assert (left < len(table.metadata.snapshots)) == bool(first), "those that main has are expired"
        decided(world, drop=False)
        world.settle()
        assert sorted(row["id"] for row in world.rows()) == sorted([-1, *first, 10, 11])
        check_verified(world)
