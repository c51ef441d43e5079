# SPDX-License-Identifier: Apache-2.0
"""The accounting of one attempt at a slice: records, their dispositions, rows, and the reject budget.

Contract: per span, in source records: landed (at least one row) + rejected + filtered (no row: tombstones, and what the
decoder left out) + gaps (offsets without a record) = length of the span. The counts are taken where each thing happens
and checked here; a mismatch is an :class:`~airflow_provider_lakecommit.exceptions.AccountingError`. Rows are a separate
sum: a record may give several. Rows of a table are the files' own record counts.

:meth:`CostClock.lap` books all time since the previous lap, so the parts add up to the time between the clock's
creation and its last lap. The clock is monotonic: setting the machine's clock changes nothing.

Rejects are counted by kind and column, with the first reason of each; of all rejects, the first places are
kept. Memory is bounded, whatever names the records have.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from confluent_kafka import Message

from airflow_provider_lakecommit.core import (
    FAIL,
    MOST_NAMES,
    NOT_ROUTED,
    ODD_TIME,
    Counts,
    OffsetRange,
    Role,
    Slice,
    SliceCost,
    SpanReport,
    add_names,
    over_budget,
    spans_problem,
)
from airflow_provider_lakecommit.exceptions import AccountingError
from airflow_provider_lakecommit.formats import Block, Reject, Suspects
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.chunks import Chunk, Run

LEAST_ODD, ODD_SHARE = 10, 0.9
"""From so many suspect values on, and from this share of a column's values on, the spec or the table is wrong: a slice
with them is blocked.
"""


class SliceTotals:
    """``records`` and ``counts`` are per span. ``partly``: the slice was not read to its end. ``span_numbers`` are the
    indexes of the spans in the requested slice.

    :param window: number of offsets of all slices of its window
    """

    def __init__(self, work: Slice, landing: Landing, window: int = 0) -> None:
        self._slice = work
        self._landing = landing
        self._own = None if work.budget == landing.budget else work.budget
        self._budget = self._own or landing.budget
        self._most = len(work) if self._own else max(window, len(work))
        self._records = [0] * len(work.spans)
        self._counts = [Counts()] * len(work.spans)
        self._rows: Counter[str] = Counter()
        self._times: dict[str, Suspects] = {}
        self._names: dict[str, Suspects] = {}
        self._fails = landing.routing is not None and landing.routing.other == FAIL
        self.bytes = 0
        self.ignored: Counter[str] = Counter()
        self.rejects = RejectTally()
        self.partly = False
        self.span_numbers: Sequence[int] = range(len(work.spans))

    def end_at(self, reached: Mapping[int, int]) -> None:
        """Reduce the slice to the part that was read.

        :param reached: by index of each begun span, the offset up to which it was read
        """
        spans = self._slice.spans
        self.span_numbers = [n for n, end in sorted(reached.items()) if end > spans[n].range.start]
        done = tuple(replace(spans[n], range=OffsetRange(spans[n].range.start, reached[n])) for n in self.span_numbers)
        self._slice = replace(self._slice, spans=done)
        self._records = [self._records[n] for n in self.span_numbers]
        self._counts = [self._counts[n] for n in self.span_numbers]

    @property
    def records(self) -> int:
        return sum(self._records)

    @property
    def rejected(self) -> int:
        return sum(c.rejected for c in self._counts)

    def count(self, chunk: Chunk, span_numbers: Sequence[int], decoded: Block) -> None:
        """Count the dispositions of the records, per span.

        :param span_numbers: positions of the decoded values in the chunk
        """
        for name, made in decoded.tables.items():
            rows, of_rows = made.table.num_rows, range(len(span_numbers)) if made.records is None else made.records
            if len(of_rows) != rows:
                raise AccountingError(
                    "LC5049",
                    f"slice {self._slice}: {rows} rows were decoded for {name}, and {len(of_rows)} that come from a "
                    "record; nothing of it is published, report it",
                )
            self._rows[name] += rows
        landed = decoded.landed(len(span_numbers))
        if len(span_numbers) < len(chunk.messages):
            landed = [span_numbers[i] for i in landed]
        rejected = [span_numbers[r.index] for r in decoded.rejects]
        filtered = [span_numbers[i] for i in decoded.filtered]
        for run in chunk.runs:
            records = run.end - run.start
            self._records[run.span] += records
            self._counts[run.span] += Counts(
                landed=_within(landed, run),
                rejected=_within(rejected, run),
                filtered=records - _within(span_numbers, run) + _within(filtered, run),
            )

    def count_suspects(self, times: Mapping[str, Suspects], names: Mapping[str, Suspects]) -> None:
        """Count times of 1970 that are probably in another unit, and nulls whose field has the name in another case,
        by column.
        """
        for kept, found in ((self._times, times), (self._names, names)):
            kept |= {column: kept.get(column, Suspects(0, 0, "")).plus(more) for column, more in found.items()}
        for column, (odd, _, better) in times.items():
            if odd:
                rule = self._landing.timestamps[column]
                add_names(self.ignored, {f"{ODD_TIME}{column} ({rule}, probably {better})": odd})

    def settle(self, table: str, superseded: Mapping[int, int], deleted: Mapping[int, int]) -> None:
        """Count records, by number of the span, that became no rows of a table after all."""
        for n, number in enumerate(self.span_numbers):
            old, dead, counts = superseded.get(number, 0), deleted.get(number, 0), self._counts[n]
            self._counts[n] = replace(counts, landed=counts.landed - old - dead, superseded=old, deleted=dead)
        self._rows[table] -= sum(superseded.values()) + sum(deleted.values())

    def blocked(self) -> str | None:
        """Return why the slice cannot be published, even if all that is not read is good."""
        rejected = self.rejected
        if rejected and self._landing.dead_letter_table is None and self._own is None:
            return f"{rejected} rejected records and no dead_letter_table"
        if self._fails and self._own is None and (unnamed := self.rejects.of_kind(NOT_ROUTED)):
            return f"{unnamed} records for which `route` names no table, and `other` is {FAIL}"
        if rejected > self._budget.max_records:
            return over_budget(rejected, self.records, self._budget)
        return over_budget(rejected, self._most, self._budget)

    def describe(self, why: str) -> str:
        """Return the message of a blocked slice, the cause first."""
        if why == self._suspicious():
            return why
        no_further = ", the rest was not read" if self.partly else ""
        return f"{self.rejects.cause}: slice {self._slice}: {why}{no_further}; first: {self.rejects.first}"

    def blocked_at_the_end(self) -> str | None:
        """Return also what is known only now. The commit evaluates the rest of the window too."""
        if self._own is not None:
            return self.blocked() or over_budget(self.rejected, self.records, self._own)
        return self.blocked() or self._suspicious()

    def _suspicious(self) -> str | None:
        """Return that a rule of `timestamps`, or the name of a column, is wrong for nearly all records, or ``None``."""
        for column, (odd, of, better) in self._times.items():
            if odd >= LEAST_ODD and odd >= ODD_SHARE * of:
                rule = self._landing.timestamps[column]
                return (
                    f"column {column} is read by {rule}, and its times are in January or February 1970: state "
                    f"`timestamps: {{{column}: {better}}}`: slice {self._slice}: {odd} of {of} times"
                )
        for column, (odd, of, better) in self._names.items():
            if odd >= LEAST_ODD and odd >= ODD_SHARE * of:
                return (
                    f"column {column} is null, but the records have a field {better}, which differs only in case: "
                    f"rename the column, or select {better} as {column} in `transform.sql`: slice {self._slice}: "
                    f"{odd} of {of} records"
                )
        return None

    def reports(self) -> list[SpanReport]:
        """Return each span's accounting. Rejects within a user's budget that no table takes are skipped by that
        decision.

        :raises AccountingError: the counts do not add up
        """
        skips = self._landing.dead_letter_table is None and not self.blocked_at_the_end()
        found = []
        for span, records, counts in zip(self._slice.spans, self._records, self._counts, strict=True):
            if self.partly:
                # The rest may be records or gaps.
                found.append(SpanReport(span=span, counts=counts))
                continue
            report = SpanReport(span=span, counts=replace(counts, gaps=len(span) - records))
            if problem := spans_problem([report]):
                raise AccountingError(
                    "LC5050", f"{records} records read: {problem}; nothing of it is published, report it"
                )
            if skips:
                report = replace(report, counts=replace(report.counts, rejected=0, skipped=counts.rejected))
            found.append(report)
        return found

    def check_rows(self, rows: Mapping[str, int]) -> None:
        """Check the files' own record counts, by table, against the decoded and rejected rows.

        :raises AccountingError: they differ
        """
        dead = self.rejected
        due = {
            table: dead if role is Role.DEAD_LETTERS else self._rows[table]
            for table, role in self._landing.destinations.items()
        }
        for name, made in rows.items():
            if made != due[name]:
                raise AccountingError(
                    "LC5051", f"slice {self._slice}: {made} rows in the files of {name}, expected {due[name]}"
                )


def _within(span_numbers: Sequence[int], run: Run) -> int:
    return bisect_left(span_numbers, run.end) - bisect_left(span_numbers, run.start)


SAMPLES = 5


class RejectTally:
    """Counts as rejects come; ``kinds`` by kind and column."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._first: list[tuple[str, str]] = []
        self._reasons: dict[str, str] = {}

    def add(self, messages: Sequence[Message], rejects: Sequence[Reject]) -> None:
        """Add the rejects of a chunk.

        :param messages: the chunk's messages; a reject's ``index`` is the position of its record
        """
        for reject in rejects[: SAMPLES - len(self._first)]:
            m = messages[reject.index]
            self._first.append((f"{m.topic()}[{m.partition()}]@{m.offset()}", reject.reason))
        kinds = Counter(map(_kind_of, rejects))
        add_names(self.kinds, kinds)
        for kind in kinds.keys() - self._reasons.keys() if len(self._reasons) < MOST_NAMES else ():
            self._reasons[kind] = next(r.reason for r in rejects if _kind_of(r) == kind)

    def of_kind(self, kind: str) -> int:
        """Return the number of rejects of a kind, over all columns."""
        return sum(count for name, count in self.kinds.items() if name.partition(" ")[0] == kind)

    @property
    def reason(self) -> str:
        """Return the first reason of the most frequent kind; empty if there is none."""
        return next((self._reasons.get(kind, kind) for kind, _ in self.kinds.most_common(1)), "")

    @property
    def cause(self) -> str:
        """Return the cause that most of them share."""
        ((_, count),) = self.kinds.most_common(1)
        return f"{self.reason} ({count} of {self.kinds.total()} rejected records)"

    @property
    def first(self) -> str:
        """Return the first places, each reason once, without the one that the cause has."""
        locations: dict[str, list[str]] = {}
        for location, reason in self._first:
            locations.setdefault(reason, []).append(location)
        return "; ".join(f"{', '.join(at)}{'' if why == self.reason else f': {why}'}" for why, at in locations.items())


def _kind_of(reject: Reject) -> str:
    return reject.kind if reject.column is None else f"{reject.kind} {reject.column}"


class CostClock:
    """The cost of an attempt: its wall-clock time, by kind of work. Starts when it is created.

    :param now: seconds of a monotonic clock
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = now()
        self._seconds = {"read": 0.0, "decode": 0.0, "write": 0.0}

    def lap(self, work: Literal["read", "decode", "write"]) -> None:
        """Book the time since the last lap."""
        now = self._now()
        self._seconds[work] += now - self._last
        self._last = now

    def cost(self, written: int) -> SliceCost:
        """Return the cost of all laps so far.

        :param written: bytes of the files
        """
        read, decode, write = (round(seconds, 3) for seconds in self._seconds.values())
        return SliceCost(read_seconds=read, decode_seconds=decode, write_seconds=write, bytes=written)
