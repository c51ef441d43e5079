# SPDX-License-Identifier: Apache-2.0
"""The slices of a job as tasks of one Spark job.

Contract: Spark only schedules; a task gets the number of its slice and does all of it. Errors of a slice are in its
result, so that no slice fails another. A task never raises, so a task that Spark repeats knows that processes died at
its slice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_DEATHS = re.compile(
    r"worker exited unexpectedly|worker .{0,40}crashed|ExecutorLostFailure|executor lost", re.IGNORECASE
)


def run_window(spark: SparkSession, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
    """Run all slices of the job as tasks of one Spark job; return when all have ended.

    The connection settings travel with the tasks' code, so that an executor on another machine needs no file of them:
    they leave its memory with the job, and no plan, event log or web UI shows that code.

    :raises Exception: Spark's error if a worker process dies; finished slices are reported anyway
    """
    numbers = range(len(job.plan.slices))
    work = _slices(job.to_json(), partial(Secrets.from_json, secrets.to_json()))
    # Not a DataFrame: Spark takes longer to plan its query than to run these few tasks.
    results: list[SliceResult] = spark.sparkContext.parallelize(numbers, len(numbers)).mapPartitions(work).collect()
    return results


def run_windows(spark: SparkSession, requests: Sequence[tuple[WindowJob, Secrets]]) -> list[list[SliceResult]]:
    """Run the slices of several jobs as tasks of one Spark job; return the results of each, in order.

    A task gets only the text of its own job. Jobs with equal settings share one copy of them.

    :raises Exception: as for :func:`run_window`
    """
    texts = [secrets.to_json() for _, secrets in requests]
    different = list(dict.fromkeys(texts))
    elements = [
        (place, job.to_json(), different.index(text), number)
        for place, ((job, _), text) in enumerate(zip(requests, texts, strict=True))
        for number in range(len(job.plan.slices))
    ]
    read = [partial(Secrets.from_json, text) for text in different]

    def work(some: Iterable[tuple[int, str, int, int]]) -> Iterator[tuple[int, SliceResult]]:
        for place, text, which, number in some:
            yield from ((place, result) for result in _slices(text, read[which])([number]))

    found = spark.sparkContext.parallelize(elements, len(elements)).mapPartitions(work).collect()
    return [[result for place, result in found if place == position] for position in range(len(requests))]


def workers_died(text: str) -> bool:
    """Return True if Spark reports that a job ended because processes died while they worked at its tasks."""
    return _DEATHS.search(text) is not None


def tasks(
    job_text: str, read_secrets: Callable[[], Secrets]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the tasks of a job as a function for `mapInArrow` over slice numbers; results as in :data:`RESULT`."""

    work = _slices(job_text, read_secrets)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for result in work(index for batch in batches for index in batch.column(0).to_pylist()):
            yield pa.RecordBatch.from_pydict(
                {name: [getattr(result, name)] for name in SliceResult.__dataclass_fields__}
            )

    return run


def _slices(job_text: str, read_secrets: Callable[[], Secrets]) -> Callable[[Iterable[int]], Iterator[SliceResult]]:
    """Return the tasks of a job as a function over its slice numbers."""

    def run(numbers: Iterable[int]) -> Iterator[SliceResult]:
        from pyspark import TaskContext

        from airflow_provider_lakecommit.spark import task

        work, secrets, context = WindowJob.from_json(job_text), read_secrets(), TaskContext.get()
        deaths = work.deaths + (0 if context is None else int(context.attemptNumber()))
        last = len(work.plan.slices) - 1
        for number in numbers:
            # Replicas that begin at opposite ends share the work until they meet.
            index = last - number if work.replica % 2 else number
            yield task.run_task(work, secrets, index, deaths=deaths)

    return run
