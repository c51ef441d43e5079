# SPDX-License-Identifier: Apache-2.0
"""A task's checks of its brokers: whether they answer before its slice begins, and what they have while it runs, a
request to end after the current record, and other replicas' reports on its slice.

Contract: a slice waits for brokers as long as each request may take; hundreds in sequence would wait for hours. After a
slice of a job was given up without an answer, the next one in the same process begins only if the brokers answer a
short request. Otherwise the slices of the next :data:`AWAY` seconds are returned without a request: the job ends, and
the run reports why or continues in its next cycle. A process without trouble sends no request. If brokers answer but
give a slice nothing, they are checked before each slice: that costs one round trip, and the slice waits as before.

Both watches are called often and read rarely. :class:`EndWatch` ignores requests to other jobs, even of the
same group. A process that has worked at a job for less than :data:`FIRST_CHECK` does not read: short windows end before
that and pay nothing. After a request was read, later tasks of that job in the same process know it without a read.

:class:`ReplicaWatch` counts reports as the fold does: those on slices of the cycle's own plan. A report that a slice is
over its budget, or cannot be done, does not end a task. Without other replicas (``replicas`` is 1) it never reads.
Otherwise it reads at once, so that a late task reads no record, and once more before a report is sent. A replica is
done completely or not at all: only the original, number 0, reports partial work when it is asked to end early. So two
replicas hold different parts of a slice only if parts of it failed; then reported parts are not read again.

Reports of a job's cycle are read incrementally: each read continues after the previous one. The fold decides which
reports count: ``cycle`` is the cycle folded from its START, right before the job's first own message. It is set once
something was reported, and only if its plan is the job's.

Failure story: unavailable brokers do not end a task; the next read tries again, of a log that could not be read, too.
Two replicas that report at the same moment both do: the first in the log counts, the files of the other are in no
table. Files are deleted only if their attempt's report was never sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import (
    Coverage,
    CycleState,
    EndRequested,
    Entry,
    Slice,
    SliceReport,
    SliceReported,
    Span,
)
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.exceptions import ControlTopicError, LakecommitError, SourceUnavailableError

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from airflow_provider_lakecommit.control import LogReader
    from airflow_provider_lakecommit.spark.job import Secrets, WindowJob

FIRST_CHECK = 1.5
"""Seconds of work at a job before the first read for a request to end, and between those of successive tasks."""
CHECK_INTERVAL = 0.5
"""Seconds between two reads of one task with an open connection."""
AWAY = 30.0
"""Seconds after a read, or an unanswered request, without another one."""


class Brokers(Protocol):
    """A client that can send the check, such as the control topic."""

    def answers(self) -> bool: ...


_doubts: dict[UUID, float] = {}
"""The newest job of this process with a slice that was given up, and when the brokers are checked next."""


def note_given_up(job: WindowJob, error: Exception) -> None:
    """Record that a slice of the job was given up, if the brokers may be the cause."""
    # Not loaded with this module, which the coordinator needs, too.
    from confluent_kafka import KafkaException

    doubted = isinstance(error, SourceUnavailableError | ControlTopicError | KafkaException)
    if doubted and job.job_id not in _doubts:
        _doubts.clear()
        _doubts[job.job_id] = 0.0


def check_brokers(job: WindowJob, brokers: Brokers, now: Callable[[], float] = time.monotonic) -> None:
    """Check doubtful brokers before a slice begins.

    :raises ControlTopicError: the brokers are doubtful and do not answer
    """
    if job.job_id not in _doubts:
        return
    if now() >= _doubts[job.job_id]:
        if brokers.answers():
            _doubts.clear()
            return
        _doubts[job.job_id] = now() + AWAY
    raise ControlTopicError(
        "LC5001",
        "this slice was not begun: the brokers did not answer for earlier slices and do not answer now; check "
        "that they are up; the next cycle reads it",
    )


class EndWatch:
    """Called between two chunks of records: returns whether this process must end here.

    :param control: control topic of the task
    :ivar reason: user and reason of the request; empty if there is none
    """

    def __init__(self, job: WindowJob, control: LogReader, now: Callable[[], float] = time.monotonic) -> None:
        self._job, self._control, self._now = job, control, now
        self._read_from, self._checked = job.made_at, False
        self.reason, self._check_at = "", now() + FIRST_CHECK
        if (before := _newest.get(job.job_id)) is not None:
            self.reason, self._check_at = before.reason, before._check_at
        _newest.clear()
        _newest[job.job_id] = self

    def __call__(self) -> bool:
        if not self.reason and self._now() >= self._check_at:
            self._checked, self._check_at = True, self._now() + AWAY
            with suppress(LakecommitError):
                self.reason = self._read_reason()
                self._check_at = self._now() + CHECK_INTERVAL
        return bool(self.reason)

    def rest(self) -> None:
        """Forget the connection of a finished task; the next task opens its own."""
        if self._checked:
            self._check_at = max(self._check_at, self._now() + FIRST_CHECK)

    def _read_reason(self) -> str:
        log = self._control.read(self._job.control_partition, self._read_from)
        self._read_from = max(self._read_from, log.end)
        entries = read_entries(log.records, self._job.plan.landing, self._job.plan.lane)
        meant = (e for e in entries if isinstance(e, EndRequested) and e.commit_id == self._job.commit_id)
        return next((e.reason for e in meant if e.job in (None, self._job.job_id)), "")


_newest: dict[UUID, EndWatch] = {}
"""The watch of this process's newest task, by its job."""


