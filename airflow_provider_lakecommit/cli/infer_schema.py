# SPDX-License-Identifier: Apache-2.0
"""`lakecommit infer-schema`: infer a runnable spec from a sample of a topic, ready to be edited.

Of records that name their schemas, the columns are those of the registry's newest version; for JSON behind a schema id
they are inferred from the sample, too. The sample is decoded with the schema, so that rejected records are known before
anything is landed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from confluent_kafka import Message
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from airflow_provider_lakecommit.cli.infer_parts import (
    Sample,
    columns_of_envelope,
    csv_as_json,
    parts_of,
    raw_columns,
    row_columns,
    row_values,
)
from airflow_provider_lakecommit.cli.infer_upsert import Fields
from airflow_provider_lakecommit.core import NOT_ROUTED, WITH_REGISTRY, FormatOptions
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.formats import (
    JSON,
    MAX_LOCATIONS,
    Decoder,
    InferredColumn,
    Node,
    RegisteredSchema,
    SampledValues,
    SchemaRegistry,
    UnwrapDecoder,
    decoder_for,
    framed,
    framed_value,
    key_text,
    needed,
    newest,
    registered_columns,
    registry_of,
    sample_values,
    schema_of,
    subjects_of,
)
from airflow_provider_lakecommit.formats.infer_values import infer
from airflow_provider_lakecommit.kafka.sample import sample
from airflow_provider_lakecommit.landing import Landing, columns_of_unwrap

_WITHOUT_VALUE = {"not_framed", "unknown_schema", "wrong_schema", "not_avro", "not_protobuf", "not_csv"}
"""Kinds of rejects whose reasons quote no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is sampled, and what is printed with it.

    ``kafka`` includes the registry's settings. ``landing`` gives the printed name and table, by default derived from
    the topic; ``catalog`` is by default a local one for trying.
    """

    kafka: Mapping[str, Any]
    topics: Sequence[str]
    landing: Landing | None
    catalog: Mapping[str, Any] | None
    records: int
    examples: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferred:
    """The result. ``wrong`` are the rejects of the sample, ``source`` another source of the columns, ``beside`` has the
    columns of further tables of a route, ``records`` keys and values, ``registered`` the fields of keys in a registry.
    """

    question: Question
    found: SampledValues
    columns: Sequence[InferredColumn]
    wrong: Sequence[tuple[str, int, list[str]]]
    format: str = "json"
    source: str = ""
    beside: Mapping[str, Sequence[InferredColumn]] = field(default_factory=dict)
    records: Sequence[tuple[bytes | None, bytes | None]] = ()
    registered: tuple[str, Fields] | None = None


def infer_schema(
    question: Question, *, taken: Sample | None = None, keys: list[bytes | None] | None = None, format: str = ""
) -> Inferred:
    """Sample, infer and check.

    :param taken: the sample, if the caller has it
    :param keys: the keys of its records
    :param format: of a landing whose values are JSON behind a prefix, which is removed
    """
    if taken is None:
        keys = list[bytes | None]()
        taken = sample(question.kafka, question.topics, question.records, keys=keys)
    records = [(key, value) for key, (_, value) in zip(keys or (), taken, strict=False)]
    options = FormatOptions() if format or not question.landing else question.landing.format_options
    format = format or options.format
    # By the content of the records: it does not include the names of their schemas.
    if (
        options.format == "json"
        and question.landing
        and (question.landing.transform.unwrap or ((route := question.landing.routing) and not route.by_schema))
    ):
        return replace(_of_landing(question, question.landing, taken, format), records=records)
    if options.format == "raw":
        found, columns = unread(taken), raw_columns(taken)
    else:
        found = sample_values(csv_as_json(taken, options) if options.format == "csv" else taken)
        columns = [_as_stated(c, options.timestamps.get(c.name)) for c in infer(found, examples=question.examples)]
        found.values = len(taken)
    wrong = rejected(taken, columns, options, examples=question.examples)
    return Inferred(question=question, found=found, columns=columns, wrong=wrong, format=format, records=records)


def _as_stated(column: InferredColumn, rule: str | None) -> InferredColumn:
    """Return the column as a time, if the spec has a rule for its numbers or strings."""
    if rule is None or column.type not in ("long", "string"):
        return column
    kind = "date" if rule == "epoch_days" else "time" if rule.endswith("_of_day") else "timestamptz"
    return replace(column, type=kind, notes=(), instead=None, rule=None)


def unread(taken: Sample) -> SampledValues:
    """Return a sample of which only the number counts."""
    return SampledValues(root=Node(), values=len(taken), tombstones=sum(value is None for _, value in taken))


def _of_landing(question: Question, landing: Landing, taken: Sample, format: str) -> Inferred:
    """Infer with the landing's own settings of envelopes and tables."""
    parts, none = parts_of(landing, taken)
    columns, wrong = dict[str, list[InferredColumn]](), list[tuple[str, int, list[str]]]()
    for table, part in parts.items():
        inferred = infer(row_values(landing, sample_values(part)), examples=question.examples)
        columns[table] = columns_of_envelope(landing, inferred)
        wrong += rejected(
            part, columns[table], FormatOptions(), examples=question.examples, unwrap=landing.transform.unwrap
        )
    if none:
        wrong.append((f"{NOT_ROUTED.replace('_', ' ')}: no table is named for them", len(none), none[:MAX_LOCATIONS]))
    found, leading = sample_values(taken), columns.pop(landing.table)
    return Inferred(question=question, found=found, columns=leading, wrong=wrong, format=format, beside=columns)


