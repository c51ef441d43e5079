# SPDX-License-Identifier: Apache-2.0
"""Convert dead letters to rows of the data table, as the landing decodes now.

Contract: decoder and writer are those of a window, with the table's current schema, spec and properties, so a replayed
record becomes the row that it would have been. Records that are rejected again have their new reason. Files have an
owner of their own, so a sweep of the landing's windows never touches them.

Failure story: :meth:`Rows.abort` deletes written files; a killed process leaves files that no table has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import (
    REPLAY,
    Coverage,
    OffsetRange,
    Provenance,
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
    no rejects, and ``coverage`` is that of both; ``counted`` has the rows of each, by the generation of its reading if
    that is known. ``refused`` counts the others by kind and column, ``reasons`` has one reason for each of these.
    """

    landed: list[DeadLetter] = field(default_factory=list)
    filtered: list[DeadLetter] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    rows: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    counted: Mapping[int, Sequence[tuple[SourcePartition, OffsetRange, int]]] = field(default_factory=dict)
    columns: tuple[int, ...] = ()
    files: tuple[DataFile, ...] = ()
    target: TableTarget | None = None
    writer: FanoutWriter | None = None

    @property
    def done(self) -> list[DeadLetter]:
        """Return those that are no longer open once the rows are in the table."""
        return [*self.landed, *self.filtered]

    def provenance(self, covered: Coverage) -> Iterator[Provenance]:
        """Yield the ledger's provenance of the rows of these offsets, by reading: of records with no row, one row and
        several rows apart, because the number of rows of a part is known only if each offset has the same.
        """
        for g, some in self.counted.items():
            here = [(p, offsets, rows) for p, offsets, rows in some if covered[p].covers(offsets)]
            for least in sorted({min(rows, 2) for _, _, rows in here}):
                part = [o for o in here if min(o[2], 2) == least]
                yield Provenance.counted(g, Coverage.of(o[:2] for o in part), sum(o[2] for o in part), self.columns)

    def abort(self) -> None:
        if self.writer is not None:
            self.writer.abort()


def _counted(
    rows_by_place: Mapping[int, int], dead_letters: Sequence[DeadLetter], open_set: OpenSet
) -> dict[int, list[tuple[SourcePartition, OffsetRange, int]]]:
    found: dict[int, list[tuple[SourcePartition, OffsetRange, int]]] = {}
    for place, rows in rows_by_place.items():
        partition, generation = open_set.reading(dead_letters[place])
        if generation is not None:
            found.setdefault(generation, []).append((partition, dead_letters[place].offsets, rows))
    return found


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
    rows_of = Counter(indexes)
    out.landed = [dead_letters[i] for i in rows_of]
    out.filtered = [dead_letters[i] for i in block.filtered]
    for reject in block.rejects:
        kind = f"{reject.kind}:{reject.column}" if reject.column else reject.kind
        out.refused[kind] += 1
        out.reasons.setdefault(kind, reject.reason)
    out.rows = decoded.table.num_rows
    out.coverage = Coverage.of((open_set.reading(letter)[0], letter.offsets) for letter in out.done)
    out.counted = _counted({**rows_of, **dict.fromkeys(block.filtered, 0)}, dead_letters, open_set)
    out.columns = marks_of(landing, landing.table, schema)
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
