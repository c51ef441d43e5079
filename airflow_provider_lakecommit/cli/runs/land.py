# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land`: the cycles of one run in one process, until the landing is caught up.

With `--json` each closed cycle is one JSON line on standard output; its rows are then committed. Caught up means that
everything up to the last stable offset of the newest plan is in the tables. With ``follow`` the run then waits for the
next window, and logs one line per interval.

A stopped run stops its tasks at the current record and publishes what they have read; a second signal ends it at once.
A killed run needs no clean-up: the next one on this host ends its claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any
from uuid import uuid4

from airflow_provider_lakecommit.cli.runs.process import identity, is_dead
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.cli.terminal.stop import Signals, Stopped
from airflow_provider_lakecommit.core import Coverage, short_number
from airflow_provider_lakecommit.core.formatting import duration_text
from airflow_provider_lakecommit.cycle import (
    CycleOutcome,
    Follow,
    FollowOptions,
    LandingRunner,
    LandingSession,
    Progress,
    RunOutcome,
    Total,
    WindowLog,
    in_thread,
    runner_of,
)
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.landing import LandingSetSpec, LandingSpec
from airflow_provider_lakecommit.operations import RunCompaction
from airflow_provider_lakecommit.spark import QUIET, Engine, SparkSection, engine_of
from airflow_provider_lakecommit.telemetry import closed_samples, opened_samples, start_for_commands

Within = Callable[[LandingSession], AbstractContextManager[LandingSession | None]]
GRACE_SECONDS = 20.0
"""Time for a stopped run's tasks to report."""
PUBLISH_SECONDS = 30.0


def land(
    spec: LandingSpec,
    output: Output,
    *,
    cycles: int | None,
    follow: FollowOptions | None = None,
    within: Within = nullcontext,
) -> int:
    """Land until caught up, for *cycles* cycles, or continuously.

    :param within: maps the landing's session to the one to use; ``None``: there is nothing to do
    """
    section, unique = spark_section(spec, follow, output), uuid4()
    log = WindowLog(output.log)
    with (
        Signals() as signals,
        LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=log) as connected,
        within(connected) as session,
        ExitStack() as stack,
    ):
        if session is None:
            return Exit.DONE
        engine = engine_of(section, spec.landing.name, log=log, on_start=lambda: None, lane=session.lane)
        runner = runner_of(
            session,
            engine,
            partial(identity, unique),
            follow,
            log,
            release=is_dead,
            early=section.is_warm,
            progress=progress_on(output, spec.landing.name),
            maintain=stack.enter_context(RunCompaction(session, log.write)).begin,
        )
        try:
            # Not in the thread that signals interrupt, so a signal costs no work in progress.
            landing = in_thread(lambda: land_cycles(runner, spec, output, log, cycles, live=True), "landing")
            code = landing.result()
            signals.check()
            return code
        except Stopped as stop:
            log.quiet = False
            _end_early(landing, runner, engine, output, stop)
            return stop.code
        finally:
            engine.close()


def _end_early(
    landing: Future[int], runner: LandingRunner | Follow, engine: Engine, output: Output, stop: Stopped
) -> None:
    """Let a stopped run publish what it has read, if it has opened something."""
    waits = runner.under_way and not landing.done()
    how = f": publishing what is read, within {GRACE_SECONDS:.0f} s; a second signal ends it at once" if waits else ""
    output.log(f"stopped by {stop}{how}")
    runner.stop(f"stopped by {stop}", GRACE_SECONDS)
    try:
        if waits:
            landing.result(GRACE_SECONDS + PUBLISH_SECONDS)
            return
    except LakecommitError as e:
        output.log(str(e))
        return
    except TimeoutError:
        output.log("publishing takes too long, the next run does it")
    engine.stop()
    runner.report_interrupted()


def spark_section(spec: LandingSpec | LandingSetSpec, follow: FollowOptions | None, output: Output) -> SparkSection:
    """Return the section `spark`. Tasks do not log each slice in continuous mode or into a terminal's progress line."""
    section = SparkSection(spec.spark)
    if follow is not None or output.at_terminal:
        section.conf.setdefault(f"spark.executorEnv.{QUIET}", "1")
    return section


