# SPDX-License-Identifier: Apache-2.0
"""The metrics of landings: all names, and the samples of a plan, a commit, a run, a guard.

Contract: pure. :data:`METRICS` is the only place that defines a name; the documentation is generated from it, and the
dashboard and the alert rules are checked against it. A sample is a metric, a value and the values of its tags in order.

Invariants: counters only grow, by the work of one task; a retried task counts repeated work again. Numbers are offsets
or records unless stated otherwise. Gauges of times are in seconds, so a dashboard needs no backend-specific unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_lakecommit.core import LIVE

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle import Closed, Opened

PREFIX = "airflow"
"""Airflow's default prefix of every name (`[metrics] statsd_prefix`, `otel_prefix`)."""


class Metric(NamedTuple):
    """One name. ``kind`` is ``counter`` or ``gauge``, ``sent_by`` are the tasks that send it."""

    name: str
    kind: str
    tags: tuple[str, ...]
    sent_by: str
    text: str


class Sample(NamedTuple):
    """One value, with the values of the metric's tags."""

    metric: Metric
    value: float
    tags: tuple[str, ...]


LAG = Metric(
    "lakecommit.lag",
    "gauge",
    ("landing",),
    "plan, commit",
    "Readable offsets that are not in the tables: the plan sends those that it reads or leaves, the commit those that "
    "were left. The commit sends none for a window that is not completely published",
)
PLANNED = Metric("lakecommit.planned", "counter", ("landing",), "plan", "Planned offsets")
DEFERRED = Metric(
    "lakecommit.deferred",
    "gauge",
    ("landing",),
    "plan",
    "1 while no window is planned because commits are too slow or a table needs compaction; otherwise 0",
)
CYCLES = Metric("lakecommit.cycles", "counter", ("landing",), "commit", "Closed commit cycles")
COMMIT_FAILURES = Metric("lakecommit.commit_failures", "counter", ("landing",), "commit", "Failed attempts to commit")
ROWS = Metric("lakecommit.rows", "counter", ("landing", "table"), "commit", "Rows published in a table")
FILES = Metric("lakecommit.files", "counter", ("landing", "table"), "commit", "Published data files")
DEBT = Metric(
    "lakecommit.debt",
    "gauge",
    ("landing", "table"),
    "commit",
    "How much a table needs compaction, as a share of its limit: from 1 on `status` warns, at 2 no window is planned",
)
REJECTS = Metric("lakecommit.rejects", "counter", ("landing",), "commit", "Rejected source records")
WAITING = Metric("lakecommit.waiting", "gauge", ("landing",), "commit", "Written slices that wait to be published")
MISSING = Metric("lakecommit.missing", "gauge", ("landing",), "commit", "Slices of the run that must be read again")
BLOCKED = Metric("lakecommit.blocked", "gauge", ("landing",), "commit", "Offset ranges that need a decision")
VALID_THROUGH = Metric(
    "lakecommit.valid_through",
    "gauge",
    ("landing",),
    "commit",
    "Unix time: everything readable at that time is in all tables. Its distance from now is the age of the data, which "
    "keeps growing while nothing is sent",
)
COMMIT_SECONDS = Metric("lakecommit.commit_seconds", "gauge", ("landing",), "commit", "Duration of the commit")
RUNS = Metric(
    "lakecommit.runs", "counter", ("landing", "verdict"), "outcome", "Runs by result: `success`, `skipped`, `failed`"
)
STALLED = Metric(
    "lakecommit.stalled",
    "gauge",
    ("group",),
    "StalledCommitSensor",
    "1 if the sensor held its run, otherwise 0; by control group id (`lakecommit-<landing>`, or a connector's)",
)

METRICS = (
    LAG,
    PLANNED,
    DEFERRED,
    CYCLES,
    COMMIT_FAILURES,
    ROWS,
    FILES,
    DEBT,
    REJECTS,
    WAITING,
    MISSING,
    BLOCKED,
    VALID_THROUGH,
    COMMIT_SECONDS,
    RUNS,
    STALLED,
)
"""All metrics."""


def opened_samples(opened: Opened) -> Iterator[Sample]:
    """Yield the samples of a cycle that was opened or continued; none for a finished one. Only the live stream reports
    how far a landing is behind.
    """
    if opened.finished:
        return
    landing = (opened.ticket.landing,)
    records = sum(len(s) for s in opened.slices)
    yield Sample(PLANNED, records, landing)
    if opened.ticket.lane != LIVE:
        return
    yield Sample(LAG, records + opened.plan.left, landing)
    yield Sample(DEFERRED, int(opened.plan.deferred), landing)


def closed_samples(name: str, closed: Closed, seconds: float, lane: str = LIVE) -> Iterator[Sample]:
    """Yield the samples of a cycle that was closed now; none if it was closed before.

    :param name: of the landing
    :param seconds: duration of closing it
    :param lane: its stream
    """
    if closed.finished:
        return
    landing = (name,)
    yield Sample(CYCLES, 1, landing)
    for table in dict.fromkeys(p.table for p in closed.published):
        mine = [p for p in closed.published if p.table == table]
        yield Sample(ROWS, sum(p.rows for p in mine), (name, table))
        yield Sample(FILES, sum(p.files for p in mine), (name, table))
        yield from (Sample(DEBT, round(p.debt.share, 3), (name, table)) for p in mine[-1:] if p.debt is not None)
    if rejected := sum(closed.rejects.values()):
        yield Sample(REJECTS, rejected, landing)
    if lane != LIVE:
        return
    yield Sample(COMMIT_SECONDS, seconds, landing)
    yield Sample(WAITING, len(closed.waiting), landing)
    yield Sample(MISSING, len(closed.missing), landing)
    yield Sample(BLOCKED, len(closed.blocked), landing)
    if closed.valid_through is not None:
        yield Sample(VALID_THROUGH, closed.valid_through.timestamp(), landing)
    if not (closed.missing or closed.waiting or closed.voided):
        yield Sample(LAG, closed.left, landing)


def name_without_tags(sample: Sample) -> str:
    """Return the name for a backend without tags: their values follow it, each as one part."""
    return ".".join([sample.metric.name, *(_part(value) for value in sample.tags)])


def prometheus_name(metric: Metric, prefix: str = PREFIX) -> str:
    """Return the name in Prometheus by an OpenTelemetry collector, or by statsd_exporter with our mapping."""
    return f"{prefix}_{metric.name.replace('.', '_')}" + ("_total" if metric.kind == "counter" else "")


def _part(value: str) -> str:
    known = "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "_" for c in value)
    return known.replace(".", "__") or "_"
