# SPDX-License-Identifier: Apache-2.0
"""How the script of :mod:`bench.peer_script` makes rows of values, by the fastest library that there is for a format.

Contract: each takes values as they are in the topic, framing included, and gives rows with the names of the table's
columns; their types are cast by the script. Nothing is checked: one damaged value ends the script. The Avro library
reads files, so the records are put into one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from bench.avro_orders import number, spanned
from bench.registered import HEADS
from bench.shapes import Shape

__all__ = ["decoder_of"]

BLOCK_BYTES = 8 << 20
BLOCK_RECORDS = 10_000
SYNC = b"0123456789abcdef"


def decoder_of(shape: Shape, format: str) -> Any:
    """What makes an Arrow table of the values of a shape."""
    made: Mapping[str, Any] = {"json": JsonRows, "avro": AvroRows, "protobuf": ProtobufRows}
    return made[format](shape)


class JsonRows:
    """By Arrow's own parser."""

    def __init__(self, shape: Shape) -> None:
        rows = shape.expected(0, 0, 1).schema
        self._times = shape.times
        # Decimals come as the numbers that they are written as.
        kinds = {f.name: pa.float64() if pa.types.is_decimal(f.type) else f.type for f in rows}
        self._schema = pa.schema([(name, pa.int64() if name in self._times else kind) for name, kind in kinds.items()])

    def __call__(self, values: Sequence[bytes]) -> pa.Table:
        rows = pj.read_json(
            pa.BufferReader(b"\n".join(values)),
            read_options=pj.ReadOptions(use_threads=True, block_size=BLOCK_BYTES),
            parse_options=pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="ignore"),
        )
        for name in self._times:
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, name, rows.column(place).cast(pa.timestamp("ms", "UTC")))
        return rows


class AvroRows:
    """By `polars-avro`."""

    def __init__(self, shape: Shape) -> None:
        entries = {b"avro.codec": b"null", b"avro.schema": json.dumps(shape.avro).encode()}
        found = b"".join(spanned(key) + spanned(value) for key, value in entries.items())
        self._head = b"Obj\x01" + number(len(entries)) + found + number(0) + SYNC
        self._start = len(HEADS["avro"])

    def __call__(self, values: Sequence[bytes]) -> pa.Table:
        from polars_avro import read_avro

        file = [self._head]
        for first in range(0, len(values), BLOCK_RECORDS):
            some = [value[self._start :] for value in values[first : first + BLOCK_RECORDS]]
            file += [number(len(some)), spanned(b"".join(some)), SYNC]
        return read_avro(BytesIO(b"".join(file))).to_arrow()


class ProtobufRows:
    """By `ptars`."""

    def __init__(self, shape: Shape) -> None:
        self._proto, self._message = shape.proto, shape.message
        self._start = len(HEADS["protobuf"])
        self._handler: Any = None

    def __call__(self, values: Sequence[bytes]) -> pa.Table:
        if self._handler is None:
            # Not in `__init__`: a parser of Rust cannot be sent to another process.
            from ptars import HandlerPool

            from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named

            message = message_named(file_of(self._proto), self._message)
            self._handler = HandlerPool([message.file]).get_for_message(message)
        batch = self._handler.list_to_record_batch([value[self._start :] for value in values])
        return pa.Table.from_batches([batch])
