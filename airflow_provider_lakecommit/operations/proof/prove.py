# SPDX-License-Identifier: Apache-2.0
"""Read landed records again from the source, and compare their rows with those of the tables.

It completes `verify`, which compares tables with their own ledgers, `verify --rows` (one row for each landed record)
and `verify --keys` (one row for each key): those find neither wrong values nor records that never arrived. A replay
reads the same way (:mod:`~airflow_provider_lakecommit.operations.backfill.replaying`), but writes.

Contract: each table is read as of one version of its metadata, its ledger included, so that landing and compaction may
continue. Spark tasks decode the ranges into scratch files (:mod:`~airflow_provider_lakecommit.spark.proof`), some
slices at a time; each slice is compared with the rows of its offsets, deletes applied. Tables, control topic and
ledgers are only read. Memory is bounded by a slice, and for `upsert` by the keys of all compared changes.

Failure story: the scratch files are deleted after each comparison, also after an error. If the proof is stopped or
killed, running tasks leave unknown files: the sweep removes them. A slice that cannot be read again is a finding: it
proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.core import LIVE, Coverage, OffsetRange, Plan, Role, Slice, Span, role_of, slice_id
from airflow_provider_lakecommit.cycle import LandingSession, secrets_for, vended_of
from airflow_provider_lakecommit.iceberg import Columns, delete_unused, opened
from airflow_provider_lakecommit.operations.proof.chosen import REASONS, Sample, source_has
from airflow_provider_lakecommit.operations.proof.compare import Differences, compare
from airflow_provider_lakecommit.operations.proof.keys import COMPACTED, UNDECIDED, Landed, compare_keys, newest_of
from airflow_provider_lakecommit.operations.proof.range_rows import HeadRows
from airflow_provider_lakecommit.operations.proof.source_plan import NOT_LANDED, ProofPlan, proof_plan
from airflow_provider_lakecommit.spark import ProofSlice, WindowJob, proof_target, read_proof, result_path
from airflow_provider_lakecommit.status import Finding, Severity

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark import Engine

SLICES_AT_ONCE = 16
"""Slices of one Spark job, whose scratch files exist at the same time."""
_TEXTS = {"lost": "lost", "doubled": "doubled", "altered": "altered", "foreign": "of no record", "stale": "outdated"}


@dataclass(slots=True, kw_only=True)
class Proof:
    """The result. ``records`` and ``bytes`` of the plan's ranges were read; ``dropped`` records are rejected, and no
    dead-letter table was compared. ``differences`` are by table, ``others`` are the ranges that were not compared, by
    table and reason, ``compacted`` rows whose record log compaction may have removed: the topic is compacted, or its
    settings cannot be read.
    """

    plan: ProofPlan
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    compacted: int = 0
    unread: list[str] = field(default_factory=list)
    differences: dict[str, Differences] = field(default_factory=dict)
    others: dict[str, Mapping[str, Coverage]] = field(default_factory=dict)

    def wrong(self) -> Iterator[tuple[str, str]]:
        """Yield the findings that are wrong, each with its table."""
        for name, found in self.differences.items():
            counts = [f"{found.counts[kind]} {text}" for kind, text in _TEXTS.items() if found.counts[kind]]
            if counts:
                some = "; ".join(map(str, found.examples))
                yield name, f"differs from the source: {', '.join(counts)} rows: {some}"
        first = next(iter(self.differences), "")
        yield from (
            (first, f"a range could not be read again, so nothing is known of it: {text}") for text in self.unread
        )

    def notes(self) -> Iterator[tuple[str, str]]:
        """Yield what was not compared, each with its table."""
        for name, others in self.others.items():
            for reason, c in others.items():
                yield name, f"{len(c)} offsets were not compared with the source, {REASONS[reason]}: {c}"
        for name, found in self.differences.items():
            if found.counts[UNDECIDED]:
                yield name, f"{found.counts[UNDECIDED]} keys are undecided: a change that was not compared may be newer"
        first = next(iter(self.differences), "")
        if self.plan.unlanded:
            yield first, f"{NOT_LANDED}: {self.plan.unlanded}"
        if self.compacted:
            yield first, f"{self.compacted} rows are of records that log compaction may have removed from the source"
        if self.dropped:
            yield first, f"{self.dropped} records are rejected, and no dead-letter table was compared for them"

    def to_dict(self) -> dict[str, Any]:
        return {
            "sampled": self.plan.sampled,
            "ranges": self.plan.coverage.to_dict(),
            "records": self.records,
            "bytes": self.bytes,
            "dropped": self.dropped,
            "compacted": self.compacted,
            "unread": list(self.unread),
            "tables": [
                {
                    "table": name,
                    "rows": found.rows,
                    **{kind: found.counts[kind] for kind in (*_TEXTS, UNDECIDED)},
                    "examples": [{n: getattr(e, n) for n in e.__dataclass_fields__} for e in found.examples],
                    "not_compared": {reason: c.to_dict() for reason, c in self.others.get(name, {}).items()},
                }
                for name, found in self.differences.items()
            ],
        }


def source_findings(
    session: LandingSession, sample: Sample, engine: Engine, progress: Callable[[str], None]
) -> tuple[Proof, list[Finding]]:
    """Compare with a started or a new engine; report the cost first.

    :raises LakecommitError: a table, the source or Spark is unavailable
    """
    plan = proof_plan(session, sample)
    for line in plan.lines():
        progress(line)
    if plan.readings:
        engine.start()
    work = _Work(session, plan, engine, progress)
    try:
        proof = work.run()
    except BaseException:
        # Its tasks end with it, and write no further file.
        engine.close()
        raise
    finally:
        work.clean()
    found = [Finding(level=Severity.WRONG, table=name, text=text) for name, text in proof.wrong()]
    return proof, found + [Finding(level=Severity.NOTE, table=name, text=text) for name, text in proof.notes()]


class _Work:
    def __init__(
        self, session: LandingSession, plan: ProofPlan, engine: Engine, progress: Callable[[str], None]
    ) -> None:
        self._session, self._plan, self._engine, self._progress = session, plan, engine, progress
        self._landing = session.landing
        self._proof = Proof(
            plan=plan,
            differences={n: Differences() for n in plan.tables},
            others={n: found.others for n, found in plan.ranges.items() if found.others},
        )
        self._jobs: list[WindowJob] = []
        self._kept: list[str] = []
        self._heads: dict[str, HeadRows] = {}
        self._removed: list[tuple[int, Coverage]] = []
        self._changes: tuple[list[str], list[str]] = ([], [])
        self._not_compared = Coverage()

    def run(self) -> Proof:
        done, total = 0, len(self._plan.coverage)
        for generation, parts in self._plan.readings.items():
            slices = [s for tables, c in parts.items() for s in self._slices(tables, c)]
            for at in range(0, len(slices), SLICES_AT_ONCE):
                some = slices[at : at + SLICES_AT_ONCE]
                self._batch(generation, some)
                done += sum(map(len, some))
                self._progress(f"{self._landing.name}: compared {done:,} of {total:,} offsets")
        if self._landing.upsert.key and self._plan.readings:
            self._compare_keys()
        return self._proof

    def _slices(self, tables: tuple[str, ...], coverage: Coverage) -> Iterator[Slice]:
        step = self._plan.per_slice
        for p, r in coverage.items():
            for start in range(r.start, r.end, step):
                spans = (Span(p, OffsetRange(start, min(r.end, start + step))),)
                own = slice_id(UUID(int=0), spans, tables)
                yield Slice(slice_id=own, group=0, spans=spans, tables=tables, budget=None)

    def _batch(self, generation: int, slices: Sequence[Slice]) -> None:
        job = self._job(generation, slices).begun()
        self._jobs.append(job)
        try:
            secrets = secrets_for(self._session.tables, self._session.kafka, [job], log=self._session.log)
            self._engine.run(job, secrets)
            for index, one in enumerate(slices):
                found = self._result(job, index)
                if found is None or found.error:
                    self._not_read(one, found.error if found else "its task left no result")
                else:
                    self._compare(generation, one, found)
        finally:
            self._clean(job, keep=bool(self._landing.upsert.key))
            self._jobs.remove(job)

    def _not_read(self, one: Slice, why: str) -> None:
        """Count a slice that was not read: the source may have removed records since the ranges were chosen."""
        self._not_compared |= one.coverage
        now = source_has(self._session.source.watermarks(missing_ok=True).partitions, ())
        if not one.coverage - now:
            self._proof.unread.append(f"{one}: {why}")
            return
        for name in one.tables:
            others = dict(self._proof.others.get(name, {}))
            others["gone"] = others.get("gone", Coverage()) | one.coverage
            self._proof.others[name] = others

    def _job(self, generation: int, slices: Sequence[Slice]) -> WindowJob:
        landing, targets = self._landing, tuple(map(proof_target, self._plan.targets))
        plan = Plan(
            landing=landing.name,
            lane=LIVE,
            spec_version=landing.spec_version,
            window_id=UUID(int=0),
            slices=tuple(slices),
            targets=targets,
            ends={},
            requested_at=self._session.now(),
            vended=vended_of(self._session.tables, [t.table for t in targets]),
            generation=generation,
        )
        return WindowJob(
            landing=landing,
            plan=plan,
            group=0,
            numbers=tuple(range(len(slices))),
            commit_id=self._session.new_id(),
            slot=0,
            catalog=self._session.tables.name,
            control_topic=self._session.control.name,
            control_partition=0,
            proof=True,
        )

    def _result(self, job: WindowJob, index: int) -> ProofSlice | None:
        with suppress(FileNotFoundError):
            return read_proof(job, index, self._io(job, index))
        return None

    def _io(self, job: WindowJob, index: int) -> Any:
        return self._plan.tables[job.plan.slices[index].tables[0]].io

    def _clean(self, job: WindowJob, *, keep: bool = False) -> None:
        for index in range(len(job.plan.slices)):
            if (found := self._result(job, index)) is None:
                continue
            io = self._io(job, index)
            if keep:
                self._kept += found.paths()
            else:
                delete_unused(io, found.paths())
            delete_unused(io, [result_path(job, index)])

    def clean(self) -> None:
        """Delete the scratch files that are left."""
        for job in list(self._jobs):
            self._clean(job)
        if self._kept:
            delete_unused(self._plan.tables[self._landing.table].io, self._kept)

    def _compare(self, generation: int, one: Slice, found: ProofSlice) -> None:
        proof, landing = self._proof, self._landing
        proof.records += found.counts.records
        proof.bytes += found.bytes
        proof.dropped += found.counts.skipped + found.counts.rejected * (landing.dead_letter_table not in one.tables)
        p, compacted = one.spans[0].partition, self._plan.compacted
        gaps = Coverage.of((p, OffsetRange(*gap)) for gap in found.gaps if p.topic in compacted)
        self._removed.append((generation, gaps))
        removed = pa.array(chain.from_iterable(range(r.start, r.end) for _, r in gaps.items()), pa.int64())
        for name in one.tables:
            keyed, rows = name == landing.table and bool(landing.upsert.key), self._rows(name)
            files = found.files.get(name, ())
            if keyed:
                self._changes[0].extend(files)
                self._changes[1].extend(found.tombstones)
            there = self._actual(rows, generation, one)
            gone = pc.is_in(there.column(rows.offset), removed)
            proof.compacted += 0 if keyed else pc.sum(gone).as_py() or 0
            diffs = compare(
                self._expected(rows, files),
                there.filter(pc.invert(gone)),
                (rows.topic, rows.partition, rows.offset),
                ignored=("reason",) if name == landing.dead_letter_table else (),
                only_common=keyed,
            )
            proof.differences[name].add(diffs)

    def _rows(self, name: str) -> HeadRows:
        if name not in self._heads:
            role = role_of(self._landing.destinations, name)
            self._heads[name] = HeadRows(self._plan.tables[name], name, self._landing.branch, role)
        return self._heads[name]

    def _expected(self, rows: HeadRows, paths: Sequence[str]) -> pa.Table:
        parts = []
        for path in paths:
            with opened(rows.table.io, path, None) as made:
                parts += [made.group(n, made.schema.names) for n in range(len(made.group_rows))]
        return pa.concat_tables(parts).rename_columns(rows.schema.names) if parts else rows.schema.empty_table()

    def _actual(self, rows: HeadRows, generation: int, one: Slice) -> pa.Table:
        """Return the rows of a slice's offsets, without those that other readings or landings made."""
        ranges, found = self._plan.ranges[rows.name], rows.read(one.spans)
        reading = found.column(rows.generation)
        others = pc.is_in(reading, pa.array(sorted(ranges.generations - {generation}), pa.int64()))
        if ranges.unmarked:
            others = pc.or_(others, pc.is_null(reading))
        if role_of(self._landing.destinations, rows.name) is Role.DEAD_LETTERS:
            others = pc.or_(others, pc.not_equal(found.column("landing"), self._landing.name))
        return found.filter(pc.invert(others))

    def _compare_keys(self) -> None:
        landing, rows = self._landing, self._rows(self._landing.table)
        columns = Columns(rows.table.schema(), tuple(landing.upsert.key), landing.upsert.order_column)
        parts = self._plan.readings.items()
        planned = {g: Coverage.union(c for tables, c in by.items() if rows.name in tables) for g, by in parts}
        own = {g: c - self._not_compared for g, c in planned.items()}
        landed = Landed.of(self._plan.sections, self._plan.ranges[rows.name], own)
        changes = newest_of(rows.table.io, *self._changes, columns, landed)
        self._progress(f"{rows.name}: comparing the newest change of {len(changes.is_delete):,} keys")
        diffs = compare_keys(rows, changes, columns, landed, self._removed)
        self._proof.compacted += diffs.counts.pop(COMPACTED, 0)
        self._proof.differences[rows.name].add(diffs)
