# SPDX-License-Identifier: Apache-2.0
"""Which rights a role lacks, and that the documentation has the same table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # public, and exported without saying so

from airflow_provider_lakecommit.status.doctor.finding import CheckResult, Level
from airflow_provider_lakecommit.status.doctor.roles import LANDING_ROLES, NEEDS, SETTINGS, Role, role_findings

READ, WRITE, DESCRIBE, CONFIGS = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
)
EVERYTHING = frozenset({READ, WRITE, DESCRIBE, CONFIGS})
PAGE = Path(__file__).parents[4] / "docs" / "operate" / "security.rst"


def granted(sources: Any = None, on_control: Any = EVERYTHING, ids: bool | None = True) -> dict[str, Any]:
    topics = {**({"orders": EVERYTHING} if sources is None else sources), "control": on_control}
    return {"topics": topics, "control": "control", "prefix": "lakecommit-orders-", "ids": ids}


def found(rights: dict[str, Any], *roles: Role) -> dict[str, CheckResult]:
    return {f.check: f for f in role_findings(roles or LANDING_ROLES, **rights)}


def test_who_has_all_rights_has_those_of_every_role() -> None:
    assert {check: f.observed for check, f in found(granted()).items()} == {f"role {r}": "has its rights" for r in Role}


def test_what_a_role_lacks_is_reported_by_resource_with_what_grants_it() -> None:
    rights = granted(sources={"orders": frozenset({DESCRIBE}), "returns": frozenset()}, ids=False)
    plan = found(rights)["role plan"]
    assert plan.level is Level.FAIL
    assert plan.observed == (
        "lacks READ on topic orders; READ, DESCRIBE on topic returns; WRITE, DESCRIBE on transactional ids "
        "lakecommit-orders-"
    )
    assert "--topic orders --operation READ; --topic returns --operation READ --operation DESCRIBE; " in plan.remedy
    assert "--transactional-id lakecommit-orders- --resource-pattern-type prefixed --operation WRITE" in plan.remedy


@pytest.mark.parametrize("role", list(Role))
def test_only_what_the_connection_is_for_fails(role: Role) -> None:
    rights = granted(sources={"orders": frozenset()}, on_control=frozenset({READ, DESCRIBE}), ids=False)
    levels = {check: f.level for check, f in found(rights, role).items()}
    fails = [] if role is Role.SENSOR else [f"role {role}"]
    assert [check for check, level in levels.items() if level is Level.FAIL] == fails
    assert next(iter(levels)) == f"role {role}"


@pytest.mark.parametrize("role", [r for r in Role if "source" in NEEDS[r]])
def test_each_operation_of_a_role_is_missed(role: Role) -> None:
    for operation in NEEDS[role]["source"]:
        assert f"{operation.name} on topic orders" in text_of(role, sources={"orders": EVERYTHING - {operation}})
    for operation in NEEDS[role]["control"]:
        assert f"{operation.name} on topic control" in text_of(role, on_control=EVERYTHING - {operation})


def text_of(role: Role, **changes: Any) -> str:
    found_ = found(granted(**changes), role)[f"role {role}"]
    assert found_.level is Level.FAIL
    return found_.observed


def test_settings_that_may_not_be_read_are_a_warning_for_those_who_check_them() -> None:
    rights = granted(sources={"orders": EVERYTHING - {CONFIGS}}, on_control=EVERYTHING - {CONFIGS})
    results = found(rights)
    assert results["role plan"].level is results["role commit"].level is Level.WARN
    both = "lacks DESCRIBE_CONFIGS on topic orders; DESCRIBE_CONFIGS on topic control"
    assert results["role plan"].observed.startswith(both)
    assert results["role write"].level is results["role sensor"].level is Level.OK


def test_nothing_is_reported_as_lacking_for_what_does_not_exist() -> None:
    results = found(granted(sources={"orders": None}, on_control=None, ids=None))
    assert {f.level for f in results.values()} == {Level.OK}
    assert results["role write"].observed == "has its rights on topics"


def rows_of_the_page() -> list[tuple[str, str, str]]:
    """Role, resource and operations of the table, a role named once for its rows."""
    table = PAGE.read_text().partition(".. list-table::")[2].partition(".. code-block::")[0]
    cells = [re.sub(r"\s+", " ", c).strip() for c in re.split(r"\n   \* - ?|\n     - ", table)[1:]]
    rows = [cells[i : i + 4] for i in range(0, len(cells), 4)][1:]
    out: list[tuple[str, str, str]] = []
    for role, resource, _, operations in rows:
        out.append((role or out[-1][0], resource, operations))
    return out


def test_the_documentation_has_the_same_table() -> None:
    names = {"plan": Role.PLAN, "write (Spark's tasks)": Role.WRITE, "commit": Role.COMMIT}
    needed: dict[tuple[Role, str], tuple[set[str], bool]] = {}
    for role, resource, operations in rows_of_the_page():
        firmly, _, where_it_may = operations.partition(";")
        kind = "source" if "source" in resource else "control" if "control" in resource else "ids"
        needed[names.get(role, Role.SENSOR), kind] = (set(firmly.split(", ")), "DESCRIBE_CONFIGS" in where_it_may)
    documented: dict[tuple[Role, str], tuple[set[str], bool]] = {}
    for role, needs in NEEDS.items():
        for kind, operations in needs.items():
            documented[role, kind] = ({o.name for o in operations}, kind in SETTINGS.get(role, ()))
    assert needed == documented
