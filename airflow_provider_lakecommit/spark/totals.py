# SPDX-License-Identifier: Apache-2.0
"""What adds up over one attempt at a slice: records, what became of them, rows; and whether there are too many rejects.

Contract: per span, in source records: landed (at least one row) + rejected + filtered (no row: tombstones, and what the
decoder left out) + gaps (offsets without a record) = length of the span. It is checked here, from counts that are taken
where each thing happens; a mismatch is an :class:`~airflow_provider_lakecommit.exceptions.AccountingError`. Rows are a
separate sum: a record may give several. Those of a table are the files' own record counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_provider_lakecommit.core import (
    FAIL,
    NOT_ROUTED,
    Counts,
    OffsetRange,
    Role,
    Slice,
    SpanReport,
    over_budget,
    spans_problem,
    surely_over,
)
from airflow_provider_lakecommit.exceptions import AccountingError
from airflow_provider_lakecommit.formats import Block
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.chunks import Chunk, Run
from airflow_provider_lakecommit.spark.reject_tally import RejectTally

__all__ = ["SliceTotals"]


class SliceTotals:
    """``records`` and ``counts`` are for each span by itself. ``partly``: the slice was not read to its end. ``places``
    are those of the spans in the slice that was to be done.
    """

    def __init__(self, work: Slice, landing: Landing) -> None:
        self._slice = work
        self._landing = landing
        self._budget = work.budget or landing.budget
        self._records = [0] * len(work.spans)
        self._counts = [Counts()] * len(work.spans)
        self._rows: Counter[str] = Counter()
        self._fails = landing.routing is not None and landing.routing.other == FAIL
        self.bytes = 0
        self.ignored: Counter[str] = Counter()
        self.rejects = RejectTally()
        self.partly = False
        self.places: Sequence[int] = range(len(work.spans))

    def end_at(self, reached: Mapping[int, int]) -> None:
        """What was done is all of a smaller slice, which ends where the spans were read to.

        :param reached: the offset up to which each span was read, by its place; those that are not in it were not begun
        """
        spans = self._slice.spans
        self.places = [n for n, end in sorted(reached.items()) if end > spans[n].range.start]
        done = tuple(replace(spans[n], range=OffsetRange(spans[n].range.start, reached[n])) for n in self.places)
        self._slice = replace(self._slice, spans=done)
        self._records = [self._records[n] for n in self.places]
        self._counts = [self._counts[n] for n in self.places]

    @property
    def records(self) -> int:
        return sum(self._records)

    @property
    def rejected(self) -> int:
        return sum(c.rejected for c in self._counts)

    def count(self, chunk: Chunk, places: Sequence[int], decoded: Block) -> None:
        """Count what became of the records, for each span by itself.

        :param places: of the decoded values in the chunk
        """
        for name, made in decoded.tables.items():
            rows, of_rows = made.table.num_rows, range(len(places)) if made.records is None else made.records
            if len(of_rows) != rows:
                raise AccountingError(
                    "LC5049",
                    f"slice {self._slice}: {rows} rows were decoded for {name}, and {len(of_rows)} that come from a "
                    "record; nothing of it is published, report it",
                )
            self._rows[name] += rows
        landed = decoded.landed(len(places))
        if len(places) < len(chunk.messages):
            landed = [places[i] for i in landed]
        rejected = [places[r.index] for r in decoded.rejects]
        filtered = [places[i] for i in decoded.filtered]
        for run in chunk.runs:
            records = run.end - run.start
            self._records[run.span] += records
            self._counts[run.span] += Counts(
                landed=_within(landed, run),
                rejected=_within(rejected, run),
                filtered=records - _within(places, run) + _within(filtered, run),
            )

    def blocked(self) -> str | None:
        """Why the slice cannot be published by what is known so far; the ratio is judged at the end."""
        rejected = self.rejected
        if rejected and self._landing.dead_letter_table is None and self._slice.budget is None:
            return f"{rejected} rejected records and no dead_letter_table"
        if self._fails and self._slice.budget is None and (unnamed := self.rejects.of_kind(NOT_ROUTED)):
            return f"{unnamed} records for which `route` names no table, and `other` says {FAIL}"
        if rejected > self._budget.max_records:
            return over_budget(rejected, self.records, self._budget)
        return None

    def hopeless(self) -> bool:
        """Return True if the slice will be blocked in any case."""
        return bool(self.blocked()) or surely_over(self.rejected, len(self._slice), self._budget)

    def told(self, why: str) -> str:
        """What is said of a slice that is blocked: the cause first."""
        no_further = ", it was read no further" if self.partly else ""
        return f"{self.rejects.cause}: slice {self._slice}: {why}{no_further}; first: {self.rejects.first}"

    def blocked_at_the_end(self) -> str | None:
        return self.blocked() or over_budget(self.rejected, self.records, self._budget)

    def reports(self) -> list[SpanReport]:
        """Each span with what became of its records. Rejects that a person's budget allows, where no table takes them,
        are skipped by that word.

        :raises AccountingError: they do not add up
        """
        skips = self._landing.dead_letter_table is None and not self.blocked_at_the_end()
        found = []
        for span, records, counts in zip(self._slice.spans, self._records, self._counts, strict=True):
            if self.partly:
                # What lies behind may be records or gaps.
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
        """The files' own record counts, by table, must be what was decoded and rejected.

        :raises AccountingError: they are not
        """
        dead = self.rejected
        due = {
            d.table: dead if d.role is Role.DEAD_LETTERS else self._rows[d.table] for d in self._landing.destinations
        }
        for name, made in rows.items():
            if made != due[name]:
                raise AccountingError(
                    "LC5051", f"slice {self._slice}: {made} rows in the files of {name}, {due[name]} were due"
                )


def _within(places: Sequence[int], run: Run) -> int:
    """How many of these places, which are in order, are in the run."""
    return bisect_left(places, run.end) - bisect_left(places, run.start)
