# SPDX-License-Identifier: Apache-2.0
"""One attempt at one slice: read its spans, decode, write, account.

Contract: :func:`run_slice` either returns an outcome whose files hold exactly the records of the spans, or leaves no
file behind. All records are accounted for (:mod:`~airflow_provider_lakecommit.spark.totals`), else it is an
:class:`~airflow_provider_lakecommit.exceptions.AccountingError`.

A slice over its dead-letter budget, or with any reject without a dead-letter table, is *blocked*: no files, but the
cause, the first offsets and their reasons. Once that is certain, reading stops, unless it is about to end: a small
slice is counted completely. The caller cuts it again or reports it. Under a budget that a user raised, rejects without
a dead-letter table are skipped.

If the caller stops it early, the outcome is that of a smaller slice: the records read so far.

Failure story: on any error, the files of this attempt are deleted first; they were never reported. If processing
raises, a :class:`~airflow_provider_lakecommit.exceptions.RecordsError` names the offending record if it can be
isolated, else those handled together. :class:`SliceStopped` is raised if the caller stopped it before anything was
read, or if the part read has too many rejects for a slice of its own: another attempt reads the spans again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import (
    LIVE,
    OffsetRange,
    ReadPosition,
    Role,
    Slice,
    SliceCost,
    SourcePartition,
    Span,
    SpanReport,
    TableTarget,
    add_names,
    tables_for,
)
from airflow_provider_lakecommit.exceptions import AccountingError, LakecommitError, RecordsError, TableError
from airflow_provider_lakecommit.formats import Block, cased_names, odd_times
from airflow_provider_lakecommit.iceberg import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import file_io
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.chunks import Chunk, Run, narrowest, offset_of, part_of, position_behind
from airflow_provider_lakecommit.spark.dead_letters import dead_letters
from airflow_provider_lakecommit.spark.decoders import block_decoder, with_schemas
from airflow_provider_lakecommit.spark.failures import passes
from airflow_provider_lakecommit.spark.job import WindowJob, note_decoded
from airflow_provider_lakecommit.spark.key_columns import key_columns
from airflow_provider_lakecommit.spark.metadata import lost_times, with_metadata
from airflow_provider_lakecommit.spark.read import BATCH_RECORDS, SliceReader
from airflow_provider_lakecommit.spark.totals import CostClock, SliceTotals
from airflow_provider_lakecommit.spark.unknown_paths import UnknownPaths, with_types
from airflow_provider_lakecommit.spark.upserts import LastChanges, UpsertDecoder, tombstone_target

LOST_TIMES = "kafka_timestamp (beyond the years 1 to 9999)"
"""The name under which records with a timestamp that no table can hold count among the ignored fields."""
PROGRESS_RECORDS = 100_000
CAREFUL_RECORDS = 1_000


class SliceStopped(LakecommitError):
    """The slice was stopped, and nothing of it was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceWork:
    """The work of an attempt. ``attempt`` names the files.

    ``targets`` holds the tables of ``slice.tables``, and always all existing data tables: their schemas decide the
    rejects, even if only dead letters of a span are missing. ``known`` are earlier positions of partitions,
    ``leader_epochs`` those of the leaders that reported the ends, ``generation`` that of the reading. ``window`` is the
    number of offsets of all slices.
    """

    landing: Landing
    slice: Slice
    targets: tuple[TableTarget, ...]
    attempt: UUID
    known: Mapping[SourcePartition, ReadPosition] = field(default_factory=dict)
    leader_epochs: Mapping[SourcePartition, int] = field(default_factory=dict)
    lane: str = LIVE
    generation: int | None = None
    window: int = 0

    @classmethod
    def of(cls, job: WindowJob, slice: Slice, attempt: UUID, *, window: int | None = None) -> SliceWork:
        """Return the work of an attempt at a slice of the job, or at a part of one.

        :param window: number of offsets of all slices, if the job has only one of them
        """
        return cls(
            landing=job.landing,
            slice=slice,
            targets=job.plan.targets,
            attempt=attempt,
            known=job.plan.positions,
            leader_epochs=job.plan.leader_epochs,
            lane=job.plan.lane,
            generation=job.plan.generation,
            window=sum(map(len, job.plan.slices)) if window is None else window,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOutcome:
    """The result of an attempt: ``spans`` are those of the slice, or the part read before it was stopped. ``bytes`` are
    those of the record values; a ``blocked`` outcome has no files, and may cover a part of the slice. ``rejected`` are
    the first rejects with place and reason, ``rejects`` counts all by kind and column, ``reject_reason`` is the most
    frequent one. ``unknown_at`` is the place of the first field of each unknown path. ``tombstones`` are files with the
    keys that an upserting landing's slice deletes.
    """

    spans: tuple[SpanReport, ...]
    files: Mapping[str, list[DataFile]]
    rows: Mapping[str, int]
    bytes: int
    ignored_fields: Mapping[str, int]
    blocked: str | None
    rejected: tuple[str, ...]
    cost: SliceCost
    rejects: Mapping[str, int] = field(default_factory=dict)
    reject_reason: str = ""
    unknown_at: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    tombstones: Sequence[DataFile] = ()


def run_slice(
    work: SliceWork,
    kafka: Mapping[str, Any],
    io_of: Callable[[str], Mapping[str, str]],
    *,
    progress: Callable[[str], None] = lambda _text: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SliceOutcome:
    """Do the slice.

    :param kafka: librdkafka settings of the source
    :param io_of: storage properties of a table for :func:`pyiceberg.io.load_file_io`
    :param progress: called with a line from time to time
    :param should_stop: called often; True stops the attempt
    :raises SourceError, SourceUnavailableError: see :mod:`~airflow_provider_lakecommit.spark.read`
    :raises SliceStopped: ``should_stop`` was true, and there is nothing to keep
    """
    return _SliceRun(work, io_of, kafka).run(kafka, progress, should_stop)


class _SliceRun:
    """The state of one attempt."""

    def __init__(self, work: SliceWork, io_of: Callable[[str], Mapping[str, str]], kafka: Mapping[str, Any]) -> None:
        self._work = work
        self._landing = work.landing
        targets = {t.table: t for t in work.targets}
        missing = {work.landing.table, *work.slice.tables} - set(targets)
        if missing:
            raise TableError(
                "LC5037",
                f"slice {work.slice}: the plan lacks schema and location of {', '.join(sorted(missing))}",
            )
        data = work.landing.data_tables
        schemas = {n: Schema.model_validate_json(t.schema) for n, t in targets.items()}
        self._schemas = {n: schema for n, schema in schemas.items() if n in data}
        self._upserts = UpsertDecoder(work.landing, schemas[work.landing.table]) if work.landing.upsert.key else None
        if self._upserts:
            self._schemas[work.landing.table] = self._upserts.schema
        self._dead = {n: schema for n, schema in schemas.items() if n not in data}
        self._decoder = block_decoder(work.landing, self._schemas, kafka)
        self._unknown = UnknownPaths(None if work.landing.evolve == "none" else self._decoder)
        self._keys = {n: key_columns(work.landing, schema, kafka) for n, schema in self._schemas.items()}

        def writer(target: TableTarget, numbers: Iterator[int]) -> FanoutWriter:
            return FanoutWriter(
                target,
                file_io(io_of(target.table)),
                work.attempt,
                owner=(work.landing.name, work.lane),
                providers=work.landing.connections.location_providers,
                numbers=numbers,
            )

        numbers = {name: count() for name in work.slice.tables}
        self._writers = {name: writer(targets[name], numbers[name]) for name in work.slice.tables}
        self._tombstones: FanoutWriter | None = None
        self._changes: LastChanges | None = None
        if self._upserts and (table := work.landing.table) in self._writers:
            self._tombstones = writer(tombstone_target(work.landing, targets[table]), numbers[table])
            self._changes = LastChanges(work.landing, targets[table], self._writers[table], self._tombstones)
        self._totals = SliceTotals(work.slice, work.landing, work.window)
        self._clock = CostClock()

    def run(
        self, kafka: Mapping[str, Any], progress: Callable[[str], None], should_stop: Callable[[], bool]
    ) -> SliceOutcome:
        try:
            work = self._work
            made = SliceReader(kafka, work.slice.spans, should_stop=should_stop, known=work.known)
            with closing(self._decoder), ExitStack() as stack, made as reader:
                for keys in self._keys.values():
                    stack.callback(keys.close)
                self._consume(reader, progress)
            if reader.stopped:
                self._end_early(reader.reached)
            return self._outcome(reader.observed)
        except BaseException:
            self._abort()
            raise

    def _end_early(self, reached: Mapping[int, int]) -> None:
        self._totals.end_at(reached)
        if not self._totals.span_numbers or self._totals.blocked_at_the_end():
            raise SliceStopped("LC5038", f"slice {self._work.slice} was stopped; the next attempt reads it again")

    def _consume(self, reader: SliceReader, progress: Callable[[str], None]) -> None:
        reported = 0
        for chunk in self._chunks(reader):
            self._clock.lap("read")
            try:
                self._land(chunk)
            except Exception as e:
                if passes(e) or isinstance(e, AccountingError):
                    raise
                raise self._spoilt(chunk, e) from e
            records = self._totals.records
            note_decoded(self._work.slice, records)
            if records - reported >= PROGRESS_RECORDS:
                reported = records
                progress(f"slice {self._work.slice}: {records} of at most {len(self._work.slice)} records read")
            if self._totals.blocked() and len(self._work.slice) - records > BATCH_RECORDS:
                self._totals.partly = True
                return

    def _chunks(self, reader: SliceReader) -> Iterator[Chunk]:
        """Yield smaller chunks after a reject: if all records are bad, a few suffice to know it."""
        for chunk in reader.read():
            many, step = len(chunk.messages), CAREFUL_RECORDS
            if not self._totals.rejected or many <= step:
                yield chunk
            else:
                yield from (part_of(chunk, start, min(start + step, many)) for start in range(0, many, step))

    def _spoilt(self, chunk: Chunk, error: Exception) -> RecordsError:
        """Return which records raised an exception: the first that does so alone, or all that were handled together."""

        def fails(part: Chunk) -> bool:
            with suppress(Exception):
                messages, values, _ = self._valued(part)
                for _ in self._made(messages, self._decoded(messages, values)):
                    pass
                return False
            return True

        least = narrowest(chunk, fails)
        spans = tuple(self._span(least, run) for run in least.runs)
        where = " ".join(map(str, spans))
        return RecordsError("LC5039", f"{where}: {type(error).__name__}: {error}", spans)

    def _span(self, chunk: Chunk, run: Run) -> Span:
        first, last = offset_of(chunk.messages[run.start]), offset_of(chunk.messages[run.end - 1])
        return replace(self._work.slice.spans[run.span], range=OffsetRange(first, last + 1))

    def _land(self, chunk: Chunk) -> None:
        totals = self._totals
        messages, values, positions = self._valued(chunk)
        totals.bytes += chunk.bytes
        decoded = self._decoded(messages, values)
        totals.count(chunk, positions, decoded)
        add_names(totals.ignored, decoded.ignored)
        for name, rows in decoded.tables.items():
            # SQL may change times and names freely.
            if self._landing.transform_of(name) is None:
                totals.count_suspects(odd_times(rows.table, self._landing.timestamps), cased_names(rows))
        totals.rejects.add(messages, decoded.rejects)
        # No field is in a tombstone, nor in an empty value.
        self._unknown.add(messages, [v or b"" for v in values] if self._upserts else cast(list[bytes], values), decoded)
        self._clock.lap("decode")
        if not totals.blocked():
            self._write(chunk, messages, decoded)
            self._clock.lap("write")

    def _valued(self, chunk: Chunk) -> tuple[Sequence[Message], Sequence[bytes | None], Sequence[int]]:
        """Return the records with a value, their values for the decoder, and their positions in the chunk; of an
        upserting landing all records.
        """
        if self._upserts:
            return chunk.messages, chunk.values, range(len(chunk.messages))
        messages, values, positions = _valued(chunk)
        return messages, with_schemas(self._landing, messages, values), positions

    def _decoded(self, messages: Sequence[Message], values: Sequence[bytes | None]) -> Block:
        if self._upserts:
            table = self._landing.table

            def decode(positions: Sequence[int]) -> Block:
                some = [values[i] or b"" for i in positions]
                return self._decoder.decode(with_schemas(self._landing, [messages[i] for i in positions], some))

            block = self._upserts.decode(values, decode, lambda rows: self._keys[table].added(rows, messages))
        else:
            found = self._decoder.decode(cast(Sequence[bytes], values))
            block = found.extended(lambda name, rows: self._keys[name].added(rows, messages))
        if self._landing.evolve == "none" or not block.rejects:
            return block
        return replace(block, rejects=with_types(block.rejects, self._schemas.values()))

    def _write(self, chunk: Chunk, messages: Sequence[Message], decoded: Block) -> None:
        for name, table in self._made(messages, decoded, self._totals.ignored):
            if self._changes and name == self._landing.table:
                spans = np.repeat([r.span for r in chunk.runs], [r.end - r.start for r in chunk.runs])
                self._changes.add(table, spans[np.asarray(decoded.tables[name].records, np.int64)])
            else:
                self._writers[name].write(table)

    def _made(
        self, messages: Sequence[Message], decoded: Block, ignored: Counter[str] | None = None
    ) -> Iterator[tuple[str, pa.Table]]:
        """Return the rows for each table.

        :param ignored: counts times that no table can hold
        """
        landing = self._landing
        for name, rows in decoded.tables.items():
            if name in self._writers:
                table = rows.table
                if filled := landing.record_columns:
                    of_rows = messages if rows.records is None else [messages[i] for i in rows.records]
                    table = with_metadata(table, self._schemas[name], of_rows, filled, self._work.generation)
                    if ignored is not None and (lost := lost_times(table, of_rows, filled)):
                        ignored[LOST_TIMES] += lost
                yield name, table
        for name in tables_for(landing.destinations, Role.DEAD_LETTERS):
            if decoded.rejects and name in self._writers:
                schema = self._dead[name]
                yield name, dead_letters(landing.name, messages, decoded.rejects, self._work.generation, schema)

    def _position(self, span: Span, observed: ReadPosition | None) -> ReadPosition | None:
        if self._totals.partly:
            return observed
        return position_behind(span, observed, self._work.leader_epochs.get(span.partition))

    def _outcome(self, observed: Mapping[int, ReadPosition]) -> SliceOutcome:
        totals = self._totals
        if self._changes and not totals.blocked_at_the_end():
            self._changes.flush()
            totals.settle(self._landing.table, self._changes.superseded, self._changes.deleted)
        spans = tuple(
            replace(r, position=self._position(r.span, observed.get(n)))
            for n, r in zip(totals.span_numbers, totals.reports(), strict=True)
        )
        blocked = totals.blocked_at_the_end()
        files: dict[str, list[DataFile]] = {}
        tombstones: list[DataFile] = []
        if blocked:
            blocked = totals.describe(blocked)
            self._abort()
        else:
            files = {name: writer.close() for name, writer in self._writers.items()}
            tombstones = self._tombstones.close() if self._tombstones else []
        rows = {name: sum(f.record_count for f in made) for name, made in files.items()}
        totals.check_rows(rows)
        self._clock.lap("write")
        return SliceOutcome(
            spans=spans,
            files=files,
            rows=rows,
            bytes=totals.bytes,
            ignored_fields=dict(totals.ignored),
            blocked=blocked,
            rejected=tuple(totals.rejects.samples),
            cost=self._clock.cost(sum(f.file_size_in_bytes for made in files.values() for f in made)),
            rejects=dict(totals.rejects.kinds),
            reject_reason=totals.rejects.reason,
            unknown_at=self._unknown.found,
            tombstones=tombstones,
        )

    def _abort(self) -> None:
        for writer in (*self._writers.values(), *((self._tombstones,) if self._tombstones else ())):
            writer.abort()


def _valued(chunk: Chunk) -> tuple[Sequence[Message], Sequence[bytes], Sequence[int]]:
    """Return the records with a value, their values, and their positions in the chunk."""
    messages, values = chunk.messages, [v for v in chunk.values if v is not None]
    if len(values) == len(messages):
        return messages, values, range(len(messages))
    positions = [i for i, v in enumerate(chunk.values) if v is not None]
    return [messages[i] for i in positions], values, positions
