# SPDX-License-Identifier: Apache-2.0
"""The metrics of landings: every name there is, and what is sent of a plan, a commit, a run, a guard.

Contract: pure. :data:`METRICS` is the only place where a name stands; the documentation is made from it, and the board
and the alert rules are held against it. A sample is a metric, a value and the values of its tags in their order.

Invariants: counters only ever grow, by what one task did; a task that is tried again counts what it did again. Numbers
are offsets or records where not said otherwise. Gauges that are times are seconds, so that a board needs no unit of
one backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_lakecommit.core import LIVE

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle import Closed, Opened

__all__ = [
    "COMMIT_FAILURES",
    "METRICS",
    "RUNS",
    "STALLED",
    "Metric",
    "Sample",
    "closed_samples",
    "name_without_tags",
    "opened_samples",
    "prometheus_name",
]

PREFIX = "airflow"
"""What Airflow puts before every name by default (`[metrics] statsd_prefix`, `otel_prefix`)."""


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
    "Offsets that can be read and are not in the tables: by the plan those that it reads and those that it leaves, by "
    "the commit those that were left. Of a window that is not wholly published the commit sends none",
)
PLANNED = Metric("lakecommit.planned", "counter", ("landing",), "plan", "Offsets that were planned")
DEFERRED = Metric(
    "lakecommit.deferred",
    "gauge",
    ("landing",),
    "plan",
    "1 while no window is planned because commits do not keep up, and runs only drain; else 0",
)
CYCLES = Metric("lakecommit.cycles", "counter", ("landing",), "commit", "Commit cycles that were closed")
COMMIT_FAILURES = Metric(
    "lakecommit.commit_failures", "counter", ("landing",), "commit", "Attempts to commit that failed"
)
ROWS = Metric("lakecommit.rows", "counter", ("landing", "table"), "commit", "Rows that were published in a table")
FILES = Metric("lakecommit.files", "counter", ("landing", "table"), "commit", "Data files that were published")
REJECTS = Metric("lakecommit.rejects", "counter", ("landing",), "commit", "Source records that were rejected")
WAITING = Metric(
    "lakecommit.waiting", "gauge", ("landing",), "commit", "Slices that are written and wait to be published"
)
MISSING = Metric("lakecommit.missing", "gauge", ("landing",), "commit", "Slices of the run that have to be read again")
BLOCKED = Metric("lakecommit.blocked", "gauge", ("landing",), "commit", "Offset ranges that need a person")
VALID_THROUGH = Metric(
    "lakecommit.valid_through",
    "gauge",
    ("landing",),
    "commit",
    "Unix time: what could be read then is in all tables. Its distance from now is the age of the data, which grows by "
    "itself while nothing is sent",
)
COMMIT_SECONDS = Metric("lakecommit.commit_seconds", "gauge", ("landing",), "commit", "How long the commit took")
RUNS = Metric(
    "lakecommit.runs",
    "counter",
    ("landing", "verdict"),
    "outcome",
    "Runs by how they ended: `success`, `skipped`, `failed`",
)
STALLED = Metric(
    "lakecommit.stalled",
    "gauge",
    ("group",),
    "StalledCommitSensor",
    "1 if a look of the sensor held its run, else 0; by control group id (`lakecommit-<landing>`, or a connector's)",
)

METRICS = (
    LAG,
    PLANNED,
    DEFERRED,
    CYCLES,
    COMMIT_FAILURES,
    ROWS,
    FILES,
    REJECTS,
    WAITING,
    MISSING,
    BLOCKED,
    VALID_THROUGH,
    COMMIT_SECONDS,
    RUNS,
    STALLED,
)
"""All of them."""


def opened_samples(opened: Opened) -> Iterator[Sample]:
    """Of a cycle that was opened or continued; none of one that was over. How far a landing is behind is told by its
    live lane alone.
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
    """Of a cycle that was closed; none of one that had been before.

    :param name: of the landing
    :param seconds: that closing it took
    :param lane: that it is of
    """
    if closed.finished:
        return
    landing = (name,)
    yield Sample(CYCLES, 1, landing)
    for table in dict.fromkeys(p.table for p in closed.published):
        mine = [p for p in closed.published if p.table == table]
        yield Sample(ROWS, sum(p.rows for p in mine), (name, table))
        yield Sample(FILES, sum(p.files for p in mine), (name, table))
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
    """The name for a backend that has no tags: their values follow it, each as one part."""
    return ".".join([sample.metric.name, *(_part(value) for value in sample.tags)])


def prometheus_name(metric: Metric, prefix: str = PREFIX) -> str:
    """The name that an OpenTelemetry collector, or statsd_exporter with our mapping, gives it in Prometheus."""
    return f"{prefix}_{metric.name.replace('.', '_')}" + ("_total" if metric.kind == "counter" else "")


def _part(value: str) -> str:
    known = "".join(c if c.isascii() and (c.isalnum() or c in "_-.") else "_" for c in value)
    return known.replace(".", "__") or "_"
