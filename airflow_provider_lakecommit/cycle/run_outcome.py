# SPDX-License-Identifier: Apache-2.0
"""The results of a run's cycles and of the run itself: values for decisions and for display.

Contract: frozen values made from the results of open, write and close; nothing is read here. A run is *caught up* when
the tables have everything up to the last stable offset of its newest plan, as far as that depends on the run; later
records belong to the next run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from airflow_provider_lakecommit.core import UNBLOCK, Counts, Coverage, summed
from airflow_provider_lakecommit.cycle.results import Closed, Opened, PublishedSnapshot
from airflow_provider_lakecommit.spark import SliceStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of a cycle's write step: slices by status, causes of unfinished ones, and dead jobs."""

    slices: Counter[SliceStatus] = field(default_factory=Counter)
    unfinished: tuple[str, ...] = ()
    died: tuple[str, ...] = ()

    def __add__(self, other: Written) -> Written:
        return Written(
            slices=self.slices + other.slices,
            unfinished=(*self.unfinished, *other.unfinished),
            died=(*self.died, *other.died),
        )

    @property
    def trouble(self) -> tuple[str, ...]:
        return (*self.died, *self.unfinished)

    @property
    def may_pass(self) -> bool:
        """Return True if the next attempt can succeed without an action."""
        return bool(self.died or self.slices[SliceStatus.AGAIN])


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOutcome:
    """One closed cycle of a run. ``released`` counts the dead cycles whose claims ended with it."""

    number: int
    opened: Opened
    written: Written
    closed: Closed
    seconds: dict[str, float]
    released: int = 0

    @property
    def lane(self) -> str:
        return self.opened.ticket.lane

    @property
    def final(self) -> bool:
        """Return True if nothing is left for this run. The next cycle may plan claims that ended with this one, and a
        deferred window. A cycle that was over before is that of a deleted run with the same id, or others closed it.
        """
        if self.released or self.deferred or self.opened.finished:
            return False
        return self.caught_up or not self.opened.slices

    @property
    def deferred(self) -> bool:
        """Return True if no window was admitted although there is something to read."""
        return self.opened.plan.deferred and not self.opened.finished

    @property
    def progress(self) -> bool:
        return bool(self.closed.published or self.kept or self.released)

    @property
    def kept(self) -> bool:
        """Return True if Spark did a slice of it, so that it counts."""
        return self.written.slices[SliceStatus.DONE] > 0 and not self.closed.voided

    @property
    def caught_up(self) -> bool:
        """Return True if the tables have everything that was readable when this cycle was planned, as far as it depends
        on this package.
        """
        return self.whole and not self.opened.plan.left

    @property
    def whole(self) -> bool:
        """Return True if everything planned is reported and accepted by the tables."""
        done = sum(self.written.slices[status] for status in SliceStatus if status.is_reported)
        return done == len(self.opened.slices) and not (self.closed.missing or self.closed.voided)

    def __str__(self) -> str:
        """Return one line per cycle; slices have their own lines."""
        slices = ", ".join(f"{n} {status}" for status, n in sorted(self.written.slices.items())) or "none run"
        seconds = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in self.seconds.items())
        published = "; ".join(f"{p.table}: {p.rows} rows in snapshot {p.snapshot_id}" for p in self.closed.published)
        more = f"; redundant reports: {self.closed.redundant}" if self.closed.redundant else ""
        if self.closed.failed:
            more += f"; commits fail for {', '.join(self.closed.failed)}"
        text = f"cycle {self.number}: slices: {slices}; {published or 'nothing published'}{more} ({seconds})"
        return "".join([text, *(f"\n  {trouble}" for trouble in self.written.died)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """The result of a finished run: its cycles, and the snapshots that earlier attempts published.

    ``closed`` is the end of its newest cycle, with the omissions and rejects of all; ``refused`` is why the newest had
    no window despite new records. ``published`` are the snapshots, or one per table for all of them; ``snapshots`` is
    their number.
    """

    landing: str
    cycles: int
    closed: Closed
    published: tuple[PublishedSnapshot, ...]
    snapshots: int
    refused: str | None = None

    @classmethod
    def of(cls, landing: str, cycles: Sequence[CycleOutcome], before: Sequence[PublishedSnapshot] = ()) -> RunOutcome:
        """Return the outcome of a run with at least one cycle."""
        published, last = (*before, *(p for c in cycles for p in c.closed.published)), cycles[-1]
        refused = last.opened.plan.reason if last.deferred else None
        closed = replace(
            last.closed,
            ignored_fields=summed(c.closed.ignored_fields for c in cycles),
            rejects=summed(c.closed.rejects for c in cycles),
            reject_reason=next((c.closed.reject_reason for c in cycles if c.closed.reject_reason), ""),
        )
        return cls(
            landing=landing,
            cycles=len(cycles),
            closed=closed,
            published=published,
            snapshots=len(published),
            refused=refused,
        )

    @property
    def whole(self) -> Closed:
        """Return the run as one cycle: the state of its newest one, the snapshots of all."""
        newest = self.published[-1].commit_id if self.published else self.closed.commit_id
        return replace(self.closed, commit_id=newest, published=self.published)

    def of_table(self, table: str) -> tuple[Coverage, Counts]:
        """Return the offsets and source records that the run added to one table."""
        mine = [p for p in self.published if p.table == table]
        return Coverage.union(p.coverage for p in mine), sum((p.counts for p in mine), Counts())

    def furthest(self, tables: Sequence[str]) -> str:
        """Return which of the tables with rows of the same records the run brought furthest: a snapshot's counts are
        those of all records of its ranges.
        """
        return max(tables, key=lambda table: len(self.of_table(table)[0]))

    def __str__(self) -> str:
        last, data = self.closed, (self.closed.table, *self.closed.other_tables)
        rows = sum(p.rows for p in self.published if p.table in data)
        text = f"{self.landing}: {rows} rows in {self.snapshots} snapshots, {self.cycles} cycles"
        if last.valid_through is not None:
            text += f"; all up to {last.valid_through.isoformat()} is in the tables"
        if last.left:
            text += f"; {last.left} offsets are left for the next run"
        if self.refused:
            text += f"; no window was planned: {self.refused}"
        elif last.stopped:
            text += f"; planned only partly: {last.stopped}"
        if last.blocked:
            text += f"; {first_of(last.blocked)} blocked: correct the spec or the table and run again, or decide with "
            text += f"`{UNBLOCK}` (or --raise N, --skip)"
        if last.waiting:
            text += f"; {first_of(last.waiting)} waiting"
        return text


def first_of(texts: Sequence[str]) -> str:
    """Return the first text and the number of others; `status` has all."""
    return f"{texts[0]} is" if len(texts) == 1 else f"{texts[0]} and {len(texts) - 1} more are"
