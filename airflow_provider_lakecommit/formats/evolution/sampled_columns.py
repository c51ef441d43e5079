# SPDX-License-Identifier: Apache-2.0
"""Infer columns from a bounded sample of the records to land, for formats whose values show their types.

Up to :data:`RECORDS` records are read from the beginning, middle and end of each partition's ranges, and the records in
which earlier tasks met an unknown field or a value that its column does not take. What is too rare for the sample is
ignored or dead-lettered by the task that meets it, and its place reported for the next window. A sample cut short by
time is a smaller sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Message
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.core import WITH_REGISTRY, Coverage
from airflow_provider_lakecommit.formats.evolution.inferred import InferredTypes, RecordSample
from airflow_provider_lakecommit.formats.evolution.observed_types import observed_types
from airflow_provider_lakecommit.formats.registry.framing import framed, with_header
from airflow_provider_lakecommit.formats.sampled import sample_values
from airflow_provider_lakecommit.kafka import ValueOf, headers_of, records_at, sample_of
from airflow_provider_lakecommit.landing import IMAGES, PAYLOAD, Landing

RECORDS = 3_000
SECONDS = 15.0


def sampled(kafka: Mapping[str, Any], ranges: Coverage, observed: Coverage, value_of: ValueOf) -> RecordSample:
    own = sample_of(kafka, ranges, RECORDS, seconds=SECONDS, value_of=value_of)
    before = records_at(kafka, observed - ranges, seconds=SECONDS, value_of=value_of)
    return RecordSample(own=own, before=before, ranges=ranges, observed=observed)


class RecordsSource:
    """The :class:`~airflow_provider_lakecommit.formats.evolution.inferred.TypeSource` of JSON, plain or behind a schema
    id; the registry is not contacted.
    """

    def __init__(self, landing: Landing, kafka: Mapping[str, Any]) -> None:
        self._unwraps, self._kafka, self._options = landing.transform.unwrap is not None, kafka, landing.format_options
        self._framed = self._options.format in WITH_REGISTRY

    def sample(self, ranges: Coverage, observed: Coverage) -> RecordSample:
        # A value is routed by its schema id.
        return sampled(self._kafka, ranges, observed, framed_value if self._framed else Message.value)

    def inferred(self, schema: Schema, sample: RecordSample) -> InferredTypes:
        found = self._types(schema, [*sample.own, *sample.before], sample.description)
        # What was met before has had its fate.
        return replace(found, misfits=self._types(schema, sample.own, "").misfits) if sample.before else found

    def _types(self, schema: Schema, taken: Sequence[tuple[str, bytes | None]], origin: str) -> InferredTypes:
        texts = ((at, _payload(value) if self._framed and value is not None else value) for at, value in taken)
        found = sample_values(texts, row_in) if self._unwraps else sample_values(texts)
        # Of several tables each takes the rules of the columns that it has.
        return observed_types(schema, found, self._options.of_columns({f.name for f in schema.fields}), origin)


def _payload(value: bytes) -> bytes:
    """Return the part behind the id; a value without an id is no record."""
    groups, _ = framed([value])
    return value[groups[0].start :] if groups else b""


def framed_value(message: Message) -> bytes | None:
    """Return the value after the id of its schema."""
    value = message.value()
    return None if value is None else with_header(value, headers_of(message))


def row_in(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the row of a JSON change envelope: the image that its ``op`` is about."""
    payload = value.get(PAYLOAD)
    envelope = payload if isinstance(payload, dict) else value
    op = envelope.get("op")
    image = IMAGES.get(op) if isinstance(op, str) else None
    row = None if image is None else envelope.get(image)
    return row if isinstance(row, dict) else None
