# SPDX-License-Identifier: Apache-2.0
"""The option ``publish.checks`` of a landing: what new rows must pass before ``main`` is moved to them.

Contract: pure. A check is stated as a text (SQL, or a ``module.function``) or as a mapping, and is a :class:`RowCheck`
once read. SQL that cannot be parsed, and functions that cannot be imported, are found when the check runs first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_provider_lakecommit.landing.names import WITH_MODULE, meant
from airflow_provider_lakecommit.landing.route import routed_tables

KEYS = ("name", "sql", "function", "table")
_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCheck:
    """One check of the new rows of ``table``, by ``sql`` or by a ``function`` (its ``module.function``)."""

    name: str
    table: str
    sql: str = ""
    function: str = ""


def check_row_checks(v: Any) -> str | None:
    if not isinstance(v, tuple):
        return f"{v!r} is not a list of checks [LC1350]"
    return next(filter(None, (_wrong(n, each) for n, each in enumerate(v, 1))), None)


def _wrong(number: int, check: Any) -> str | None:
    if isinstance(check, str) and check.strip():
        return None
    if not isinstance(check, Mapping):
        return f"check {number} is {check!r}: use SQL, module.function, or a mapping of {', '.join(KEYS)} [LC1351]"
    if unknown := [k for k in check if k not in KEYS]:
        return f"check {number} has an unknown key {unknown[0]!r}{meant(str(unknown[0]), KEYS)} [LC1352]"
    if wrong := [k for k, value in check.items() if not (isinstance(value, str) and value.strip())]:
        return f"check {number}: {wrong[0]} is {check[wrong[0]]!r}, not a text [LC1353]"
    if ("sql" in check) == ("function" in check):
        return f"check {number} needs either `sql` or `function` [LC1354]"
    if "function" in check and not WITH_MODULE.fullmatch(check["function"]):
        return f"check {number}: function {check['function']!r} is not a module.function [LC1355]"
    return None


def wrong_with_row_checks(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mistakes of valid checks together with other options."""
    checks = values.get("checks") or ()
    if not checks or check_row_checks(checks):
        return
    if values.get("branch") == "main":
        yield (
            "publish.branch: windows with `publish.checks` land on a branch of their own, from which `main` is moved: "
            "leave it out (audit), or name another than main [LC1356]"
        )
    read = checks_of(checks, str(values.get("table")))
    names = [c.name for c in read]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        yield f"publish.checks: several are named {twice[0]!r}: give each a `name` of its own [LC1357]"
    tables = {*routed_tables(str(values.get("table")), values.get("route")), values.get("dead_letter_table")}
    for check in read:
        if check.table not in tables:
            yield f"publish.checks: {check.name} is of table {check.table}, which the landing does not have [LC1358]"


def checks_of(stated: Sequence[str | Mapping[str, Any]], table: str) -> tuple[RowCheck, ...]:
    """Return the checks, of the leading table where they name none."""
    checks = []
    for each in stated:
        if isinstance(each, str):
            each = {"function" if WITH_MODULE.fullmatch(each.strip()) else "sql": each.strip()}
        text = " ".join(str(each.get("sql") or each["function"]).split())
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        checks.append(RowCheck(**{"name": shown, "table": table, **each}))
    return tuple(checks)
