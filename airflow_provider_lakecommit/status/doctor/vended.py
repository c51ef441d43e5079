# SPDX-License-Identifier: Apache-2.0
"""Storage properties that a catalog hands out with a table: which, for how long, and whether tasks can use them.

Contract: names are shown, never values. A table with which nothing is handed out has no finding.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.cycle import LEAST_SECONDS
from airflow_provider_lakecommit.iceberg import TableStorage, clock
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, fail, ok, warn

__all__ = ["SHORT_SECONDS", "vended"]

SHORT_SECONDS = 900.0
"""Credentials that hold for less are likely to expire while a window is written."""
_LONGER = "have the catalog hand out credentials that hold as long as a window takes to write"


def vended(storage: TableStorage, name: str, now: float) -> Iterable[CheckResult]:
    """What is handed out with a table.

    :param now: seconds since the epoch
    """
    check = f"credentials of {name}"
    if storage.signed:
        yield warn(
            check,
            "the catalog hands out no keys and wants to sign each request, which Spark's tasks cannot ask it for",
            "have it hand out credentials (X-Iceberg-Access-Delegation: vended-credentials); else the tasks use the "
            "connection's, or the identity of their machine",
        )
    if not storage.handed_out:
        return
    seen = f"handed out by the catalog: {', '.join(storage.handed_out)}"
    left = storage.left(now)
    if left is None or storage.expires_at is None:
        yield ok(check, f"{seen}; it does not tell until when they hold")
        return
    seen = f"{seen}; they hold for {left:.0f} s, until {clock(storage.expires_at)}"
    if left < LEAST_SECONDS:
        yield fail(check, seen, f"{_LONGER}, and see that its clock and the one here agree")
    elif left < SHORT_SECONDS:
        yield warn(check, seen, _LONGER)
    else:
        yield ok(check, seen)
