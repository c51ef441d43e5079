# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land`: cycle after cycle in one process, until the landing is caught up.

Contract: one JSON line per closed cycle on standard output, in the order of the cycles; what its tables have then is
in them for good. The groups of a window run side by side in one warm Spark session. Caught up means that everything up
to the last stable offset of the newest plan is in the tables; what arrived later is the next run's.

Failure story: a Spark job that dies loses the slices in hand: its cycle is closed with what was reported, the session
is started anew and the next cycle reads the rest. Cycles in a row that move nothing end the run with the last reason. A
run that is told to stop says what is saved and what will be read again, and publishes nothing more; the next run does.
A killed run needs no clean-up: the next one on this host finds its process gone and ends its claims.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from airflow_provider_lakecommit.cli.output import Exit, Output, offsets
from airflow_provider_lakecommit.cli.process import identity, is_dead
from airflow_provider_lakecommit.cli.session import LocalSpark, SparkSection
from airflow_provider_lakecommit.cli.stop import Signals, Stopped
from airflow_provider_lakecommit.core.model import Counts, Cycle
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.cycle.close import close_cycle
from airflow_provider_lakecommit.cycle.open import open_cycle
from airflow_provider_lakecommit.cycle.results import Closed, GroupResult, GroupTicket, Opened
from airflow_provider_lakecommit.cycle.rim import Rim
from airflow_provider_lakecommit.cycle.write import group_job, group_result
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.spark.job import AGAIN, DONE, Secrets, SliceResult, WindowJob

__all__ = ["MOST_IDLE_CYCLES", "CycleOutcome", "Lander", "land"]

MOST_IDLE_CYCLES = 4
"""Cycles in a row without any progress before a run gives up: one more than it takes to block a range by name."""
PAUSES = (0.5, 2.0, 5.0)
"""Seconds before the next cycle after one, two, more idle cycles whose reason may pass by itself."""
SHOWN = 4
"""Slices that a line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How the write step of a cycle went: slices by how they ended, what kept some from being finished, and which jobs
    died.
    """

    slices: Counter[str] = field(default_factory=Counter)
    unfinished: tuple[str, ...] = ()
    died: tuple[str, ...] = ()

    @property
    def trouble(self) -> tuple[str, ...]:
        return (*self.died, *self.unfinished)

    @property
    def may_pass(self) -> bool:
        """Can it be other next time without anybody's doing?"""
        return bool(self.died or self.slices[AGAIN])


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOutcome:
    """One closed cycle of a run."""

    number: int
    opened: Opened
    written: Written
    closed: Closed
    seconds: dict[str, float]
    released: int = 0

    @property
    def final(self) -> bool:
        """Is there nothing more for this run? Claims that ended with this cycle may be planned by the next."""
        return not self.released and (self.caught_up or not self.opened.slices)

    @property
    def progress(self) -> bool:
        return bool(self.closed.published or self.written.slices[DONE] or self.released)

    @property
    def caught_up(self) -> bool:
        """Is everything that could be read when this cycle was planned in the tables, as far as it depends on us?"""
        all_done = self.written.slices[DONE] == len(self.opened.slices)
        return all_done and not (self.opened.plan.left or self.closed.missing or self.closed.voided)

    def to_dict(self, data_table: str) -> dict[str, Any]:
        mine = [p for p in self.closed.published if p.table == data_table]
        counts = sum((p.counts for p in mine), Counts())
        plan = self.opened.plan
        return {
            "cycle": self.number,
            **self.closed.to_dict(),
            "counts": {name: getattr(counts, name) for name in ("landed", "rejected", "filtered", "gaps", "skipped")},
            "offsets": offsets(Coverage.of(item for p in mine for item in p.coverage.items())),
            "window": {
                "window_id": str(plan.window_id),
                "slices": len(self.opened.slices),
                "offsets": offsets(Coverage.of((s.partition, s.range) for sl in self.opened.slices for s in sl.spans)),
            },
            "slices": dict(self.written.slices),
            "trouble": list(self.written.trouble),
            "seconds": {step: round(seconds, 3) for step, seconds in self.seconds.items()},
        }


