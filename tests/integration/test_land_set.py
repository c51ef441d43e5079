# SPDX-License-Identifier: Apache-2.0
"""A landing set as a command: many topics into their tables, new topics, and troubles that stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.sets.plans import plans_of
from airflow_provider_lakecommit.cycle.sets.shared_connections import SetConnections, found_landings
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import load_set
from tests.fixtures.kafka import delete_topic
from tests.support.shop import Shop

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.mark.heavy
def test_each_topic_gets_its_table_a_new_one_its_own_and_two_that_meet_are_named(shop: Shop) -> None:
    for n in range(6):
        shop.topic(f"t{n}", range(n * 10))
    shop.topic("a.b", range(3))
    shop.topic("a-b", range(3))
    answer = shop.run("land")
    assert answer.code == 1, answer.err
    assert [shop.ids(f"t{n}") for n in range(6)] == [list(range(n * 10)) for n in range(6)]
    assert "share table lake.a_b" in answer.err
    values = {line["landing"] for line in answer.lines}
    assert {name for name in values if name.startswith("shop.lake.")} == {f"shop.lake.t{n}" for n in range(6)}
    (refused,) = (name for name in values if not name.startswith("shop.lake."))
    assert "a-b" in refused
    assert "a.b" in refused
    shop.topic("later", range(5))
    shop.send("t1", range(10, 20))
    answer = shop.run("land", exclude=[r".*\.a[.-]b"])
    assert answer.code == 0, answer.err
    assert (shop.ids("later"), shop.ids("t1")) == (list(range(5)), list(range(20)))
    assert "7 of 7 landings succeeded" in answer.err


def test_a_plan_has_a_line_for_each_landing_and_writes_nothing(shop: Shop) -> None:
    shop.topic("orders", range(7))
    shop.topic("empty")
    answer = shop.run("plan")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0].startswith("shop.lake.empty: nothing new; topic ")
    assert lines[1].startswith("shop.lake.orders: 7 offsets in ")
    assert lines[2].startswith("2 landings: 7 offsets in ")
    assert load_catalog(**shop.catalog).list_namespaces() == []
    [value] = shop.run("plan", "--json").lines
    assert [plan["records"] for plan in value["plans"]] == [0, 7]


@pytest.mark.heavy
def test_several_topics_may_share_a_table_where_a_rule_reports_it(shop: Shop) -> None:
    shop.topic("eu.orders", range(10))
    shop.topic("us.orders", range(10, 20))
    rules = [{"topics": rf"{shop.prefix}\.(eu|us)\.orders", "table": "lake.orders"}]
    assert shop.run("land", rules=rules).code == 0
    shop.topic("asia.orders", range(20, 30))
    rules = [{"topics": rf"{shop.prefix}\..*\.orders", "table": "lake.orders"}]
    answer = shop.run("land", rules=rules)
    assert answer.code == 0, answer.err
    assert shop.ids("orders") == list(range(30))
    assert {line["landing"] for line in answer.lines} == {"shop.lake.orders"}


@pytest.mark.heavy
def test_a_table_that_is_missing_fails_alone_or_is_made_by_what_a_sample_reports(shop: Shop) -> None:
    shop.topic("here", range(3))
    shop.topic("gone", range(4))
    plain = {"control_topic": f"{shop.prefix}-control"}
    assert shop.run("land", exclude=[r".*gone"]).code == 0
    answer = shop.run("land", missing_table="fail", defaults=plain)
    assert answer.code == 1
    assert "there is no table lake.gone" in answer.err
    assert "1 of 2 landings succeeded; failed: shop.lake.gone" in answer.err
    answer = shop.run("land", defaults=plain)
    assert answer.code == 0, answer.err
    assert shop.ids("gone") == list(range(4))
    assert not load_catalog(**shop.catalog).load_table("lake.gone").schema().find_field("id").required


@pytest.mark.heavy
def test_a_topic_without_records_waits_for_its_first_one_and_one_that_reports_no_column_fails(shop: Shop) -> None:
    plain = {"control_topic": f"{shop.prefix}-control"}
    shop.topic("orders", range(3))
    shop.topic("empty")
    answer = shop.run("plan", defaults=plain)
    assert answer.code == 0, answer.err
    assert f"shop.lake.empty: {shop.prefix}.empty never had a record: lake.empty is created with" in answer.out
    answer = shop.run("land", defaults=plain)
    assert answer.code == 0, answer.err
    shop.sender.produce(shop.topic("garbage"), [b"\xff no json"], 0)
    shop.send("empty", range(4))
    answer = shop.run("land", defaults=plain)
    assert answer.code == 1
    assert shop.ids("empty") == list(range(4))
    assert "2 of 3 landings succeeded; failed: shop.lake.garbage" in answer.err


def test_landings_that_have_nothing_to_do_are_reported_by_the_log_and_cost_no_plan(shop: Shop) -> None:
    shop.topic("orders", range(3))
    shop.topic("refunds", range(3))
    assert shop.run("land").code == 0
    assert shop.ids("orders") == shop.ids("refunds") == [0, 1, 2]
    shop.send("refunds", range(3, 5))
    spec = load_set(shop.write())
    tables, planned = Tables(shop.catalog), list[str]()

    def plan(session: LandingSession) -> Opened:
        planned.append(session.landing.name)
        return preview(session)

    expansion = found_landings(spec.landing_set, spec.kafka)
    with SetConnections(spec.landing_set, expansion, spec.kafka, tables, deployment="test") as connections:
        plans = plans_of(spec.landing_set, connections, plan, print, skip_idle=True)
    tables.close()
    assert planned == ["shop.lake.refunds"] == list(plans.opened)
    assert dict(plans.nothing) == {"shop.lake.orders": "nothing new"}


@pytest.mark.heavy
def test_one_broken_table_stops_no_other(shop: Shop) -> None:
    for n in range(20):
        shop.topic(f"t{n:02d}", range(5))
    assert shop.run("land").code == 0
    catalog = shop.sql()
    catalog.drop_table("lake.t07")
    Path(catalog.load_table("lake.t03").metadata_location.removeprefix("file://")).unlink()
    for n in range(20):
        shop.send(f"t{n:02d}", range(5, 9))
    answer = shop.run("land")
    assert answer.code == 1
    well = [n for n in range(20) if n not in (3, 7)]
    assert [shop.ids(f"t{n:02d}") for n in well] == [list(range(9))] * 18
    assert "18 of 20 landings succeeded; failed: shop.lake.t03, shop.lake.t07" in answer.err
    assert "dropped, renamed or recreated" in answer.err


def test_a_pattern_that_matches_nothing_is_an_error_that_names_near_topics(shop: Shop) -> None:
    name = shop.topic("orders", range(3))
    answer = shop.run("land", topics_pattern=name.replace("orders", "ordres"), table="lake.{topic}")
    assert answer.code == 1
    assert name in answer.err
    assert "no topic matches topics_pattern" in answer.err


@pytest.mark.heavy
def test_a_named_topic_that_is_missing_is_its_landings_trouble(shop: Shop) -> None:
    names = [shop.topic("stays", range(3)), shop.topic("goes", range(3))]
    named = {"topics": names, "topics_pattern": None, "table": "lake.{topic}"}
    assert shop.run("land", **named).code == 0
    delete_topic(shop.admin, names[1])
    shop.send("stays", range(3, 6))
    answer = shop.run("land", **named)
    assert answer.code == 1
    assert f"topic {names[1]!r}" in answer.err
    assert "does not exist" in answer.err
    assert shop.ids(names[0].replace("-", "_").replace(".", "_")) == list(range(6))


@pytest.mark.heavy
def test_a_topic_of_the_pattern_that_was_deleted_is_named_and_stops_no_other(shop: Shop) -> None:
    deleted = shop.topic("goes", range(3))
    shop.topic("stays", range(3))
    assert shop.run("land").code == 0
    delete_topic(shop.admin, deleted)
    message = (
        f"shop.lake.goes: its topics are missing, or this principal can no longer see them ({deleted}); lake.goes stays"
    )
    answer = shop.run("plan")
    assert answer.code == 0
    assert f"GONE {message}" in answer.out
    answer = shop.run("land")
    assert answer.code == 0
    assert f"WARNING: {message}" in answer.err
    assert shop.ids("goes") == [0, 1, 2]
    answer = shop.run("status", "--landing", "shop.lake.goes")
    assert answer.code == 6
    assert f"topic {deleted} is missing" in answer.out


@pytest.mark.heavy
def test_commands_on_a_landing_take_one_of_the_set_by_its_name(shop: Shop) -> None:
    shop.topic("orders", range(3))
    shop.topic("refunds", range(3))
    assert shop.run("land").code == 0
    answer = shop.run("status", "--landing", "shop.lake.orders")
    assert answer.code == 0, answer.err
    assert "shop.lake.orders" in answer.out
    assert shop.run("verify", "--landing", "shop.lake.refunds").code == 0
    answer = shop.run("status", "--landing", "shop.lake.order")
    assert answer.code == 2
    assert "did you mean 'shop.lake.orders'?" in answer.err
    assert "choose one by --landing NAME" in shop.run("verify").err


@pytest.mark.heavy
def test_the_status_of_a_set_has_a_line_for_each_landing_the_worst_first(shop: Shop) -> None:
    plain = {"control_topic": f"{shop.prefix}-control"}
    for what in ("a", "b"):
        shop.topic(what, range(3))
    shop.topic("empty")
    assert shop.run("land", defaults=plain).code == 0
    answer = shop.run("status", defaults=plain)
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "3 landings: 3 well, 0 failed; 0 offsets behind")
    shop.send("b", range(3, 8))
    answer = shop.run("status", defaults=plain)
    assert answer.code == 6
    assert answer.out.splitlines() == [
        "shop.lake.b: BEHIND: 5 offsets are not landed; 5 offsets behind",
        "shop.lake.a: all is well",
        f"shop.lake.empty: all is well: {shop.prefix}.empty never had a record: "
        "lake.empty is created with the first one",
        "3 landings: 1 behind, 2 well, 0 failed; 5 offsets behind",
    ]
    [value] = shop.run("status", "--json", defaults=plain).lines
    assert next((each["landing"], each["standing"]) for each in value["landings"]) == ("shop.lake.b", "behind")
    shop.topic("a-x")
    shop.topic("a.x")
    answer = shop.run("status", defaults=plain)
    assert answer.code == 1
    assert answer.out.startswith("NO LANDING topics")


@pytest.mark.heavy
def test_topics_that_no_rule_names_are_set_aside_as_they_are_until_a_rule_does(shop: Shop) -> None:
    aside = {"format": "raw", "metadata_columns": True, "create": {"schema": [{"name": "value", "type": "binary"}]}}
    fields: dict[str, Any] = {"table": None, "overrides": [{"table": r"lake\.set_aside", **aside}]}
    known = {"topics": rf"{shop.prefix}\.(?P<what>orders)", "table": "lake.{what}"}
    rest = {"topics": ".*", "table": "lake.set_aside", "merge": True}
    topics = [shop.topic(what, range(3)) for what in ("orders", "odd", "strange")]
    assert shop.run("land", rules=[known, rest], **fields).code == 0
    rows = load_catalog(**shop.catalog).load_table("lake.set_aside").scan().to_arrow().to_pylist()
    assert sorted((row["kafka_topic"], row["value"]) for row in rows) == sorted(
        (topic, f'{{"id":{n}}}'.encode()) for topic in topics[1:] for n in range(3)
    )
    shop.send("odd", range(3, 5))
    shop.send("strange", range(3, 4))
    known = {**known, "topics": rf"{shop.prefix}\.(?P<what>orders|odd)"}
    assert shop.run("land", rules=[known, rest], **fields).code == 0
    assert (shop.ids("orders"), shop.ids("odd")) == (list(range(3)), list(range(5)))
    assert load_catalog(**shop.catalog).load_table("lake.set_aside").scan().count() == 7


@pytest.mark.heavy
@pytest.mark.parametrize("unmatched", ["fail", "ignore"])
def test_a_topic_that_matches_no_rule_is_never_dropped_without_a_decision(shop: Shop, unmatched: str) -> None:
    shop.topic("orders", range(3))
    shop.topic("other", range(3))
    rules = [{"topics": rf"{shop.prefix}\.orders", "table": "lake.orders"}]
    answer = shop.run("land", rules=rules, table=None, unmatched=unmatched)
    assert answer.code == (1 if unmatched == "fail" else 0)
    assert f"topic {shop.prefix}.other matches no rule" in answer.err
    assert shop.ids("orders") == [0, 1, 2]
