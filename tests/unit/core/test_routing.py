# SPDX-License-Identifier: Apache-2.0
"""Destinations: which table takes a row, and which a reject."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.core.routing import Destination, Role, role_of, route

ORDERS = Destination(table="shop.orders", role=Role.ROWS)
AUDIT = Destination(table="shop.audit", role=Role.ROWS)
DEAD = Destination(table="shop.dead", role=Role.DEAD_LETTERS)


@pytest.mark.parametrize(
    ("destinations", "role", "tables"),
    [
        ([ORDERS], Role.ROWS, ["shop.orders"]),
        ([ORDERS], Role.DEAD_LETTERS, []),
        ([ORDERS, DEAD], Role.ROWS, ["shop.orders"]),
        ([ORDERS, DEAD], Role.DEAD_LETTERS, ["shop.dead"]),
        ([ORDERS, AUDIT, DEAD], Role.ROWS, ["shop.orders", "shop.audit"]),
    ],
)
def test_a_batch_goes_whole_to_each_table_of_its_role(
    destinations: list[Destination], role: Role, tables: list[str]
) -> None:
    batch = object()
    assert list(route(destinations, role, batch)) == [(table, batch) for table in tables]


@pytest.mark.parametrize(
    ("table", "role"),
    [("shop.orders", Role.ROWS), ("shop.dead", Role.DEAD_LETTERS), ("shop.dropped", Role.DEAD_LETTERS)],
)
def test_the_role_of_a_table(table: str, role: Role) -> None:
    assert role_of([ORDERS, DEAD], table) is role
