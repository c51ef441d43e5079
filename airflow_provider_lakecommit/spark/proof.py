# SPDX-License-Identifier: Apache-2.0
"""A slice of `verify --source`: its spans are read and decoded as in a landing, and nothing is reported.

Contract: the task is :func:`~airflow_provider_lakecommit.spark.slices.run_slice` with two changes. Its files are
unpartitioned scratch files among the data files of the table, and rejects never block it. It touches neither the
control topic nor a table. What it did is in a result file at a place that the caller knows, since not every engine
returns results. The caller deletes all of these files (:func:`read_proof` names them).

Failure story: an error is the text of the result. Files of a killed task or caller are named like those of the live
stream, and no report names them, so the sweep removes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from uuid import UUID, uuid4, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from airflow_provider_lakecommit.core import Budget, Counts, TableTarget, attempt_id, file_mark, file_name
from airflow_provider_lakecommit.iceberg import Layout
from airflow_provider_lakecommit.iceberg.parquet.layout import file_io
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.slices import SliceOutcome, run_slice

EVERY_REJECT = Budget(max_records=1 << 60, max_ratio=1.0)
"""A proof counts all rejects; no landing has this budget."""
_RESULT = "result"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSlice:
    """What a task found: its files by table, those with deleted keys, the ranges without a record, and its counts."""

    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tombstones: Sequence[str] = ()
    gaps: Sequence[tuple[int, int]] = ()
    counts: Counts = field(default_factory=Counts)
    bytes: int = 0
    error: str = ""

    @classmethod
    def of(cls, done: SliceOutcome) -> ProofSlice:
        (span,) = (s.span.range for s in done.report.spans)
        known = np.array([span.start - 1, *done.offsets, span.end])
        wide = np.flatnonzero(np.diff(known) > 1)
        return cls(
            gaps=list(zip((known[wide] + 1).tolist(), known[wide + 1].tolist(), strict=True)),
            files={name: tuple(f.file_path for f in made) for name, made in done.files.items()},
            tombstones=tuple(f.file_path for f in done.tombstones),
            counts=sum((s.counts for s in done.report.spans), Counts()),
            bytes=done.report.bytes,
        )

    def paths(self) -> Iterator[str]:
        yield from (path for made in self.files.values() for path in made)
        yield from self.tombstones


def proof_target(target: TableTarget) -> TableTarget:
    """Return the target of scratch files: the rows are those of the table, its partitions and order do not matter."""
    return replace(target, spec=UNPARTITIONED_PARTITION_SPEC.model_dump_json(), spec_id=0, sort_order="")


def run_proof(job: WindowJob, secrets: Secrets, index: int) -> SliceResult:
    """Read and decode one slice again; never raises for a failure of that slice."""
    work = replace(job.plan.slices[index], budget=EVERY_REJECT)
    try:
        found = ProofSlice.of(run_slice(job, secrets, work, attempt_id(work.slice_id, uuid4())))
    except Exception as e:
        found = ProofSlice(error=secrets.without(f"{type(e).__name__}: {e}"))
    text = json.dumps({**asdict(found), "counts": found.counts.to_dict()})
    io = file_io(secrets.io_of(_target(job, work.tables[0]).table))
    # A repeated task replaces the result of its predecessor.
    with io.new_output(result_path(job, index)).create(overwrite=True) as stream:
        pq.write_table(pa.table({_RESULT: [text]}), stream)
    # Not failed: the job of spark-submit would end with an error, and the other slices are to be compared.
    status = SliceStatus.BLOCKED if found.error else SliceStatus.DONE
    return SliceResult(slice=str(work), status=status, detail=found.error, records=found.counts.records)


def read_proof(job: WindowJob, index: int, io: FileIO) -> ProofSlice:
    """Return what the task of a slice found.

    :raises FileNotFoundError: it ended without a result
    """
    with io.new_input(result_path(job, index)).open() as stream:
        values = json.loads(pq.read_table(stream).column(_RESULT)[0].as_py())
    return ProofSlice(**{**values, "counts": Counts(**values["counts"])})


def result_path(job: WindowJob, index: int) -> str:
    """Return the place of a slice's result, in the first table of the slice."""
    work = job.plan.slices[index]
    target = _target(job, work.tables[0])
    attempt: UUID = attempt_id(work.slice_id, uuid5(job.job_id, str(work.slice_id)))
    name = file_name(attempt, file_mark(target.uuid, job.landing.name, job.plan.lane), 0)
    return Layout(target, job.landing.connections.location_providers).locations.new_data_location(name)


def _target(job: WindowJob, table: str) -> TableTarget:
    return next(t for t in job.plan.targets if t.table == table)
