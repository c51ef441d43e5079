# SPDX-License-Identifier: Apache-2.0
"""The Spark side: one task through the landing's engine, and its environment compared with this host.

Contract: one tiny job; a session that was started for it ends with it. The storage of each table is tried with the
settings of a landing's tasks, including those that the catalog vends. Through Spark Connect they would travel in the
job's plan, so the storage is tried there only if they have no secret.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_lakecommit.spark import local_view
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, fail, ok, warn

CLOCK_SECONDS = 5.0
_OURS = "airflow-provider-lakecommit"
_MUST_MATCH = (_OURS, "pyspark")


def executor(look: Mapping[str, Any], began: float, *, tried: bool) -> Iterable[CheckResult]:
    """Compare the report of a task with this host.

    :param began: this host's clock when the job was started
    :param tried: whether the storage was tried
    """
    yield ok("executor", f"a task ran on {look['host']}")
    yield from compared(look["versions"], local_view()["versions"])
    # The task read its clock at some time between start and now.
    ahead, behind = look["time"] - time.time(), began - look["time"]
    apart = max(ahead, behind, 0.0)
    if apart > CLOCK_SECONDS:
        yield warn(
            "executor clock", f"at least {apart:.0f} s {'ahead' if ahead > 0 else 'behind'}", "synchronise the clocks"
        )
    else:
        yield ok("executor clock", "agrees with the one here")
    if look["storage"]:
        yield fail("executor storage", look["storage"], "let executors write, read and delete in the table location")
    elif tried:
        yield ok("executor storage", "a file was written, read and deleted from a task")
    else:
        yield warn("executor storage", "not tried", "tried as soon as the table exists and its settings can be sent")


def compared(there: Mapping[str, str], here: Mapping[str, str]) -> Iterable[CheckResult]:
    """Compare libraries of a task with this host's. This package need not be installed there: each job brings it."""
    brought = {_OURS: "not installed"}.items()
    differ = {name: found for name, found in there.items() if found != here.get(name) and (name, found) not in brought}
    for name, found in sorted(differ.items()):
        seen = f"{name} {found} there, {here.get(name)} here"
        if found == "not installed" or name in _MUST_MATCH:
            yield fail("executor libraries", seen, f"install {name} {here.get(name)} where Spark's Python workers run")
        else:
            yield warn("executor libraries", seen, "use the same environment on both sides")
    if not differ:
        yield ok("executor libraries", ", ".join(f"{name} {found}" for name, found in there.items()))
