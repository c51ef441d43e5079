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
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import cast
from uuid import UUID

import numpy as np
import pyarrow as pa
from confluent_kafka import Message
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import (
    OffsetRange,
    ReadPosition,
    Role,
    Slice,
    SliceReport,
    Span,
    TableTarget,
    add_names,
    tables_for,
)
from airflow_provider_lakecommit.exceptions import AccountingError, LakecommitError, RecordsError, TableError
from airflow_provider_lakecommit.formats import Block, cased_names, odd_times
from airflow_provider_lakecommit.iceberg import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import file_io
from airflow_provider_lakecommit.spark.chunks import Chunk, Run, narrowest, offset_of, part_of, position_behind
from airflow_provider_lakecommit.spark.dead_letters import dead_letters
from airflow_provider_lakecommit.spark.decoders import block_decoder, with_schemas
from airflow_provider_lakecommit.spark.failures import passes
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob, note_decoded
from airflow_provider_lakecommit.spark.key_columns import key_columns
from airflow_provider_lakecommit.spark.metadata import lost_times, with_metadata
from airflow_provider_lakecommit.spark.read import BATCH_RECORDS, SliceReader
from airflow_provider_lakecommit.spark.report import report_of
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
class SliceOutcome:
    """The result of an attempt. The report's ``spans`` are those of the slice, or the part read before it was stopped;
    its ``tables`` are still empty. A blocked slice has no files, and may cover a part of the slice. ``tombstones`` are
    files with the keys that an upserting landing's slice deletes. ``offsets`` of a proof are those of its records.
    """

    report: SliceReport
    files: Mapping[str, list[DataFile]] = field(default_factory=dict)
    tombstones: Sequence[DataFile] = ()
    offsets: Sequence[int] = ()

    @property
    def rows(self) -> dict[str, int]:
        """Return the rows of each table."""
        return {name: sum(f.record_count for f in made) for name, made in self.files.items()}


