# SPDX-License-Identifier: Apache-2.0
"""A format of records for tests: lines of UTF-8 text. A record gives a row per line, and none if it is empty."""

from __future__ import annotations

from collections.abc import Sequence, Set

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.decoder import Decoded, Refusal, halved

#: As in :data:`airflow_provider_lakecommit.core.formats.FORMATS`.
LINES = f"{__name__}:LineDecoder"

SCHEMA = Schema(
    NestedField(1, "line", StringType(), required=True),
    NestedField(2, "kafka_partition", IntegerType()),
    NestedField(3, "kafka_offset", LongType()),
)


class LineDecoder:
    """Decodes whole blocks: one bad value and the block is refused. ``blocks`` and ``closed`` are for tests."""

    blocks: list[int]
    closed = 0

    def __init__(self, schema: Schema, options: FormatOptions, skip: Set[str]) -> None:
        if (names := {field.name for field in schema.fields} - skip) != {"line"}:
            raise TableError("LC9999", f"lines are for a column `line`, not for {sorted(names)}")
        self.options = options
        self.schema = pa.schema([pa.field("line", pa.large_string(), nullable=False)])
        self.blocks = []

    def decode(self, values: Sequence[bytes]) -> Decoded:
        return halved(values, self._block)

    def close(self) -> None:
        LineDecoder.closed += 1

    def _block(self, values: Sequence[bytes]) -> Decoded:
        self.blocks.append(len(values))
        try:
            lines = [value.decode().splitlines() for value in values]
        except UnicodeDecodeError as e:
            raise Refusal("wrong_value", "line", "the value is not UTF-8") from e
        return Decoded(
            table=pa.table([pa.array([line for some in lines for line in some], pa.large_string())], self.schema),
            records=[i for i, some in enumerate(lines) for _ in some],
            filtered=[i for i, some in enumerate(lines) if not some],
        )
