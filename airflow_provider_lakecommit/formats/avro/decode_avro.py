# SPDX-License-Identifier: Apache-2.0
"""Avro values to rows of the table: every value is either one exact row or one reject with its reason.

A block may hold records of several schemas, named by their first bytes and fetched once, or all have the landing's
schema. Records of a schema are read together (:mod:`~airflow_provider_lakecommit.formats.avro.block`), but judged each
by itself. Rows are in the order of their values. Unknown fields are counted by path, or reject the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.avro.block import OctetBlock, pieces
from airflow_provider_lakecommit.formats.avro.nested import ReadColumns
from airflow_provider_lakecommit.formats.avro.resolve import Resolver
from airflow_provider_lakecommit.formats.avro.writer import writer_type
from airflow_provider_lakecommit.formats.decoder import BaseDecoder, Decoded, Refusal, Reject, together
from airflow_provider_lakecommit.formats.framed_values import FramedReader
from airflow_provider_lakecommit.formats.registry.framing import Framed
from airflow_provider_lakecommit.formats.registry.schema_source import AVRO, RegisteredSchema, SchemaSource, key_text

MOST_OCTETS = 1 << 29
"""Most bytes to read together: positions in them are 32-bit numbers."""


class AvroDecoder(BaseDecoder):
    """Decoder of Avro, framed or with one stated schema."""

    def __init__(
        self, schema: Schema, options: FormatOptions, skip: Set[str] = frozenset(), registry: SchemaSource | None = None
    ) -> None:
        self._reader = FramedReader(registry, AVRO, self._made)
        self._resolver = Resolver(schema, options, skip)
        self._stated: ReadColumns | None = None
        if options.schema:
            try:
                self._stated, _ = self._resolver.records(writer_type(options.schema))
            except Refusal as refusal:
                raise TableError("LC4001", f"`schema` cannot be read into the table: {refusal.reason}") from None
        self._schema = self._resolver.target
        self._empty = pa.Table.from_batches([], schema=self._schema)

    def decode(self, values: Sequence[bytes]) -> Decoded:
        rejects = list[Reject]()
        if self._stated is not None:
            parts = [(Framed(key=0, start=0, positions=range(len(values))), self._stated)]
        else:
            parts, rejects = self._reader.parts(values)
        found = [each for group, reader in parts for each in self._part(values, group, reader)]
        return together(found or [(range(0), Decoded(table=self._empty))], rejects, len(values))

    def _made(self, schema: RegisteredSchema) -> ReadColumns:
        try:
            written = writer_type(schema.text, [inner.text for _, inner in schema.imported()])
            return self._resolver.records(written)[0]
        except Refusal as refusal:
            raise Refusal(refusal.kind, refusal.column, f"{key_text(schema.key)}: {refusal.reason}") from None

    def _part(
        self, values: Sequence[bytes], group: Framed, reader: ReadColumns
    ) -> Iterator[tuple[Sequence[int], Decoded]]:
        """Yield the records of a schema in pieces that can be read together, with their positions."""
        own = values if len(group.positions) == len(values) else [values[position] for position in group.positions]
        suffix = "" if self._stated is not None else f" ({key_text(group.key)})"
        for start, end in pieces(own, MOST_OCTETS):
            yield group.positions[start:end], self._block(own[start:end], group.start, reader, suffix)

    def _block(self, values: Sequence[bytes], start: int, reader: ReadColumns, suffix: str) -> Decoded:
        block, columns = _read(values, start, reader)
        table = pa.Table.from_arrays(columns, schema=self.schema)
        if not block.failed:
            ignored = Counter({path: sum(map(len, found)) for path, found in block.unknown.items()})
            return Decoded(table=table, ignored=ignored)
        good = ~block.dead
        failed = block.failed
        if walked := [position for position in failed if block.walked[position]]:
            # Name each record's error as if it had been read alone, so that a repeated read returns the same.
            alone, _ = _read([values[position] for position in walked], start, reader, in_step=True)
            failed = failed | {walked[n]: refusal for n, refusal in alone.failed.items()}
        rejects = (
            Reject.of(i, Refusal(bad.kind, bad.column, f"{bad.reason}{suffix}")) for i, bad in sorted(failed.items())
        )
        return Decoded(
            table=table.filter(pa.array(good)),
            records=np.flatnonzero(good).tolist(),
            rejects=tuple(rejects),
            ignored=Counter(
                {path: n for path, found in block.unknown.items() if (n := int(sum(good[f].sum() for f in found)))}
            ),
        )


def _read(
    values: Sequence[bytes], start: int, reader: ReadColumns, *, in_step: bool = False
) -> tuple[OctetBlock, list[pa.Array]]:
    block = OctetBlock.of(values, start, in_step=in_step)
    cursor = block.cursor()
    columns = reader(cursor, None)
    cursor.end()
    return block, columns