def run_slice(
    job: WindowJob,
    secrets: Secrets,
    part: Slice,
    attempt: UUID,
    *,
    progress: Callable[[str], None] = lambda _text: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SliceOutcome:
    """Do a slice of the job, or a part of one.

    :param attempt: names the files
    :param progress: called with a line from time to time
    :param should_stop: called often; True stops the attempt
    :raises SourceError, SourceUnavailableError: see :mod:`~airflow_provider_lakecommit.spark.read`
    :raises SliceStopped: ``should_stop`` was true, and there is nothing to keep
    """
    run = _SliceRun(job, secrets, part, attempt)
    try:
        made = SliceReader(secrets.kafka, part.spans, should_stop=should_stop, known=job.plan.positions)
        with run.decoders, made as reader:
            run.consume(reader, progress)
        if reader.stopped:
            run.totals.end_at(reader.reached)
            if not run.totals.span_numbers or run.totals.blocked_at_the_end():
                raise SliceStopped("LC5038", f"slice {part} was stopped; the next attempt reads it again")
        return run.outcome(reader.observed)
    except BaseException:
        run.abort()
        raise


class _SliceRun:
    """The state of one attempt. Its plan must have all existing data tables: their schemas decide the rejects, even if
    only dead letters of a span are missing.
    """

    def __init__(self, job: WindowJob, secrets: Secrets, part: Slice, attempt: UUID) -> None:
        self._job, self._slice, self._attempt = job, part, attempt
        self._landing = landing = job.landing
        targets = {t.table: t for t in job.plan.targets}
        missing = {landing.table, *part.tables} - set(targets)
        if missing:
            raise TableError(
                "LC5037", f"slice {part}: the plan lacks schema and location of {', '.join(sorted(missing))}"
            )
        data = landing.data_tables
        schemas = {n: Schema.model_validate_json(t.schema) for n, t in targets.items()}
        self._schemas = {n: schema for n, schema in schemas.items() if n in data}
        self._upserts = UpsertDecoder(landing, schemas[landing.table]) if landing.upsert.key else None
        if self._upserts:
            self._schemas[landing.table] = self._upserts.schema
        self._dead = {n: schema for n, schema in schemas.items() if n not in data}
        self._decoder = block_decoder(landing, self._schemas, secrets.kafka)
        self._unknown = UnknownPaths(None if landing.evolve == "none" else self._decoder)
        self._keys = {n: key_columns(landing, schema, secrets.kafka) for n, schema in self._schemas.items()}
        self.decoders = ExitStack()
        self.decoders.callback(self._decoder.close)
        for keys in self._keys.values():
            self.decoders.callback(keys.close)

        def writer(target: TableTarget, numbers: Iterator[int]) -> FanoutWriter:
            return FanoutWriter(
                target,
                file_io(secrets.io_of(target.table)),
                attempt,
                owner=(landing.name, job.plan.lane),
                providers=landing.connections.location_providers,
                numbers=numbers,
            )

        numbers = {name: count() for name in part.tables}
        self._writers = {name: writer(targets[name], numbers[name]) for name in part.tables}
        self._tombstones: FanoutWriter | None = None
        self._changes: LastChanges | None = None
        if self._upserts and (table := landing.table) in self._writers:
            self._tombstones = writer(tombstone_target(landing, targets[table]), numbers[table])
            self._changes = LastChanges(landing, targets[table], self._writers[table], self._tombstones)
        self.totals = SliceTotals(part, landing, sum(map(len, job.plan.slices)))
        self._clock, self._offsets = CostClock(), list[int]()

    def consume(self, reader: SliceReader, progress: Callable[[str], None]) -> None:
        """Land the records of the reader, until its end or until the slice is certainly blocked."""
        reported = 0
        for read in reader.read():
            # After a reject in smaller chunks: if all records are bad, a few suffice to know it.
            many = len(read.messages)
            step = CAREFUL_RECORDS if self.totals.rejected else max(1, many)
            for start in range(0, many, step):
                chunk = read if step >= many else part_of(read, start, min(start + step, many))
                self._clock.lap("read")
                try:
                    self._land(chunk)
                except Exception as e:
                    if passes(e) or isinstance(e, AccountingError):
                        raise
                    raise self._spoilt(chunk, e) from e
                records = self.totals.records
                note_decoded(self._slice, records)
                if records - reported >= PROGRESS_RECORDS:
                    reported = records
                    progress(f"slice {self._slice}: {records} of at most {len(self._slice)} records read")
                if self.totals.blocked() and len(self._slice) - records > BATCH_RECORDS:
                    self.totals.partly = True
                    return

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
        return replace(self._slice.spans[run.span], range=OffsetRange(first, last + 1))

    def _land(self, chunk: Chunk) -> None:
        totals = self.totals
        messages, values, positions = self._valued(chunk)
        totals.bytes += chunk.bytes
        decoded = self._decoded(messages, values)
        totals.count(chunk, positions, decoded)
        self._offsets += map(offset_of, chunk.messages) if self._job.proof else ()
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
            for name, table in self._made(messages, decoded, totals.ignored):
                if self._changes and name == self._landing.table:
                    spans = np.repeat([r.span for r in chunk.runs], [r.end - r.start for r in chunk.runs])
                    self._changes.add(table, spans[np.asarray(decoded.tables[name].records, np.int64)])
                else:
                    self._writers[name].write(table)
            self._clock.lap("write")

    def _valued(self, chunk: Chunk) -> tuple[Sequence[Message], Sequence[bytes | None], Sequence[int]]:
        """Return the records with a value, their values for the decoder, and their positions in the chunk; of an
        upserting landing all records.
        """
        messages, positions = chunk.messages, range(len(chunk.messages))
        if self._upserts:
            return messages, chunk.values, positions
        values = [v for v in chunk.values if v is not None]
        if len(values) == len(messages):
            return messages, with_schemas(self._landing, messages, values), positions
        some = [i for i, v in enumerate(chunk.values) if v is not None]
        messages = [messages[i] for i in some]
        return messages, with_schemas(self._landing, messages, values), some

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
                    table = with_metadata(table, self._schemas[name], of_rows, filled, self._job.plan.generation)
                    if ignored is not None and (lost := lost_times(table, of_rows, filled)):
                        ignored[LOST_TIMES] += lost
                yield name, table
        for name in tables_for(landing.destinations, Role.DEAD_LETTERS):
            if decoded.rejects and name in self._writers:
                schema = self._dead[name]
                yield name, dead_letters(landing.name, messages, decoded.rejects, self._job.plan.generation, schema)

    def outcome(self, observed: Mapping[int, ReadPosition]) -> SliceOutcome:
        """Close the files, and return them with the report; delete them if the slice is blocked.

        :param observed: by number of each span, the end of its newest record with a known leader epoch
        :raises AccountingError: the counts do not add up
        """
        totals, epochs = self.totals, self._job.plan.leader_epochs
        if self._changes and not totals.blocked_at_the_end():
            self._changes.flush()
            totals.settle(self._landing.table, self._changes.superseded, self._changes.deleted)
        spans = []
        for n, span in zip(totals.span_numbers, totals.reports(), strict=True):
            position = observed.get(n)
            if not totals.partly:
                position = position_behind(span.span, position, epochs.get(span.span.partition))
            spans.append(replace(span, position=position))
        if blocked := totals.blocked_at_the_end():
            self.abort()
        report = partial(
            report_of,
            self._job,
            self._slice,
            self._attempt,
            spans=tuple(spans),
            rejects=dict(totals.rejects.kinds),
            reject_reason=totals.rejects.reason,
            unknown_at=self._unknown.found,
        )
        if blocked:
            return SliceOutcome(report=report(blocked=totals.describe(blocked)))
        files = {name: writer.close() for name, writer in self._writers.items()}
        tombstones = self._tombstones.close() if self._tombstones else []
        self._clock.lap("write")
        cost = self._clock.cost(sum(f.file_size_in_bytes for made in files.values() for f in made))
        done = report(bytes=totals.bytes, ignored_fields=dict(totals.ignored), cost=cost)
        outcome = SliceOutcome(report=done, files=files, tombstones=tombstones, offsets=self._offsets)
        totals.check_rows(outcome.rows)
        return outcome

    def abort(self) -> None:
        """Delete all files."""
        for writer in (*self._writers.values(), *((self._tombstones,) if self._tombstones else ())):
            writer.abort()
