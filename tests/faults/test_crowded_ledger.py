# SPDX-License-Identifier: Apache-2.0
"""A ledger that fills up: it is reported early, what is missing can be taken out of it, and nothing comes in twice by
that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.control import ledger_text as wire_ledger
from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.iceberg.ledger import ledger as ledger_module
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.iceberg.ledger.summary import decisions_of
from airflow_provider_lakecommit.operations.decisions.prune import prunable_sections, prune
from airflow_provider_lakecommit.status.status import read_status
from tests.fixtures.kafka import delete_topic
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
DECISION = Decision(
    command="maintain --only ledger", actor="carla", host="h", at="2026-01-01", landing="rows", reason="crowded"
)
Produce = Callable[..., object]


@pytest.mark.heavy
def test_topics_that_are_missing_are_taken_out_and_what_was_pending_comes_in_once(
    make_world: Make, make_topic: Callable[..., str], produce: Produce, admin: AdminClient
) -> None:
    stays, goes = make_topic(1), make_topic(2)
    world = make_world(topics=(stays, goes))
    produce(stays, records(0, 40))
    produce(goes, records(100, 40))
    world.run()
    world = replace(world, landing=replace(world.landing, topics=stays))
    produce(stays, records(40, 40))
    opened = world.open("pending")
    world.write(opened)
    with world.session() as session:
        assert [f.removed for f in prunable_sections(session)] == [{}, {}]
    delete_topic(admin, goes)
    with world.session() as session:
        found = prunable_sections(session)
        expected = [f"{goes}[{n}]" for n in (0, 1)]
        assert [sorted(map(str, f.removed["rows", "live"])) for f in found] == [expected, expected]
        for each in found:
            assert prune(session, each, DECISION).share < each.state.share
            (decisions,) = decisions_of(session.tables.load(each.table).metadata.current_snapshot())
            assert (decisions.actor, decisions.what.count(goes)) == ("carla", 2)
        assert [f.removed for f in prunable_sections(session)] == [{}, {}]
    check_verified(world)
    # What was reported under the epoch before is read again.
    assert world.close("pending", opened).published == ()
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == [*range(80), *range(100, 140)]
    check_verified(world)


def test_a_ledger_that_is_nearly_full_is_reported_and_a_full_one_names_the_command(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    produce(world.landing.topics, records(0, 40))
    world.run()
    monkeypatch.setattr(ledger_module, "CROWDED", 0.001)
    produce(world.landing.topics, records(40, 40))
    opened = world.open("told")
    message = "shop.rows: its ledger uses "
    assert any(line.startswith(message) for line in opened.explain)
    assert any(line.startswith(f"WARNING: {message}") for line in world.lines)
    with world.session() as session:
        assert read_status(session).crowded[0].startswith(message)
        before = read_ledger(session.tables.load("shop.rows").metadata)
    world.write(opened)
    with monkeypatch.context() as full:
        full.setattr(wire_ledger, "LEDGER_LIMIT", 100)
        with pytest.raises(WireError, match=r"`lakecommit maintain SPEC --only ledger` takes out what is gone.*LC2341"):
            world.close("told", opened)
    with world.session() as session:
        assert read_ledger(session.tables.load("shop.rows").metadata) == before
    world.close("told", opened)
    assert sorted(row["id"] for row in world.rows()) == list(range(80))
