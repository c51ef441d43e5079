# SPDX-License-Identifier: Apache-2.0
"""JSON after the id of its schema in a registry.

The id must be that of a JSON Schema. Records are checked against the table's columns, not against that schema.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.formats.decoder import Decoded, with_positions
from airflow_provider_lakecommit.formats.framed_values import FramedDecoder
from airflow_provider_lakecommit.formats.registry.schemas import JSON, RegisteredSchema


class FramedJsonDecoder(FramedDecoder[None]):
    """Decoder of framed JSON."""

    kind = JSON

    def _prepared(self, schema: Schema, options: FormatOptions, skip: Set[str]) -> pa.Schema:
        self._json = JsonDecoder(schema, options, skip)
        return self._json.schema

    def decode(self, values: Sequence[bytes]) -> Decoded:
        parts, rejects = self._reader.parts(values)
        starts = {position: group.start for group, _ in parts for position in group.positions}
        positions = sorted(starts)
        decoded = self._json.decode([values[position][starts[position] :] for position in positions])
        return decoded if len(positions) == len(values) else with_positions(decoded, positions, rejects)

    def _made(self, schema: RegisteredSchema) -> None:
        """Ignore the schema: only its kind matters."""
