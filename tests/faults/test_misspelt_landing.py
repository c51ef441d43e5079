# SPDX-License-Identifier: Apache-2.0
"""Commands under a landing name that nothing knows: none of them blocks the landing that was meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import LakecommitError, TableError
from airflow_provider_lakecommit.operations.backfill.preview import lane_preview
from airflow_provider_lakecommit.operations.backfill.request import lane_request
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.pause import resume, suspend
from airflow_provider_lakecommit.operations.decisions.publish_now import publish_now
from airflow_provider_lakecommit.operations.decisions.unblock import unblock
from tests.support.declared import changed_landing
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
DECISION = Decision(command="test", actor="ann", host="here", at="2026-01-01T00:00:00+00:00")


@pytest.fixture
def orders(make_world: Make, produce: Produce) -> World:
    """20 records are landed by landing orders, 10 are to be read."""
    world = make_world(partitions=1, name="orders")
    produce(world.landing.topics, records(0, 20), partition=0)
    world.settle()
    produce(world.landing.topics, records(20, 10), partition=0)
    return world


def misspelt(world: World, **fields: Any) -> World:
    return replace(world, landing=changed_landing(world.landing, name="ordrs", **fields))


def asserted(session: LandingSession) -> object:
    offsets = {(str(session.landing.topics), 0): 20}
    return assert_tables(session, from_offsets(session, offsets, ["shop.rows"]), decision=DECISION)


WRITES: dict[str, Callable[[LandingSession], object]] = {
    "reset offsets": lambda session: ledger_init(session, "latest", decision=DECISION),
    "its preview": lambda session: init_preview(session, "earliest"),
    "reset assert": asserted,
    "backfill": lambda session: lane_preview(session, lane_request(since="2020-01-01")),
}
NEEDS: dict[str, Callable[[LandingSession], object]] = {
    "suspend": lambda session: suspend(session, DECISION),
    "resume": lambda session: resume(session, DECISION),
    "publish-now": lambda session: publish_now(session, World.run_identity(None, "now"), "now", wait=0.0),  # type: ignore[arg-type]
    "reset blocked": lambda session: unblock(session, skip=True),
}


@pytest.mark.heavy(but=("backfill",))
@pytest.mark.parametrize("what", WRITES)
def test_no_command_gives_a_misspelt_landing_a_ledger(orders: World, what: str) -> None:
    with misspelt(orders).session() as session, pytest.raises(TableError, match="LC3003"):
        WRITES[what](session)
    orders.settle()
    orders.check(Counter(range(30)))


@pytest.mark.heavy
@pytest.mark.parametrize("what", NEEDS)
def test_commands_that_need_a_known_landing_name_the_one_that_is_meant(orders: World, what: str) -> None:
    known = r"no table or control record has a landing ordrs; similar names are orders"
    with misspelt(orders).session() as session, pytest.raises(LakecommitError, match=known):
        NEEDS[what](session)


@pytest.mark.heavy
def test_where_no_table_has_the_landing_a_first_reset_lists_similar_names(orders: World) -> None:
    """A first run may begin somewhere: it has to be agreed to where the name may be a misspelt one."""
    elsewhere = misspelt(orders, table="shop.others", dead_letter_table=None)
    with elsewhere.session() as session:
        found = init_preview(session, "latest")
        assert found.unknown
        assert next(found.lines()).endswith("has a landing ordrs; similar names are orders")
        ledger_init(session, "latest", agreed=found, decision=DECISION)
        # It is known by then.
        assert not init_preview(session, "latest").unknown
    new = replace(elsewhere, landing=replace(elsewhere.landing, name="a-new-one", table="shop.third"))
    with new.session() as session:
        assert not init_preview(session, "latest").unknown


@pytest.mark.heavy
def test_of_a_table_that_was_dropped_the_log_knows_the_landing(orders: World) -> None:
    with orders.session() as session:
        session.tables.catalog.drop_table("shop.rows")
        session.tables.catalog.drop_table("shop.dead")
    renamed = replace(orders, landing=replace(orders.landing, name="other-name"))
    with renamed.session() as session:
        assert "similar names are orders" in init_preview(session, "earliest").unknown
