# SPDX-License-Identifier: Apache-2.0
"""Avro values to rows of the table: every value is either one exact row or one reject with its reason.

A block may hold records of several schemas, named by their first bytes and fetched once, or all have the landing's
schema. Records of a schema are read together (:mod:`~airflow_provider_lakecommit.formats.avro.block`), but judged each
by itself. Rows are in the order of their values. Unknown fields are counted by path, or reject the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.avro.block import OctetBlock, pieces
from airflow_provider_lakecommit.formats.avro.nested import Struct
from airflow_provider_lakecommit.formats.avro.resolve import Resolver
from airflow_provider_lakecommit.formats.avro.writer import writer_type
from airflow_provider_lakecommit.formats.decoder import Decoded, Refusal, Reject
from airflow_provider_lakecommit.formats.framed_values import FramedDecoder, FramedPart
from airflow_provider_lakecommit.formats.registry.schemas import AVRO, RegisteredSchema, key_text

MOST_OCTETS = 1 << 29
"""Most bytes to read together: positions in them are 32-bit numbers."""


class AvroDecoder(FramedDecoder[Struct]):
    """Decoder of Avro, framed or with one stated schema."""

    kind = AVRO

    def _prepared(self, schema: Schema, options: FormatOptions, skip: Set[str]) -> pa.Schema:
        self._resolver = Resolver(schema, options, skip)
        self._stated: Struct | None = None
        if options.schema:
            try:
                self._stated = self._resolver.records(writer_type(options.schema))
            except Refusal as refusal:
                raise TableError("LC4001", f"`schema` cannot be read into the table: {refusal.reason}") from None
        self._empty = pa.Table.from_batches([], schema=self._resolver.target)
        return self._resolver.target

    def decode(self, values: Sequence[bytes]) -> Decoded:
        if self._stated is not None:
            everything = FramedPart(key=0, made=self._stated, positions=range(len(values)), start=0)
            return _together([self._part(values, everything)], [], len(values), self._empty)
        parts, rejects = self._reader.parts(values)
        return _together([self._part(values, part) for part in parts], rejects, len(values), self._empty)

    def _made(self, schema: RegisteredSchema) -> Struct:
        try:
            written = writer_type(schema.text, [inner.text for _, inner in schema.imported()])
            return self._resolver.records(written)
        except Refusal as refusal:
            raise Refusal(refusal.kind, refusal.column, f"{key_text(schema.key)}: {refusal.reason}") from None

    def _part(self, values: Sequence[bytes], part: FramedPart[Struct]) -> Decoded:
        own = values if len(part.positions) == len(values) else [values[position] for position in part.positions]
        suffix = "" if self._stated is not None else f" ({key_text(part.key)})"
        found = []
        for start, end in pieces(own, MOST_OCTETS):
            found.append(self._block(own[start:end], part, part.positions[start:end], suffix))
        return _joined(found, self._empty)

    def _block(
        self, values: Sequence[bytes], part: FramedPart[Struct], positions: Sequence[int], suffix: str
    ) -> Decoded:
        block = OctetBlock.of(values, part.start)
        cursor = block.cursor()
        columns = part.made.columns(cursor, None)
        cursor.end()
        table = pa.Table.from_arrays(columns, schema=self.schema)
        if not block.failed:
            ignored = Counter({path: sum(map(len, found)) for path, found in block.unknown.items()})
            return Decoded(table=table, records=positions, ignored=ignored)
        good = ~block.dead
        self._name_first(block, values, part)
        rejects = (
            Reject.of(positions[i], Refusal(bad.kind, bad.column, f"{bad.reason}{suffix}"))
            for i, bad in sorted(block.failed.items())
        )
        return Decoded(
            table=table.filter(pa.array(good)),
            records=[positions[i] for i in np.flatnonzero(good).tolist()],
            rejects=tuple(rejects),
            ignored=Counter(
                {path: n for path, found in block.unknown.items() if (n := int(sum(good[f].sum() for f in found)))}
            ),
        )

    def _name_first(self, block: OctetBlock, values: Sequence[bytes], part: FramedPart[Struct]) -> None:
        """Return each record's error as if it had been read alone, so that a repeated read returns the same."""
        if positions := [position for position in block.failed if block.walked[position]]:
            alone = OctetBlock.of([values[position] for position in positions], part.start, in_step=True)
            cursor = alone.cursor()
            part.made.columns(cursor, None)
            cursor.end()
            block.failed |= {positions[n]: refusal for n, refusal in alone.failed.items()}


def _joined(found: Sequence[Decoded], empty: pa.Table) -> Decoded:
    if len(found) == 1:
        return found[0]
    ignored: Counter[str] = Counter()
    for each in found:
        ignored.update(each.ignored)
    return Decoded(
        table=pa.concat_tables([each.table for each in found]) if found else empty,
        records=[position for each in found for position in each.records or ()],
        rejects=tuple(reject for each in found for reject in each.rejects),
        ignored=ignored,
    )


def _together(found: Sequence[Decoded], rejects: Sequence[Reject], many: int, empty: pa.Table) -> Decoded:
    """Return rows and rejects in the order of their values."""
    joined = _joined(found, empty)
    records = joined.records or []
    bad = tuple(sorted([*joined.rejects, *rejects], key=lambda reject: reject.index))
    if len(found) > 1:
        order = np.argsort(np.asarray(records, np.int64), kind="stable")
        joined = replace(joined, table=joined.table.take(pa.array(order)))
        records = sorted(records)
    return replace(joined, records=None if len(records) == many else list(records), rejects=bad)