class Lander:
    """The cycles of one run."""

    def __init__(self, rim: Rim, spark: LocalSpark, run: UUID, say: Callable[[str], None]) -> None:
        self._rim = rim
        self._spark = spark
        self._run = run
        self._say = say
        self.writing: tuple[GroupTicket, ...] = ()

    def cycle(self, number: int) -> CycleOutcome:
        """Open, write, close.

        :raises LakecommitError: what `open_cycle` and `close_cycle` raise; never for what became of a Spark job
        """
        who, seconds, began = identity(self._run, number), {}, time.monotonic()
        dead: set[UUID] = set()
        opened = open_cycle(self._rim, who, release=lambda cycle: _release(cycle, dead))
        seconds["open"] = time.monotonic() - began
        for commit_id in dead:
            self._say(f"cycle {commit_id} is of a process that is gone: its claims end, what it reported is kept")
        self._tell(number, opened)
        written = self._write(opened, seconds)
        began = time.monotonic()
        closed = close_cycle(self._rim, who, opened.ticket)
        seconds["close"] = time.monotonic() - began
        return CycleOutcome(
            number=number, opened=opened, written=written, closed=closed, seconds=seconds, released=len(dead)
        )

    def _tell(self, number: int, opened: Opened) -> None:
        what = f"cycle {number} ({opened.ticket.commit_id})"
        if not opened.slices:
            self._say(f"{what}: {opened.plan.reason or opened.note or 'nothing was granted'}")
            return
        records = sum(len(s) for s in opened.slices)
        left = f", {opened.plan.left} left for later" if opened.plan.left else ""
        self._say(f"{what}: {records} offsets in {len(opened.slices)} slices, {len(opened.groups)} groups{left}")
        for line in opened.explain:
            self._say(f"  {line}")

    def _write(self, opened: Opened, seconds: dict[str, float]) -> Written:
        if not opened.slices:
            return Written()
        tickets = tuple(opened.groups)
        jobs = [(ticket, self._job(ticket)) for ticket in tickets]
        began = time.monotonic()
        self._spark.start()
        seconds["spark"] = time.monotonic() - began
        began, self.writing = time.monotonic(), tickets
        outcomes = self._run_all([job for _, job in jobs if job is not None])
        self.writing = ()
        seconds["write"] = time.monotonic() - began
        if any(isinstance(o, SparkJobError) for o in outcomes):
            self._say_what_is_safe(tickets)
        return _summary(outcomes)

    def _job(self, ticket: GroupTicket) -> WindowJob | None:
        return group_job(self._rim.landing, self._rim.control, ticket, self._rim.tables.name)

    def _run_all(self, jobs: Sequence[WindowJob]) -> list[list[SliceResult] | SparkJobError]:
        pool = ThreadPoolExecutor(max_workers=max(1, len(jobs)), thread_name_prefix="group")
        try:
            running = [pool.submit(self._spark.run, job) for job in jobs]
            wait(running)
            return [_outcome(each) for each in running]
        except BaseException:
            self._spark.cancel()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _say_what_is_safe(self, tickets: Sequence[GroupTicket]) -> None:
        for ticket in tickets:
            self._say(f"group {ticket.group}: {_safe(group_result(self._rim.landing, self._rim.control, ticket))}")

    def farewell(self) -> None:
        """After a signal: what is saved, and what will be read again."""
        if self.writing:
            self._say_what_is_safe(self.writing)
            self._say("what is reported is published by the next run")
        else:
            self._say("nothing was being written; what is in the tables stays, the next run goes on from there")


def _release(cycle: Cycle, dead: set[UUID]) -> bool:
    if is_dead(cycle):
        dead.add(cycle.commit_id)
    return cycle.commit_id in dead


def _safe(result: GroupResult) -> str:
    text = f"{result.done} slices ({result.saved_records} records) are reported and will not be read again"
    if result.left:
        shown = "; ".join(str(s) for s in result.left[:SHOWN])
        more = f" and {len(result.left) - SHOWN} more slices" if len(result.left) > SHOWN else ""
        text += f"; {sum(len(s) for s in result.left)} offsets will be: {shown}{more}"
    return text + "".join(f"; blocked: {b}" for b in result.blocked)


