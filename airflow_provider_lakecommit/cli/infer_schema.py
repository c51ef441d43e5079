# SPDX-License-Identifier: Apache-2.0
"""`lakecommit infer-schema`: infer a runnable spec from a sample of a topic, ready to be edited.

The sample is decoded with the schema, so that rejected records are known before anything is landed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from airflow_provider_lakecommit.cli.infer_parts import (
    Sample,
    columns_of_envelope,
    csv_as_json,
    parts_of,
    raw_columns,
    row_values,
)
from airflow_provider_lakecommit.cli.infer_upsert import Fields
from airflow_provider_lakecommit.core import NOT_ROUTED, FormatOptions
from airflow_provider_lakecommit.formats import (
    MAX_LOCATIONS,
    Decoder,
    InferredColumn,
    Node,
    SampledValues,
    SchemaRegistry,
    UnwrapDecoder,
    decoder_for,
    sample_values,
    schema_of,
)
from airflow_provider_lakecommit.formats.infer import infer
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
