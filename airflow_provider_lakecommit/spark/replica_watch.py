# SPDX-License-Identifier: Apache-2.0
"""Whether another replica has reported what a task is at: asked in the control log, which decides whose report counts.

Contract: :class:`ReplicaWatch` believes what the fold believes: reports of slices of the cycle's own plan. A report
that a slice is over its budget, or cannot be done, ends nobody's work at it. Where nobody else works at the slices of a
job (``replicas`` is 1) it never looks, and costs nothing; else the first look is at once, so that a task that comes too
late reads no record, and one more is right before a report would be sent.

A replica is done whole, or not at all: only the original, number 0, reports what it has when it is asked to end early.
So two of them hold different parts of a slice only where parts of it failed; then what is reported is not read again.

Failure story: brokers that do not answer are no reason to end. Two replicas that report in the same moment do so both:
the first in the log counts, the files of the other are in no table. Files are deleted here only of an attempt whose
report was never sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.core import Coverage, Slice, Span
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.spark.cycle_reports import CycleReports

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from airflow_provider_lakecommit.control import LogReader
    from airflow_provider_lakecommit.spark.job import Secrets, WindowJob

__all__ = ["ReplicaReported", "ReplicaWatch", "delete_files"]

LOOK_AGAIN = 0.5
"""Seconds between two looks of one task."""
AWAY = 30.0
"""Seconds after a look that the brokers did not answer."""


class ReplicaReported(LakecommitError):
    """Another replica has reported what is being done, or a part of it."""


class ReplicaWatch:
    """Called between two chunks of records: whether this work is still needed.

    :param control: of the task
    :param work: the slice that the task is at
    """

    def __init__(
        self, job: WindowJob, control: LogReader, work: Slice, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._job, self._work, self._now = job, work, now
        self._reports = CycleReports(job, control)
        self._look_at = now()
        self._left: Coverage = work.coverage

    def left_of(self, spans: Sequence[Span], *, at_once: bool = False) -> tuple[Span, ...]:
        """What of these ranges of the slice nobody has reported.

        :param at_once: look, however short ago the last look was
        """
        if self._job.replicas == 1:
            return tuple(spans)
        if at_once or self._now() >= self._look_at:
            self._look_at = self._now() + AWAY
            with suppress(LakecommitError):
                self._look()
                self._look_at = self._now() + LOOK_AGAIN
        mine = Coverage.of((s.partition, s.range) for s in spans)
        left = mine & self._left
        return tuple(spans) if left == mine else tuple(Span(p, r) for p, r in left.items())

    def check(self, spans: Sequence[Span], *, at_once: bool = False) -> None:
        """Raise unless the work on these ranges must continue.

        :raises ReplicaReported: another replica has reported some of them
        """
        if self.left_of(spans, at_once=at_once) != tuple(spans):
            raise ReplicaReported("LC5032", f"another replica has reported of slice {self._work}")

    def _look(self) -> None:
        if self._reports.look() and (cycle := self._reports.cycle) is not None:
            left = cycle.left_of(self._work)
            self._left = Coverage() if left is None else left.coverage


def delete_files(secrets: Secrets, files: Mapping[str, Sequence[DataFile]]) -> None:
    """Delete the files of an attempt that is not reported; what cannot be deleted stays, in no table."""
    from airflow_provider_lakecommit.iceberg.parquet.layout import file_io

    for table, made in files.items():
        io = file_io(secrets.io_of(table))
        for file in made:
            with suppress(Exception):
                io.delete(file.file_path)
