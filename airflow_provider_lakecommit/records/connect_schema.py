# SPDX-License-Identifier: Apache-2.0
"""The schema that Connect's JSON converter puts around an envelope, against what the landing says of its columns.

Contract: a decimal that is written as bytes has the digits behind its point in that schema alone, and a number its unit
of time: a column with another scale or another rule would be filled with other values than the source has.
:meth:`EnvelopeSchemas.wrong` names the first such column of each value that brings its schema, looked at once for all
values that bring the same one.

Failure story: a value without a schema, or with one that is written in another way than Connect does, is not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.types import DateType, DecimalType, NestedField, TimestampType, TimestamptzType, TimeType

from airflow_provider_lakecommit.core.formats import FormatOptions
from airflow_provider_lakecommit.formats.decoder import Refusal, Reject

__all__ = ["WRONG_SCHEMA", "EnvelopeSchemas"]

WRONG_SCHEMA = "wrong_schema"
"""The kind of rejects whose schema contradicts the landing."""
_BEGIN, _END = b'{"schema":', b',"payload":'
_MOST_KNOWN = 100
_TIMES = (DateType, TimeType, TimestampType, TimestamptzType)
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_RULES: Mapping[str, str] = {
    "io.debezium.time.Timestamp": "epoch_millis",
    "io.debezium.time.MicroTimestamp": "epoch_micros",
    "io.debezium.time.NanoTimestamp": "epoch_nanos",
    "org.apache.kafka.connect.data.Timestamp": "epoch_millis",
    "io.debezium.time.Date": "epoch_days",
    "org.apache.kafka.connect.data.Date": "epoch_days",
    "io.debezium.time.Time": "millis_of_day",
    "io.debezium.time.MicroTime": "micros_of_day",
    "io.debezium.time.NanoTime": "nanos_of_day",
    "org.apache.kafka.connect.data.Time": "millis_of_day",
}
"""How numbers of these meanings are read."""


class EnvelopeSchemas:
    """Looks at the schemas of values.

    :param columns: those of the row
    """

    def __init__(self, columns: Iterable[NestedField], options: FormatOptions) -> None:
        self._scales = {
            c.name: c.field_type.scale
            for c in columns
            if isinstance(c.field_type, DecimalType) and c.name in options.encodings
        }
        self._rules = {
            c.name: options.timestamps.get(c.name, "iso8601") for c in columns if isinstance(c.field_type, _TIMES)
        }
        self._known: dict[bytes, Refusal | None] = {}

    def wrong(self, values: Sequence[bytes]) -> Iterator[Reject]:
        """The values whose schema contradicts the landing, in order."""
        if not (self._scales or self._rules):
            return
        for place, value in enumerate(values):
            if value.startswith(_BEGIN) and (end := value.find(_END)) > 0:
                schema = value[len(_BEGIN) : end]
                if schema not in self._known:
                    if len(self._known) >= _MOST_KNOWN:
                        self._known.clear()
                    self._known[schema] = next(self._contradictions(schema), None)
                if (refusal := self._known[schema]) is not None:
                    yield Reject.of(place, refusal)

    def _contradictions(self, schema: bytes) -> Iterator[Refusal]:
        for field in _row_fields(schema):
            column, meaning = str(field.get("field")), str(field.get("name"))
            if meaning == _DECIMAL and column in self._scales:
                scale = _scale(field)
                if scale is not None and scale != self._scales[column]:
                    has = f"{self._scales[column]} digits behind the point, and {scale} by the schema of the record"
                    yield Refusal(WRONG_SCHEMA, column, f"column {column} has {has}")
            elif (rule := _RULES.get(meaning)) and self._rules.get(column, rule) != rule:
                said = f"is {meaning} by the schema of the record, which `timestamps: {{{column}: {rule}}}` reads"
                yield Refusal(WRONG_SCHEMA, column, f"column {column} {said}, not {self._rules[column]}")


def _row_fields(schema: bytes) -> Iterator[Mapping[str, Any]]:
    """Those of ``after`` and ``before``."""
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError):
        return
    for image in _fields(found):
        if image.get("field") in ("before", "after"):
            yield from _fields(image)


def _fields(struct: Any) -> Iterator[Mapping[str, Any]]:
    fields = struct.get("fields") if isinstance(struct, Mapping) else None
    yield from (f for f in fields or () if isinstance(f, Mapping)) if isinstance(fields, list) else ()


def _scale(field: Mapping[str, Any]) -> int | None:
    parameters = field.get("parameters")
    try:
        return int(parameters["scale"]) if isinstance(parameters, Mapping) else None
    except (KeyError, ValueError, TypeError):
        return None
