# SPDX-License-Identifier: Apache-2.0
"""Destinations: which table takes a row, and which a reject."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from airflow_provider_lakecommit.core.destinations import FAIL, Role, Route, role_of, schemas_of, tables_for

ORDERS = {"shop.orders": Role.ROWS}
AUDIT = {"shop.audit": Role.ROWS}
DEAD = {"shop.dead": Role.DEAD_LETTERS}


@dataclass(frozen=True)
class Described:
    table: str
    schema: str


@pytest.mark.parametrize(
    ("destinations", "role", "tables"),
    [
        (ORDERS, Role.ROWS, ["shop.orders"]),
        (ORDERS, Role.DEAD_LETTERS, []),
        (ORDERS | DEAD, Role.DEAD_LETTERS, ["shop.dead"]),
        (ORDERS | AUDIT | DEAD, Role.ROWS, ["shop.orders", "shop.audit"]),
    ],
)
def test_the_tables_of_a_role_are_in_order(destinations: dict[str, Role], role: Role, tables: list[str]) -> None:
    assert list(tables_for(destinations, role)) == tables


def test_records_are_evaluated_by_the_tables_of_rows_that_are_there_in_the_landings_order() -> None:
    there = [Described("shop.dead", "d"), Described("shop.audit", "a"), Described("shop.orders", "o")]
    assert schemas_of(ORDERS | AUDIT | DEAD, there) == ("o", "a")
    assert schemas_of(ORDERS | AUDIT | DEAD, there[2:]) == ("o",)


def test_a_route_names_each_of_its_tables_once() -> None:
    route = Route(field="type", tables={"a": "s.a", "b": "s.b", "c": "s.a"}, other="s.c")
    assert route.all_tables == ("s.a", "s.b", "s.c")
    assert Route(field="type", tables={"a": "s.a"}, other=FAIL).all_tables == ("s.a",)


@pytest.mark.parametrize(
    ("table", "role"),
    [("shop.orders", Role.ROWS), ("shop.dead", Role.DEAD_LETTERS), ("shop.dropped", Role.DEAD_LETTERS)],
)
def test_the_role_of_a_table(table: str, role: Role) -> None:
    assert role_of(ORDERS | DEAD, table) is role