def rejected(
    taken: Sample,
    columns: Sequence[InferredColumn],
    options: FormatOptions,
    registry: SchemaRegistry | None = None,
    *,
    examples: bool,
    unwrap: str | Mapping[str, Any] | None = None,
) -> list[tuple[str, int, list[str]]]:
    """Return the rejects of the sample by the landing's own decoder: reason, count, first positions."""
    schema = schema_of(columns)
    if schema is None and options.format == "csv":
        options = FormatOptions(format="csv", csv=options.csv)
        schema = Schema(NestedField(1, options.csv["columns"][0], StringType(), required=False))
    values = [(location, value) for location, value in taken if value is not None]
    if schema is None or not values:
        return []
    counts: Counter[str] = Counter()
    locations: dict[str, list[str]] = {}
    make = partial(decoder_for, registry=registry)
    decoder: Decoder = (
        make(schema, options) if unwrap is None else UnwrapDecoder(make, schema, columns_of_unwrap(unwrap), options)
    )
    for reject in decoder.decode([value for _, value in values]).rejects:
        reason = reject.reason
        if not examples and reject.kind not in _WITHOUT_VALUE:
            reason = f"{reject.column}: " * bool(reject.column) + reject.kind.replace("_", " ")
        counts[reason] += 1
        if len(some := locations.setdefault(reason, [])) < MAX_LOCATIONS:
            some.append(values[reject.index][0])
    return [(reason, n, locations[reason]) for reason, n in counts.most_common()]


def infer_registered(question: Question, *, subject: str | None = None) -> Inferred:
    """Read the schema, and check it with a sample.

    :param subject: by default the landing's, or the topic's
    """
    registry, found, subject = _schema(question, subject)
    formats = {kind: name for name, kind in WITH_REGISTRY.items()}
    if found.kind not in formats:
        raise SpecError("LC8017", f"subject {subject} has type {found.kind}, which no format reads")
    keys = list[bytes | None]()
    value_of = framed_value if registry else Message.value
    taken = sample(question.kafka, question.topics, question.records, value_of=value_of, keys=keys)
    if found.kind == JSON:
        unframed = [(location, _unframed(value)) for location, value in taken]
        return infer_schema(question, taken=unframed, keys=keys, format=formats[JSON])
    landing = question.landing
    message = landing.decoding.message if landing else ""
    columns = row_columns(landing, registered_columns(found, subject, message))
    schema = str(landing.decoding.schema) if landing else ""
    options = FormatOptions(format=formats[found.kind], schema=schema, message=message)
    return Inferred(
        question=question,
        found=unread(taken),
        columns=columns,
        wrong=rejected(
            taken,
            columns,
            options,
            registry,
            examples=question.examples,
            unwrap=landing.transform.unwrap if landing else None,
        ),
        format=formats[found.kind],
        source=f"from subject {subject}, {key_text(found.key)}" if registry else "from the stated schema",
        records=[(key, value) for key, (_, value) in zip(keys, taken, strict=True)],
        registered=_key_fields(registry, question.topics[0], formats) if any(keys) and registry else None,
    )


def _key_fields(registry: SchemaRegistry, topic: str, formats: Mapping[str, str]) -> tuple[str, Fields] | None:
    """Return the format of the topic's keys and their fields; ``None`` if they are no registered records."""
    subject = f"{topic}-key"
    with suppress(LakecommitError):
        found = newest(registry, subject)
        columns = registered_columns(found, subject)
        return formats[found.kind], {c.name: c.type for c in columns if c.type is not None}
    return None


def _schema(question: Question, subject: str | None) -> tuple[SchemaRegistry | None, RegisteredSchema, str]:
    """Return the schema, with its registry and subject, unless the landing declares it."""
    landing = question.landing
    if landing and landing.decoding.schema:
        stated = RegisteredSchema(key=0, kind=WITH_REGISTRY[landing.decoding.name], text=str(landing.decoding.schema))
        return None, stated, f"of landing {landing.name}"
    name, format = (landing.name, landing.decoding.name) if landing else (question.topics[0], "avro")
    registry = needed(registry_of(question.kafka), name, format)
    subject = subject or (subjects_of(landing)[0] if landing else f"{question.topics[0]}-value")
    return registry, newest(registry, subject), subject


def _unframed(value: bytes | None) -> bytes | None:
    if value is None or not (groups := framed([value])[0]):
        return value
    return value[groups[0].start :]
