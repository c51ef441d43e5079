# SPDX-License-Identifier: Apache-2.0
"""Checks this host: dependencies, Java and memory; and compares the environment of a Spark task with it.

The required versions come from the metadata of this package's own distribution, so they are stated once. The storage of
each table is tried with the settings of a landing's tasks, including those that the catalog vends. Through Spark
Connect they would travel in the job's plan, so the storage is tried there only if they have no secret.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

import psutil
from confluent_kafka import libversion
from packaging.specifiers import SpecifierSet

from airflow_provider_lakecommit.spark import JAVA_REMEDY, java_here, local_view
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, fail, ok, warn

DISTRIBUTION = "airflow-provider-lakecommit"
_PAIR = ("pyspark", "pyspark-client")
_MUST_MATCH = (DISTRIBUTION, "pyspark")
CLOCK_SECONDS = 5.0


def installed_versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, _ in _needs():
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def versions(installed: Mapping[str, str], python: tuple[int, ...] = sys.version_info[:3]) -> Iterable[CheckResult]:
    """Check Python and every dependency against the versions of this release."""
    text = ".".join(map(str, python))
    if python[:2] >= (3, 11):
        yield ok("python", text)
    else:
        yield fail("python", text, "install 3.11 or later")
    for name, required in _needs():
        found = installed.get(name)
        if found is None:
            yield fail(name, "not installed", f"pip install '{name}{required}'")
        elif not SpecifierSet(required).contains(found, prereleases=True):
            yield fail(name, f"{found}, but {required} is required", f"pip install '{name}{required}'")
        else:
            yield ok(name, found)
    spark = [installed.get(name) for name in _PAIR]
    if len(set(spark)) > 1:
        observed = ", ".join(f"{name} {found}" for name, found in zip(_PAIR, spark, strict=True))
        yield fail(
            "pyspark", f"{observed}: both use the same folder", "install the same release of both, in one command"
        )
    yield ok("librdkafka", str(libversion()[0]))


def java(master: str | None, environment: Mapping[str, str] = os.environ) -> Iterable[CheckResult]:
    """Check the Java that a session of this host would use.

    :param master: of the session; ``None`` for a Spark Connect server, which has its own
    """
    if master is None:
        return
    fits, observed = java_here(environment)
    yield ok("java", observed) if fits else fail("java", observed, JAVA_REMEDY)


def memory(master: str | None, conf: Mapping[str, str], free_kb: int | None = None) -> Iterable[CheckResult]:
    """Check the memory for a local session: the Java heap, and a Python worker of about half a gigabyte per slot."""
    if master is None or not master.startswith("local"):
        return
    slots_text = re.search(r"\[(\d+|\*)", master)
    slots = (os.cpu_count() or 1) if slots_text and slots_text[1] == "*" else int(slots_text[1]) if slots_text else 1
    heap = _gigabytes(conf.get("spark.driver.memory", "1g"))
    free = (psutil.virtual_memory().available / 2**10 if free_kb is None else free_kb) / 2**20
    need = heap + 0.5 * slots
    observed = f"{free:.1f} GB are free; {slots} slots and a Java heap of {heap:.1f} GB take about {need:.1f} GB"
    if free < need:
        yield warn("memory", observed, f'use fewer slots, for example spark: {{master: "local[{max(1, slots // 2)}]"}}')
    else:
        yield ok("memory", observed)


def _needs() -> list[tuple[str, str]]:
    texts = (re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)", t) for t in requires(DISTRIBUTION) or ())
    return [(found[1], found[2].strip()) for found in texts if found]


def _gigabytes(text: str) -> float:
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    sizes = {"k": 2**-20, "m": 2**-10, "g": 1.0, "t": 1024.0, "": 2**-30}
    return int(found[1]) * sizes[found[2]] if found else 1.0


def executor(view: Mapping[str, Any], began: float, *, tried: bool) -> Iterable[CheckResult]:
    """Compare the report of a task with this host; ``began`` is this host's clock at the job's start, ``tried`` whether
    the storage was tried.
    """
    yield ok("executor", f"a task ran on {view['host']}")
    yield from compared(view["versions"], local_view()["versions"])
    # The task read its clock at some time between start and now.
    ahead, behind = view["time"] - time.time(), began - view["time"]
    apart = max(ahead, behind, 0.0)
    if apart > CLOCK_SECONDS:
        yield warn(
            "executor clock", f"at least {apart:.0f} s {'ahead' if ahead > 0 else 'behind'}", "synchronise the clocks"
        )
    else:
        yield ok("executor clock", "agrees with the one here")
    if view["storage"]:
        yield fail("executor storage", view["storage"], "let executors write, read and delete in the table location")
    elif tried:
        yield ok("executor storage", "a file was written, read and deleted from a task")
    else:
        yield warn("executor storage", "not tried", "tried as soon as the table exists and its settings can be sent")


def compared(there: Mapping[str, str], here: Mapping[str, str]) -> Iterable[CheckResult]:
    """Compare libraries of a task with this host's. This package need not be installed there: each job brings it."""
    brought = {DISTRIBUTION: "not installed"}.items()
    differ = {name: found for name, found in there.items() if found != here.get(name) and (name, found) not in brought}
    for name, found in sorted(differ.items()):
        observed = f"{name} {found} there, {here.get(name)} here"
        if found == "not installed" or name in _MUST_MATCH:
            yield fail(
                "executor libraries", observed, f"install {name} {here.get(name)} where Spark's Python workers run"
            )
        else:
            yield warn("executor libraries", observed, "use the same environment on both sides")
    if not differ:
        yield ok("executor libraries", ", ".join(f"{name} {found}" for name, found in there.items()))
