# SPDX-License-Identifier: Apache-2.0
"""A landing that is suspended plans nothing, whoever runs it, and loses nothing of what it has under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.pause import resume, suspend
from airflow_provider_lakecommit.status.status import read_status
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


def apply(world: World, command: Callable[..., dict[str, Any]], reason: str) -> dict[str, Any]:
    at = datetime.now(UTC).isoformat()
    decision = Decision(
        command=command.__name__, actor="ann", host="here", at=at, landing=world.landing.name, reason=reason
    )
    with world.session() as session:
        return command(session, decision)


def test_nothing_is_planned_until_it_is_resumed(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1)
    topic = world.landing.topics
    with pytest.raises(LedgerError, match="LC7040"):
        apply(world, suspend, "too early")
    produce(topic, records(0, 10))
    world.settle()
    produce(topic, records(10, 10))
    opened = world.open("under way", release=False)
    assert apply(world, suspend, "the table is restored")["changed"]
    again = apply(world, suspend, "me too")
    assert not again["changed"]
    assert "the table is restored" in again["suspended"]
    # What was planned before is published, and nothing more is planned.
    world.write(opened)
    produce(topic, records(20, 10))
    held = world.open("held")
    assert not held.slices
    assert "suspended: by" in str(held.plan.reason)
    assert "ann on here: the table is restored; cleared by `lakecommit resume`" in str(held.plan.reason)
    world.close("held", held)
    world.check(Counter(range(20)))
    with world.session() as session:
        status = read_status(session)
        ledger_init(session, {})
    assert "the table is restored" in status.suspended
    # A ledger that is set anew is as suspended as it was.
    assert not world.open("held again").slices
    assert apply(world, resume, "restored")["changed"]
    assert not apply(world, resume, "restored")["changed"]
    world.settle()
    world.check(Counter(range(30)))
    check_verified(world)
    with world.session() as session:
        from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger

        commands = [d.command for d in read_ledger(session.tables.load(world.landing.table).metadata).decisions]
    assert commands[:1] == ["suspend"]
    assert commands[-1] == "resume"
