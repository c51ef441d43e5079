# SPDX-License-Identifier: Apache-2.0
"""Landings that a set had before its rules, its template or its name changed: what they reported is in their tables
after the next run, or is named.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

import pytest

from airflow_provider_lakecommit.cli.runs.land_set import landing_of
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.session.landing_session import RunIdentity
from airflow_provider_lakecommit.cycle.sets.former import landings_to_publish
from airflow_provider_lakecommit.cycle.sets.former_scan import former_landings, start_former
from airflow_provider_lakecommit.cycle.sets.shared_connections import SetConnections, found_landings
from airflow_provider_lakecommit.iceberg.catalog import Tables
from tests.faults.test_lanes import lane
from tests.support.set_world import SetWorld
from tests.support.shop import Shop
from tests.support.world import Killed, World, deaths

pytestmark = [pytest.mark.faults]


@pytest.fixture
def world(shop: Shop) -> SetWorld:
    """A set of one topic of which 10 records are landed, 90 are reported, and the source has removed all of them."""
    shop.topic("orders", range(10))
    made = SetWorld(shop=shop)
    made.run()
    shop.send("orders", range(10, 100))
    made.run(only="plan write")
    made.remove("orders", 50)
    return made


def changes(shop: Shop) -> dict[str, dict[str, Any]]:
    """Changes by which shop.lake.orders is no landing of the set any more."""
    return {
        "rule": {"rules": [{"topics": rf"{shop.prefix}\.orders", "table": "lake.sales"}]},
        "template": {"table": "raw.{what}"},
        "pattern": {"topics_pattern": rf"{shop.prefix}\.(?P<what>refunds)"},
        "exclude": {"exclude": [r".*orders"]},
    }


@pytest.mark.heavy(but=("rule",))
@pytest.mark.parametrize("change", ["rule", "template", "pattern", "exclude"])
def test_what_a_former_landing_reported_is_named_and_then_published(world: SetWorld, change: str) -> None:
    shop = world.shop
    shop.topic("refunds", range(3))
    changed = changes(shop)[change]
    answer = shop.run("status", **changed)
    assert answer.code == 6, answer.out
    assert "FORMER shop.lake.orders: the set no longer has this landing" in answer.out
    [value] = shop.run("status", "--json", **changed).lines
    assert [(f["landing"], f["tables"]) for f in value["former"]] == [("shop.lake.orders", ["lake.orders"])]
    plans, ended = world.run(**changed)
    assert not plans.failed
    assert "shop.lake.orders" in ended
    assert shop.ids("orders") == list(range(100))
    answer = shop.run("status", **changed)
    assert (answer.code, "FORMER" in answer.out) == (0, False), answer.out


@pytest.mark.heavy
def test_what_a_former_landing_reported_is_published_by_the_command(world: SetWorld) -> None:
    answer = world.shop.run("land", **changes(world.shop)["rule"])
    assert answer.code == 0, answer.err
    assert world.shop.ids("orders") == list(range(100))
    assert "shop.lake.orders: the set no longer has this landing" in answer.err


def merged(shop: Shop, *own: str) -> dict[str, Any]:
    """All topics go to one table, but for those that have a rule of their own; landings begin with new records."""
    rules = [{"topics": rf"{shop.prefix}\.{what}", "table": f"lake.{what}"} for what in own]
    rest = {"topics": ".*", "table": "lake.rest", "merge": True}
    return {"table": None, "rules": [*rules, rest], "defaults": {**shop.values["defaults"], "start": "latest"}}


@pytest.mark.heavy
@pytest.mark.parametrize("stays", [True, False])
def test_with_start_latest_a_topic_with_a_new_rule_loses_nothing(shop: Shop, stays: bool) -> None:
    """Whether the former landing still has other topics or not."""
    for what in ("orders", "refunds") if stays else ("orders",):
        shop.topic(what, range(20))
    world = SetWorld(shop=shop)
    world.run(**merged(shop))
    shop.send("orders", range(20, 50))
    world.run(**merged(shop))
    shop.send("orders", range(50, 100))
    plans, _ = world.run(**merged(shop, "orders"))
    assert not plans.failed
    # From where the set began it: what was there before is not wanted.
    assert shop.ids("orders") == list(range(20, 100))
    assert shop.ids("rest") == list(range(20, 50))
    # Twice, and back: each table goes on where it was.
    shop.send("orders", range(100, 110))
    changed = merged(shop)
    changed["rules"] = [{"topics": rf"{shop.prefix}\.orders", "table": "lake.third"}, *changed["rules"]]
    world.run(**changed)
    assert shop.ids("third") == list(range(20, 110))
    shop.send("orders", range(110, 120))
    world.run(**merged(shop, "orders"))
    assert shop.ids("orders") == list(range(20, 120))


@pytest.mark.heavy
def test_a_topic_that_joins_a_landing_begins_where_the_set_began_it(shop: Shop) -> None:
    for what in ("orders", "refunds"):
        shop.topic(what, range(20))
    world = SetWorld(shop=shop)
    world.run(**merged(shop, "orders"))
    shop.send("orders", range(20, 50))
    world.run(**merged(shop, "orders"))
    shop.send("orders", range(50, 60))
    world.run(**merged(shop))
    assert shop.ids("rest") == list(range(20, 60))


@pytest.mark.heavy
def test_with_start_latest_a_topic_that_the_set_never_landed_begins_at_its_end(shop: Shop) -> None:
    shop.topic("refunds", range(20))
    world = SetWorld(shop=shop)
    world.run(**merged(shop))
    shop.topic("orders", range(20))
    world.run(**merged(shop, "orders"))
    shop.send("orders", range(20, 25))
    world.run(**merged(shop, "orders"))
    assert shop.ids("orders") == list(range(20, 25))


def publish(world: SetWorld, **changed: object) -> None:
    """What a run does with former landings, alone."""
    spec, run = world.spec(**changed), RunIdentity(deployment="test", dag_id="test", run_id="killed")
    expansion, tables = found_landings(spec.landing_set, spec.kafka), Tables(spec.catalog)
    with SetConnections(spec.landing_set, expansion, spec.kafka, tables, deployment="test") as connections:
        for landing in landings_to_publish(former_landings(spec.landing_set, connections, world.lines.append)[0]):
            with connections.session(landing, world.lines.append) as session:
                close_cycle(session, run, start_former(session, run).ticket)
    tables.close()


@pytest.mark.heavy
@pytest.mark.parametrize(("step", "when"), [(1, "before"), (1, "after"), (2, "after"), (3, "after")])
def test_a_run_that_dies_while_it_publishes_a_former_landing_is_repeated(
    world: SetWorld, step: int, when: Literal["before", "after"]
) -> None:
    """Before or after its START, its snapshot and the announcement of that."""
    changed = changes(world.shop)["rule"]
    with deaths(step, when) as counter, pytest.raises(Killed):
        publish(world, **changed)
    assert len(counter.steps) == step
    world.run(**changed)
    assert world.shop.ids("orders") == list(range(100))
    publish(world, **changed)
    assert world.shop.run("status", **changed).code == 0


@pytest.mark.heavy
def test_two_processes_publish_a_former_landing_once(world: SetWorld) -> None:
    """One of them still has the rules of before, as while a deployment is rolled out."""
    changed = changes(world.shop)["rule"]
    other = SetWorld(shop=world.shop.with_file("before.yaml"), runs=50)
    with ThreadPoolExecutor() as pool:
        for each in [pool.submit(world.run, **changed), pool.submit(other.run)]:
            each.result()
    world.run(**changed)
    assert world.shop.ids("orders") == list(range(100))
    assert world.shop.run("status", **changed).code == 0


@pytest.mark.heavy
def test_a_former_landing_can_be_named_and_its_open_stream_is(world: SetWorld) -> None:
    """The set's rules change while a stream has reported slices."""
    shop = world.shop
    world.run()
    shop.topic("refunds", range(20))
    late = {"defaults": {**shop.values["defaults"], "start": "latest"}}
    world.run(**late)
    spec = world.spec(**late)
    landing = landing_of(spec, "shop.lake.refunds").landing
    own = World(landing=landing, kafka=spec.kafka, catalog=shop.catalog)
    past = lane(replace(own, landing=replace(landing, topics=f"{shop.prefix}.refunds")), "0=0-10", name="past")
    past.write(past.open("one"))
    world.remove("refunds", 10)
    changed = {"rules": [{"topics": rf"{shop.prefix}\.refunds", "table": "lake.sales"}], **late}
    world.run(**changed)
    answer = shop.run("status", **changed)
    assert answer.code == 6
    assert "FORMER shop.lake.refunds: the set no longer has this landing; backfill past is open" in answer.out
    named = ("--landing", "shop.lake.refunds")
    answer = shop.run("backfill", *named, "--close", "past", "--yes", **changed)
    assert answer.code == 0, answer.err
    assert shop.ids("refunds") == list(range(0, 20, 2))
    assert shop.run("status", **changed).code == 0
    assert shop.run("verify", *named, **changed).code == 0


