# SPDX-License-Identifier: Apache-2.0
"""What `publish.checks` may say."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing, RowCheck

LEAST: dict[str, Any] = {"name": "orders", "topics": "orders", "table": "shop.orders"}
SQL = "SELECT * FROM added_rows WHERE amount < 0"


def checks_of(*checks: Any) -> tuple[RowCheck, ...]:
    return Landing(**LEAST, publish={"checks": [*checks]}).checks


def test_a_check_is_sql_a_function_or_a_mapping() -> None:
    long = f"{SQL}\n  AND customer IS NOT NULL AND country IS NOT NULL"
    assert checks_of(
        SQL, "shop.checks.totals", {"name": "few", "function": "shop.few", "table": "shop.orders"}, long
    ) == (
        RowCheck(name=SQL, table="shop.orders", sql=SQL),
        RowCheck(name="shop.checks.totals", table="shop.orders", function="shop.checks.totals"),
        RowCheck(name="few", table="shop.orders", function="shop.few"),
        RowCheck(name="SELECT * FROM added_rows WHERE amount < 0 AND customer IS N…", table="shop.orders", sql=long),
    )


@pytest.mark.parametrize(
    ("publish", "code"),
    [
        ({"checks": SQL}, "LC1350"),
        ({"checks": [7]}, "LC1351"),
        ({"checks": [""]}, "LC1351"),
        ({"checks": [{"sq": SQL}]}, "LC1352"),
        ({"checks": [{"sql": " "}]}, "LC1353"),
        ({"checks": [{"name": "none"}]}, "LC1354"),
        ({"checks": [{"sql": SQL, "function": "a.b"}]}, "LC1354"),
        ({"checks": [{"function": "totals"}]}, "LC1355"),
        ({"checks": [SQL], "branch": "main"}, "LC1356"),
        ({"checks": [SQL, SQL]}, "LC1357"),
        ({"checks": [{"sql": SQL, "table": "shop.other"}]}, "LC1358"),
        ({"branch": ""}, "LC1116"),
        ({"check": [SQL]}, "LC1150"),
    ],
)
def test_a_mistake_has_its_code(publish: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError, match=code):
        Landing(**LEAST, publish=publish)


def test_a_check_may_be_of_the_dead_letters_or_of_a_route() -> None:
    route = {"field": "kind", "tables": {"refund": "shop.refunds", "order": "shop.orders"}}
    for table in ("shop.dead", "shop.refunds"):
        check = {"sql": SQL, "table": table}
        made = Landing(**LEAST, route=route, dead_letter_table="shop.dead", publish={"checks": [check]})
        assert [c.table for c in made.checks] == [table]


def test_the_branch_follows_from_the_checks() -> None:
    assert Landing(**LEAST).branch == "main"
    audited = Landing(**LEAST, publish={"checks": [SQL]})
    assert audited.branch == "audit"
    assert audited.changed(publish={"branch": "trial"}).branch == "trial"
    assert Landing.from_flat(audited.to_flat()) == audited == Landing.from_dict(audited.to_dict())
    assert audited.spec_version == Landing(**LEAST).spec_version, "checks change no row"


def test_the_former_key_of_the_branch_is_reported() -> None:
    with pytest.raises(SpecError, match="LC1125") as refused:
        Landing(**LEAST, branch="audit")
    assert "publish: branch" in str(refused.value)