class ReplicaReported(LakecommitError):
    """Another replica has reported the task's ranges, or a part of them."""


class ReplicaWatch:
    """Called between two chunks of records: checks if this work is still needed.

    :param control: control topic of the task
    :param work: slice of the task
    """

    def __init__(
        self, job: WindowJob, control: LogReader, work: Slice, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._job, self._work, self._now = job, work, now
        self._reports = CycleReports(job, control)
        self._check_at = now()
        self._left: Coverage = work.coverage

    def left_of(self, spans: Sequence[Span], *, at_once: bool = False) -> tuple[Span, ...]:
        """Return the unreported part of these ranges of the slice.

        :param at_once: read now, however recent the last read is
        """
        if self._job.replicas == 1:
            return tuple(spans)
        if at_once or self._now() >= self._check_at:
            self._check_at = self._now() + AWAY
            with suppress(LakecommitError):
                self._read_reports()
                self._check_at = self._now() + CHECK_INTERVAL
        mine = Coverage.of((s.partition, s.range) for s in spans)
        rest = mine & self._left
        return tuple(spans) if rest == mine else tuple(Span(p, r) for p, r in rest.items())

    def check(self, spans: Sequence[Span], *, at_once: bool = False) -> None:
        """Raise unless the work on these ranges must continue.

        :raises ReplicaReported: another replica has reported some of them
        """
        if self.left_of(spans, at_once=at_once) != tuple(spans):
            raise ReplicaReported("LC5032", f"another replica has reported slice {self._work}")

    def _read_reports(self) -> None:
        if self._reports.read() and (cycle := self._reports.cycle) is not None:
            left = cycle.left_of(self._work)
            self._left = Coverage() if left is None else left.coverage


def delete_files(secrets: Secrets, files: Mapping[str, Sequence[DataFile]]) -> None:
    """Delete the files of an unreported attempt; files that cannot be deleted stay, in no table."""
    from airflow_provider_lakecommit.iceberg.parquet.layout import file_io

    for table, made in files.items():
        io = file_io(secrets.io_of(table))
        for file in made:
            with suppress(Exception):
                io.delete(file.file_path)


class CycleReports:
    """Reads the reports of one job's cycle."""

    def __init__(self, job: WindowJob, control: LogReader) -> None:
        self._job, self._control = job, control
        self._read_from = max(0, job.made_at - 1)
        self._entries: list[Entry] = []
        self.cycle: CycleState | None = None

    def read(self) -> list[SliceReport]:
        """Return the new reports, also those that do not count.

        :raises ControlTopicError: the log cannot be read
        """
        job = self._job
        log = self._control.read(job.control_partition, self._read_from)
        self._read_from = max(self._read_from, log.end)
        new = read_entries(log.records, job.plan.landing, job.plan.lane)
        self._entries += new
        reports = [e.report for e in new if isinstance(e, SliceReported) and e.commit_id == job.commit_id]
        if reports:
            cycle = fold(self._entries, (), job.landing.window.completion_timeout).cycles.get(job.commit_id)
            self.cycle = cycle if cycle is not None and cycle.plan.window_id == job.plan.window_id else None
        return reports