def _outcome(future: Future[list[SliceResult]]) -> list[SliceResult] | SparkJobError:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, SparkJobError):
        return error
    raise error


def _summary(outcomes: Sequence[list[SliceResult] | SparkJobError]) -> Written:
    results = [r for o in outcomes if not isinstance(o, SparkJobError) for r in o]
    return Written(
        slices=Counter(r.status for r in results),
        unfinished=tuple(str(r) for r in results if r.status != DONE),
        died=tuple(str(o) for o in outcomes if isinstance(o, SparkJobError)),
    )


def land(spec: LandingSpec, output: Output, *, cycles: int | None, run: UUID | None = None) -> int:
    """Land until caught up, or for *cycles* cycles.

    :raises LakecommitError: what keeps a cycle from being opened or closed, or that none of them moves anything
    """
    section = SparkSection(spec.spark)
    section.refuse_remote()
    say = output.say
    with Signals() as signals, Rim.connect(spec.landing, spec.kafka, spec.catalog, say=say) as rim:

        def secrets() -> Secrets:
            return Secrets(kafka=spec.kafka, io=rim.tables.io_properties())

        spark = LocalSpark(section, secrets, say=say, on_start=signals.install)
        lander = Lander(rim, spark, run or uuid4(), say)
        try:
            return _land(lander, spec, output, cycles)
        except Stopped as stop:
            say(f"told to stop by {stop}")
            spark.cancel()
            lander.farewell()
            return stop.code
        finally:
            spark.close()


def _land(lander: Lander, spec: LandingSpec, output: Output, cycles: int | None) -> int:
    number = idle = rows = snapshots = 0
    while True:
        outcome = lander.cycle(number)
        output.result(outcome.to_dict(spec.landing.table))
        output.say(_told(outcome))
        number, rows, snapshots = number + 1, rows + outcome.closed.rows, snapshots + len(outcome.closed.published)
        if outcome.final or number == cycles:
            output.say(_farewell(spec, outcome, number, rows, snapshots))
            return Exit.REFUSED if outcome.closed.blocked else Exit.DONE
        idle = 0 if outcome.progress else idle + 1
        if idle >= MOST_IDLE_CYCLES:
            raise SparkJobError(_why_given_up(outcome, idle))
        if idle and outcome.written.may_pass:
            time.sleep(PAUSES[min(idle, len(PAUSES)) - 1])


def _told(outcome: CycleOutcome) -> str:
    """One line per cycle; each slice has told its own story already."""
    slices = ", ".join(f"{n} {status}" for status, n in sorted(outcome.written.slices.items())) or "none run"
    seconds = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in outcome.seconds.items())
    published = "; ".join(f"{p.table}: {p.rows} rows in snapshot {p.snapshot_id}" for p in outcome.closed.published)
    text = f"cycle {outcome.number}: slices: {slices}; {published or 'nothing published'} ({seconds})"
    return "".join([text, *(f"\n  {trouble}" for trouble in outcome.written.died)])


def _farewell(spec: LandingSpec, last: CycleOutcome, number: int, rows: int, snapshots: int) -> str:
    text = f"{spec.landing.name}: {rows} rows in {snapshots} snapshots, {number} cycles"
    if last.closed.valid_through is not None:
        text += f"; all up to {last.closed.valid_through.isoformat()} is in the tables"
    if last.opened.plan.left:
        text += f"; {last.opened.plan.left} offsets are left for the next run"
    if last.closed.blocked:
        text += f"; {_first_of(last.closed.blocked)} blocked: `lakecommit unblock` says how to go on"
    if last.closed.waiting:
        text += f"; {_first_of(last.closed.waiting)} waiting"
    return text


def _first_of(texts: Sequence[str]) -> str:
    """One of many is enough for a line; `status` has all."""
    return f"{texts[0]} is" if len(texts) == 1 else f"{texts[0]} and {len(texts) - 1} more are"


def _why_given_up(last: CycleOutcome, idle: int) -> str:
    reasons = last.written.trouble or last.closed.voided or last.closed.missing
    why = f"{_first_of(reasons)} the reason" if reasons else "it was granted no slice"
    return f"{idle} cycles in a row moved nothing; of the last one {why}"