@pytest.mark.heavy
def test_of_a_renamed_set_what_cannot_be_read_again_is_named_with_the_command(world: SetWorld) -> None:
    shop = world.shop
    same = shop.run("status", name="store")
    assert same.code != 0, same.out
    world.remove("orders", 50)
    changed = {"name": "store", "table": "raw.{what}"}
    answer = shop.run("status", **changed)
    assert answer.code == 6, answer.out
    assert "publish-now SPEC --landing shop.lake.orders" in answer.out
    world.run(**changed)
    # It may still be landed by a user: no run of another set publishes it.
    assert shop.ids("orders") == list(range(10))
    answer = shop.run("publish-now", "--landing", "shop.lake.orders", **changed)
    assert answer.code == 0, answer.err
    assert shop.ids("orders") == list(range(100))
    assert "FORMER" not in shop.run("status", **changed).out


@pytest.mark.heavy
def test_a_former_landing_whose_table_was_dropped_is_named_and_fails_no_run(world: SetWorld) -> None:
    shop = world.shop
    shop.sql().drop_table("lake.orders")
    changed = changes(shop)["rule"]
    plans, _ = world.run(**changed)
    assert not plans.failed
    answer = shop.run("status", **changed)
    assert answer.code == 6
    assert "was reported for lake.orders, which no longer exists" in answer.out


@pytest.mark.heavy
def test_a_name_that_nothing_knows_is_refused_with_one_that_is_like_it(world: SetWorld) -> None:
    answer = world.shop.run("status", "--landing", "shop.lake.ordrs")
    assert answer.code == 2
    assert "did you mean 'shop.lake.orders'?" in answer.err
