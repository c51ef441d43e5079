# SPDX-License-Identifier: Apache-2.0
"""By which rules records are evaluated, and that no range is read for one table by others than another table's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.planning.missing import Missing
from airflow_provider_lakecommit.core.planning.voiding import other_rules
from airflow_provider_lakecommit.core.rules import (
    MOST_RULES,
    UNKNOWN,
    evaluated_in,
    evaluated_otherwise,
    merged,
    rules_of,
    unevaluated,
)
from airflow_provider_lakecommit.core.state import TableLedger
from tests.support.story import ORDERS, P0, Story, coverage, ledger

DEAD = "shop.dead"
TABLES = (ORDERS, DEAD)
OLD, NOW = "old", "now"


def field(name: str, **stated: Any) -> dict[str, Any]:
    return {"id": 1, "name": name, "type": "long", "required": False, **stated}


def schema(*fields: dict[str, Any], **stated: Any) -> str:
    return json.dumps({"type": "struct", "schema-id": 0, "fields": list(fields), **stated})


@pytest.mark.parametrize(
    "other",
    [schema(field("a", id=7), **{"schema-id": 3, "identifier-field-ids": [7]}), schema(field("a", doc="said of it"))],
    ids=["ids", "comment"],
)
def test_what_decides_nothing_is_not_in_the_rules(other: str) -> None:
    assert rules_of("d", other) == rules_of("d", schema(field("a")))


def test_the_order_of_columns_decides_nothing_also_within_a_column() -> None:
    def of(*names: str) -> str:
        inner = [field(name, type="int" if name == "a" else "string") for name in names]
        return schema(*inner, field("c", type={"type": "struct", "fields": inner}))

    assert rules_of("d", of("a", "b")) == rules_of("d", of("b", "a"))
    assert rules_of("d", of("a", "b"), of("a")) != rules_of("d", of("a"), of("a", "b")), "that of tables does"


@pytest.mark.parametrize(
    "other",
    [
        rules_of("d", schema(field("b"))),
        rules_of("d", schema(field("a", type="int"))),
        rules_of("d", schema(field("a", required=True))),
        rules_of("d", schema(field("a"), field("b"))),
        rules_of("e", schema(field("a"))),
        rules_of("d", schema(field("a", type={"type": "list", "element-id": 2, "element": "long"}))),
    ],
    ids=["name", "type", "required", "one more", "decoding", "nested"],
)
def test_what_decides_the_disposition_of_a_record_is_in_the_rules(other: str) -> None:
    assert other != rules_of("d", schema(field("a")))


def test_columns_within_columns_are_distinguished() -> None:
    def of(element: str) -> str:
        return rules_of("d", schema(field("a", type={"type": "list", "element-id": 2, "element": element})))

    assert of("long") != of("int")


def test_what_is_known_of_ranges() -> None:
    known = merged({}, [(OLD, coverage([(P0, 0, 10)])), (UNKNOWN, coverage([(P0, 10, 15)]))])
    known = merged(known, [(NOW, coverage([(P0, 15, 20)])), (NOW, coverage([(P0, 20, 25)]))])
    assert known == {OLD: coverage([(P0, 0, 10)]), NOW: coverage([(P0, 15, 25)])}
    requested = coverage([(P0, 5, 30)])
    assert evaluated_in(known, requested) == {OLD: coverage([(P0, 5, 10)]), NOW: coverage([(P0, 15, 25)])}
    assert unevaluated(known, requested) == coverage([(P0, 10, 15), (P0, 25, 30)])
    assert evaluated_otherwise(known, requested, NOW) == coverage([(P0, 5, 10)])
    assert evaluated_otherwise(known, requested, UNKNOWN) == Coverage(), "nobody knows whether they are others"


def test_the_oldest_rules_are_forgotten() -> None:
    known: Mapping[str, Coverage] = {}
    for n in range(MOST_RULES + 3):
        known = merged(known, [(str(n), coverage([(P0, n, n + 1)]))])
    assert list(known) == [str(n) for n in range(3, MOST_RULES + 3)]


def evaluated(of: TableLedger, **rules: Coverage) -> TableLedger:
    return replace(of, evaluated=rules)


ALONE = Missing(ranges={(DEAD,): coverage([(P0, 10, 40)])})


@pytest.mark.parametrize(
    ("of_data", "alike", "found"),
    [
        ({NOW: coverage([(P0, 0, 40)])}, [], None),
        ({OLD: coverage([(P0, 0, 40)])}, [], [(P0, 10, 40)]),
        ({OLD: coverage([(P0, 0, 20)]), NOW: coverage([(P0, 20, 40)])}, [], [(P0, 10, 20)]),
        ({OLD: coverage([(P0, 0, 10)]), NOW: coverage([(P0, 10, 40)])}, [], None),
        ({}, [], [(P0, 10, 40)]),
        ({}, [(P0, 0, 40)], None),
        ({}, [(P0, 0, 20)], [(P0, 20, 40)]),
        ({OLD: coverage([(P0, 0, 20)])}, [(P0, 0, 40)], [(P0, 10, 20)]),
        ({NOW: coverage([(P0, 0, 20)])}, [], [(P0, 20, 40)]),
    ],
)
def test_a_range_is_not_read_alone_by_other_rules(
    of_data: dict[str, Coverage], alike: list[Any], found: list[Any] | None
) -> None:
    data = evaluated(ledger(ORDERS, [(P0, 0, 40)]), **of_data)
    state = Story().landing_state(data, ledger(DEAD, [(P0, 0, 10)]))
    others = other_rules(state, ALONE, NOW, {ORDERS: coverage(alike)})
    assert others == ({} if found is None else {((DEAD,), ORDERS): coverage(found)})


def test_what_another_table_has_accepted_counts_as_what_it_has() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)], [(P0, 10, 40)]], tables=(ORDERS,))
    story.reports("a", [(P0, 0, 10)], rules=NOW)
    story.reports("a", [(P0, 10, 40)], rules=OLD)
    state = story.landing_state(ledger(ORDERS), ledger(DEAD))
    missing = Missing(ranges={(DEAD,): coverage([(P0, 0, 50)])})
    assert list(other_rules(state, missing, NOW).values()) == [coverage([(P0, 10, 40)])]


def test_what_all_tables_lack_is_read_by_any_rules() -> None:
    state = Story().landing_state(evaluated(ledger(ORDERS, [(P0, 0, 40)]), old=coverage([(P0, 0, 40)])), ledger(DEAD))
    assert other_rules(state, Missing(ranges={TABLES: coverage([(P0, 40, 90)])}), NOW) == {}


def reported_twice(first: str, second: str) -> dict[str, list[str]]:
    """A slice for both tables whose epoch is over for the dead letters, and then one for these alone; what each table
    accepted, by its rules.
    """
    story = Story()
    story.opens("a", [[(P0, 0, 10)]], tables=(ORDERS,))
    story.reports("a", [(P0, 0, 10)], rules=first)
    story.opens("b", [[(P0, 0, 10)]], tables=(DEAD,))
    story.reports("b", [(P0, 0, 10)], rules=second)
    state = story.landing_state(ledger(ORDERS), ledger(DEAD))
    return {t: [a.report.rules for a in accepted] for t, accepted in state.accepted.items()}


def test_a_report_by_other_rules_than_those_of_another_table_is_redundant() -> None:
    assert reported_twice(OLD, NOW) == {ORDERS: [OLD], DEAD: []}
    assert reported_twice(OLD, OLD) == {ORDERS: [OLD], DEAD: [OLD]}


def test_reports_of_earlier_releases_report_no_rules_and_are_taken() -> None:
    assert reported_twice(UNKNOWN, NOW) == {ORDERS: [UNKNOWN], DEAD: [NOW]}
    assert reported_twice(OLD, UNKNOWN) == {ORDERS: [OLD], DEAD: [UNKNOWN]}


def test_a_report_by_other_rules_than_those_of_another_tables_ledger_is_redundant() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]], tables=(DEAD,))
    story.reports("a", [(P0, 0, 10)], rules=NOW)
    data = evaluated(ledger(ORDERS, [(P0, 0, 10)]), old=coverage([(P0, 0, 10)]))
    state = story.landing_state(data, ledger(DEAD))
    assert state.accepted[DEAD] == ()
    assert [reason for _, reason in state.redundant] == [f"{ORDERS} has {coverage([(P0, 0, 10)])} by other rules"]


def test_nothing_is_forgotten_where_nothing_is_stored() -> None:
    many = {f"rules {n}": coverage([(P0, n, n + 1)]) for n in range(MOST_RULES + 4)}
    assert len(merged({}, many.items())) == MOST_RULES
    assert merged({}, many.items(), most=None) == many
    state = Story().landing_state(
        ledger(ORDERS), replace(ledger(DEAD, [(P0, 0, 1)]), evaluated={**many, "rules 0": coverage([(P0, 0, 1)])})
    )
    lacking = Missing(ranges={(ORDERS,): coverage([(P0, 0, 1)])})
    assert other_rules(state, lacking, "rules 0") == {}
