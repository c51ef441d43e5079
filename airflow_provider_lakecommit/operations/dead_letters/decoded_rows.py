# SPDX-License-Identifier: Apache-2.0
"""Convert dead letters to rows of the data table, as the landing decodes now.

Contract: decoder and writer are those of a window, with the table's current schema, spec and properties, so a replayed
record becomes the row that it would have been. Records that are rejected again have their new reason. Files have an
owner of their own, so a sweep of the landing's windows never touches them.

Failure story: :meth:`Rows.abort` deletes written files; a killed process leaves files that no table has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import (
    REPLAY,
    Coverage,
    OffsetRange,
    Provenance,
    RowsPerOffset,
    SourcePartition,
    TableTarget,
    attempt_id,
)
from airflow_provider_lakecommit.cycle import LandingSession, target_of
from airflow_provider_lakecommit.iceberg import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import file_io
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import DeadLetter
from airflow_provider_lakecommit.operations.dead_letters.open_set import OpenSet
from airflow_provider_lakecommit.spark import block_decoder, marks_of, with_metadata, with_schemas
from airflow_provider_lakecommit.spark.key_columns import key_columns


@dataclass(slots=True, kw_only=True)
class Rows:
    """What some dead letters came to. ``landed`` are those that gave a row, ``filtered`` those that gave none and are
    no rejects, and ``coverage`` is that of both; ``refused`` counts the others by kind and column, ``reasons`` has one
    reason for each of these.
    """

    landed: list[DeadLetter] = field(default_factory=list)
    filtered: list[DeadLetter] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    provenance: tuple[Provenance, ...] = ()
    files: tuple[DataFile, ...] = ()
    target: TableTarget | None = None
    writer: FanoutWriter | None = None

    @property
    def done(self) -> list[DeadLetter]:
        """Return those that are no longer open once the rows are in the table."""
        return [*self.landed, *self.filtered]

    def abort(self) -> None:
        if self.writer is not None:
            self.writer.abort()


def _provenance(made: Rows, open_set: OpenSet, columns: tuple[int, ...]) -> Iterator[Provenance]:
    """Yield the ledger's provenance of the rows, by reading; nothing for dead letters with an unknown reading."""
    one_each = made.rows == len(made.landed)
    for dead_letters, count in ((made.landed, 1), (made.filtered, 0)):
        by_reading: dict[int | None, list[tuple[SourcePartition, OffsetRange]]] = {}
        for letter in dead_letters:
            partition, generation = open_set.reading(letter)
            by_reading.setdefault(generation, []).append((partition, letter.offsets))
        for generation, positions in by_reading.items():
            if generation is not None:
                coverage = Coverage.of(positions)
                entry = Provenance.counted(generation, coverage, count * len(coverage), columns)
                yield entry if one_each or not count else replace(entry, columns=(), per_offset=RowsPerOffset.MIXED)


def made_of(
    session: LandingSession, table: Table, dead_letters: Sequence[DeadLetter], open_set: OpenSet, *, write: bool
) -> Rows:
    """Decode, and write on request."""
    out, landing, kafka, new_id = Rows(), session.landing, session.kafka, session.new_id()
    target = target_of(landing.table, table, new_id)
    schema = Schema.model_validate_json(target.schema)
    decoder = block_decoder(landing, {landing.table: schema}, kafka)
    keys = key_columns(landing, schema, kafka)
    with closing(decoder), closing(keys):
        values = with_schemas(landing, dead_letters, [letter.value() or b"" for letter in dead_letters])
        block = decoder.decode(values).extended(lambda _, decoded: keys.added(decoded, dead_letters))
    decoded = block.tables[landing.table]
    indexes = range(decoded.table.num_rows) if decoded.records is None else decoded.records
    out.landed = [dead_letters[i] for i in dict.fromkeys(indexes)]
    out.filtered = [dead_letters[i] for i in block.filtered]
    for reject in block.rejects:
        kind = f"{reject.kind}:{reject.column}" if reject.column else reject.kind
        out.refused[kind] += 1
        out.reasons.setdefault(kind, reject.reason)
    out.rows = decoded.table.num_rows
    out.coverage = Coverage.of((open_set.reading(letter)[0], letter.offsets) for letter in out.done)
    out.provenance = tuple(_provenance(out, open_set, marks_of(landing, landing.table, schema)))
    if not write or not out.rows:
        return out
    of_rows = [dead_letters[i] for i in indexes]
    generations = [open_set.reading(letter)[1] for letter in of_rows]
    rows = with_metadata(decoded.table, schema, of_rows, landing.record_columns, generations)
    attempt = attempt_id(new_id, new_id)
    out.target = target
    out.writer = FanoutWriter(
        target,
        file_io(session.tables.storage(landing.table).properties),
        attempt,
        owner=(landing.name, REPLAY),
        providers=landing.connections.location_providers,
    )
    try:
        out.writer.write(rows)
        out.files = tuple(out.writer.close())
    except BaseException:
        out.abort()
        raise
    return out
