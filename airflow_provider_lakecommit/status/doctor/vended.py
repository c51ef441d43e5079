# SPDX-License-Identifier: Apache-2.0
"""Storage properties that a catalog vends with a table: which, for how long, and whether tasks can use them.

Contract: shows names, never values. A table without vended properties has no finding.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.cycle import LEAST_SECONDS
from airflow_provider_lakecommit.iceberg import TableStorage, clock
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, fail, ok, warn

SHORT_SECONDS = 900.0
"""Credentials with a shorter lifetime are likely to expire while a window is written."""
_LONGER = "configure the catalog to vend credentials that last as long as writing a window"


def vended(storage: TableStorage, name: str, now: float) -> Iterable[CheckResult]:
    """Return the findings on the vended properties of a table.

    :param now: seconds since the epoch
    """
    check = f"credentials of {name}"
    if storage.signed:
        yield warn(
            check,
            "the catalog vends no keys and wants to sign each request, which Spark's tasks cannot do",
            "configure it to vend credentials (X-Iceberg-Access-Delegation: vended-credentials); otherwise tasks use "
            "the connection's, or the identity of their machine",
        )
    if not storage.handed_out:
        return
    seen = f"vended by the catalog: {', '.join(storage.handed_out)}"
    left = storage.left(now)
    if left is None or storage.expires_at is None:
        yield ok(check, f"{seen}; the catalog does not report when they expire")
        return
    seen = f"{seen}; they expire in {left:.0f} s, at {clock(storage.expires_at)}"
    if left < LEAST_SECONDS:
        yield fail(check, seen, f"{_LONGER}, and check that its clock and the one here agree")
    elif left < SHORT_SECONDS:
        yield warn(check, seen, _LONGER)
    else:
        yield ok(check, seen)