def progress_on(output: Output, name: str) -> tuple[Callable[[Progress], None], float] | None:
    """Return the live progress line on a terminal; otherwise the log reports progress."""
    return (lambda progress: output.live(bar(name, progress)), BAR_SECONDS) if output.at_terminal else None


def land_cycles(
    runner: LandingRunner | Follow,
    spec: LandingSpec,
    output: Output,
    log: Callable[[str], None],
    cycles: int | None,
    *,
    live: bool = False,
) -> int:
    """Land the cycles of one landing, show each closed one, and return the exit code.

    It is a refusal, too, if the last cycle planned no window although there was something to read.
    """
    total = Total(landing=spec.landing.name)
    send = start_for_commands()
    for outcome in runner.cycles(most=cycles):
        send(opened_samples(outcome.opened))
        send(closed_samples(spec.landing.name, outcome.closed, outcome.seconds.get("close", 0.0), outcome.lane))
        if live:
            output.live("")
        if output.as_json:
            output.result({"landing": spec.landing.name, **line_of(outcome, spec.landing.data_tables)})
        log(str(outcome))
        for warning in outcome.closed.warnings:
            log(f"  WARNING: {warning}")
        total.add(outcome)
    ended = total.ended()
    for line in how_to_query(ended, spec, runner.tables) if live else ():
        log(line)
    log(str(ended))
    return Exit.REFUSED if ended.closed.blocked or ended.closed.stopped or ended.refused else Exit.DONE


def how_to_query(ended: RunOutcome, spec: LandingSpec, tables: Tables) -> Iterator[str]:
    """Yield how to read the landed rows: the newest snapshot, by any engine."""
    mine = [p for p in ended.published if p.table == spec.landing.table]
    found = tables.find(spec.landing.table) if mine else None
    if found is None:
        return
    kind, address = spec.catalog.get("type", "rest"), spec.catalog.get("uri", "")
    yield f"query {mine[-1].table}, snapshot {mine[-1].snapshot_id}, in catalog {tables.name} ({kind} {address}):"
    yield f"  Spark, Trino   SELECT * FROM {tables.name}.{mine[-1].table} FOR VERSION AS OF {mine[-1].snapshot_id}"
    yield f"  DuckDB         SELECT * FROM iceberg_scan('{found.metadata_location}')"
    yield f"  Python         catalog.load_table('{mine[-1].table}').scan(snapshot_id={mine[-1].snapshot_id}).to_arrow()"


def line_of(outcome: CycleOutcome, data_tables: Sequence[str]) -> dict[str, Any]:
    """Return a cycle as its line on standard output: counts and offsets are those of the data table."""
    run = RunOutcome.of("", [outcome])
    covered, counts = run.of_table(run.furthest(data_tables))
    plan, slices = outcome.opened.plan, outcome.opened.slices
    return {
        "cycle": outcome.number,
        **outcome.closed.to_dict(),
        "counts": counts.to_dict(),
        "offsets": covered.to_dict(),
        "window": {
            "window_id": str(plan.window_id),
            "slices": len(slices),
            "offsets": Coverage.of((s.partition, s.range) for each in slices for s in each.spans).to_dict(),
        },
        "slices": dict(outcome.written.slices),
        "held": plan.reason if outcome.deferred else None,
        "trouble": list(outcome.written.trouble),
        "seconds": {step: round(seconds, 3) for step, seconds in outcome.seconds.items()},
    }


BAR_SECONDS = 1.0
"""Time between two reads of the control topic."""
WIDTH = 24


def bar(name: str, progress: Progress) -> str:
    share = progress.records / progress.all_records if progress.all_records else 0.0
    full = int(share * WIDTH)
    parts = [
        f"{progress.slices}/{progress.all_slices} slices",
        f"{short_number(progress.records)} of {short_number(progress.all_records)} records",
    ]
    if progress.running is not None:
        parts.append(f"{progress.running} tasks")
    if progress.trouble:
        parts.append(f"{progress.seconds:.0f} s, no answer from the control topic")
    elif progress.left is None:
        parts.append(f"{progress.seconds:.0f} s")
    else:
        parts += [f"{short_number(progress.rate)}/s", f"{duration_text(progress.left)} left"]
    return f"{name} {'█' * full}{'░' * (WIDTH - full)} {share:4.0%}  {' · '.join(parts)}"
