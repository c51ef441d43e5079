# SPDX-License-Identifier: Apache-2.0
"""Topics as landings: where each goes, what it is called, and that none is dropped without a word."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.cycle.sets.expansion import Expansion, expand, landing_for, matches_nothing, topics_of
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSet
from tests.support.declared import nested_set


def a_set(**fields: Any) -> LandingSet:
    return LandingSet(**nested_set(**{"name": "shop", "topics_pattern": ".*", "table": "lake.{topic}", **fields}))


def tables_of(found: Expansion) -> dict[str, tuple[str, ...]]:
    return {each.table: each.topic_names for each in found.landings}


def test_each_topic_has_a_table_with_underscores_for_what_engines_do_not_take() -> None:
    found = expand(a_set(), ["shop.orders-v2", "refunds"])
    assert tables_of(found) == {"lake.refunds": ("refunds",), "lake.shop_orders_v2": ("shop.orders-v2",)}
    assert [each.name for each in found.landings] == ["shop.lake.refunds", "shop.lake.shop_orders_v2"]
    assert not found.troubles


def test_named_groups_of_the_pattern_are_fields_and_one_without_a_part_is_empty() -> None:
    declared = a_set(topics_pattern=r"(?P<team>\w+)\.(?P<what>\w+)(\.(?P<more>\w+))?", table="{team}.{what}{more}")
    assert tables_of(expand(declared, ["a.b", "a.b.c"])) == {"a.b": ("a.b",), "a.bc": ("a.b.c",)}


def test_the_first_rule_that_matches_counts_and_a_table_without_fields_is_shared() -> None:
    rules = [{"topics": "(eu|us)-orders", "table": "lake.orders"}, {"topics": "eu-.*", "table": "eu.{topic}"}]
    found = expand(a_set(rules=rules), ["us-orders", "eu-orders", "eu-x", "y"])
    assert tables_of(found) == {"eu.eu_x": ("eu-x",), "lake.orders": ("eu-orders", "us-orders"), "lake.y": ("y",)}


def test_a_landing_keeps_its_name_when_another_topic_joins_its_table() -> None:
    declared = a_set(rules=[{"topics": ".*-orders", "table": "lake.orders"}])
    [one], [two] = (expand(declared, topics).landings for topics in (["eu-orders"], ["eu-orders", "us-orders"]))
    assert one.name == two.name == "shop.lake.orders"
    assert one.spec_version == two.spec_version


def test_topics_that_meet_by_accident_are_refused_and_no_others() -> None:
    found = expand(a_set(), ["a.b", "a-b", "Orders", "orders", "well"])
    assert tables_of(found) == {"lake.well": ("well",)}
    assert [set(t.topics) for t in found.troubles] == [{"Orders", "orders"}, {"a-b", "a.b"}]
    merged = a_set(rules=[{"topics": r"a.b", "table": "lake.{topic}", "merge": True}])
    assert tables_of(expand(merged, ["a.b", "a-b"])) == {"lake.a_b": ("a-b", "a.b")}


def test_a_topic_whose_table_is_anothers_dead_letter_table_is_refused() -> None:
    found = expand(a_set(dead_letter_table="{table}_dead"), ["orders", "orders_dead"])
    assert tables_of(found) == {"lake.orders": ("orders",)}
    assert "the dead-letter table of lake.orders" in found.troubles[0].why


def test_topics_without_a_rule_fail_or_are_ignored_by_name() -> None:
    rules = [{"topics": "orders", "table": "lake.orders"}]
    assert expand(a_set(rules=rules, table=None), ["orders", "x"]).troubles[0].topics == ("x",)
    ignoring = expand(a_set(rules=rules, table=None, unmatched="ignore"), ["orders", "x"])
    assert (ignoring.ignored, ignoring.troubles) == (("x",), ())


def test_kafkas_own_topics_and_the_control_topic_are_nobodys() -> None:
    declared = a_set(topics=["__consumer_offsets", "named"], defaults={"control_topic": "control"})
    assert topics_of(declared, ["control", "__x", "mine"]) == ("mine", "named")


def test_overrides_are_by_table_and_the_last_counts() -> None:
    create = {"schema": [{"name": "id", "type": "long"}]}
    overrides = [{"table": r"lake\..*", "groups": 2}, {"table": r"lake\.b.*", "groups": 3, "create": create}]
    declared = a_set(defaults={"groups": 1, "max_records": 5}, overrides=overrides, missing_table="create")
    found = {each.table: each for each in expand(declared, ["a", "b"]).landings}
    assert (found["lake.a"].window.groups, found["lake.b"].window.groups, found["lake.a"].window.max_records) == (
        2,
        3,
        5,
    )
    assert (found["lake.a"].create, found["lake.b"].create) == (None, create)
    failing = a_set(defaults={"create": create})
    assert expand(failing, ["a"]).landings[0].create is None


def test_a_name_that_is_too_long_is_the_trouble_of_its_topic() -> None:
    found = expand(a_set(), ["x" * 200, "y"])
    assert tables_of(found) == {"lake.y": ("y",)}
    assert "is not a name" in found.troubles[0].why


def test_a_pattern_that_matches_nothing_names_what_is_near() -> None:
    text = matches_nothing(a_set(topics_pattern=r"shop\.ordres\..*"), ["shop.orders.eu", "__x", "else"])
    assert "shop.orders.eu" in text


def test_a_dag_can_name_one_landing_of_a_set_by_its_topics() -> None:
    shop = a_set(topics_pattern=r"shop\..*", rules=[{"topics": r"shop\.(eu|us)", "table": "lake.all"}])
    assert landing_for(shop, "shop.orders").name == "shop.lake.shop_orders"
    assert landing_for(shop, "shop.eu", "shop.us").topic_names == ("shop.eu", "shop.us")
    assert landing_for(shop, "shop.orders") == expand(shop, ["shop.orders", "shop.eu"]).landings[1]
    for topics, why in (
        (["shop.eu", "shop.orders"], "shop.eu go to lake.all; shop.orders go to lake.shop_orders"),
        (["else"], "the set has none of them"),
        (["shop.a.b", "shop.a-b"], "share table"),
    ):
        with pytest.raises(SpecError, match=re.escape(why) + ".*LC6230"):
            landing_for(shop, *topics)


def test_a_set_whose_exclude_takes_out_all_that_its_pattern_matches_reports_it() -> None:
    text = matches_nothing(a_set(topics_pattern=r"shop\..*", exclude=".*"), ["shop.orders", "else"])
    assert "1 topics match topics_pattern" in text
    assert "(shop.orders), but all of them are excluded by `exclude`" in text


TOPICS = st.lists(st.text("abAB.-_", min_size=1, max_size=4), unique=True, max_size=12)
RULES = st.lists(
    st.fixed_dictionaries(
        {"topics": st.sampled_from(["a.*", ".*b", "[AB].*"]), "table": st.sampled_from(["x.one", "x.{topic}"])}
    ),
    max_size=2,
)


@given(TOPICS, RULES, st.booleans(), st.randoms(use_true_random=False))
def test_every_topic_is_in_one_place_and_the_order_does_not_matter(
    topics: list[str], rules: list[dict[str, str]], table: bool, random: Any
) -> None:
    if not table and not rules:
        return
    declared = a_set(rules=rules, table="x.{topic}" if table else None, unmatched="ignore")
    found = expand(declared, topics)
    landed = [t for each in found.landings for t in each.topic_names]
    in_trouble = [t for each in found.troubles for t in each.topics]
    assert sorted([*landed, *in_trouble, *found.ignored]) == sorted(t for t in topics if not t.startswith("__"))
    tables = [name.casefold() for each in found.landings for name in each.tables]
    assert len(set(tables)) == len(tables)
    random.shuffle(topics)
    assert expand(declared, topics) == found
