# SPDX-License-Identifier: Apache-2.0
"""`lakecommit infer-schema`: infer a runnable spec from a sample of a topic, ready to be edited.

The sample is decoded with the schema before it is printed: rejected records are listed in comments. Alternatives
(exact decimals, times) are comments to uncomment. Values are shown only with `--examples`, secrets never: variables of
the environment replace them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from airflow_provider_lakecommit.cli.infer_parts import (
    Sample,
    SqlColumns,
    columns_of_envelope,
    comment,
    csv_as_json,
    flow,
    given_by_sql,
    notes_on_wrapping,
    parts_of,
    raw_columns,
    row_values,
    scalar,
)
from airflow_provider_lakecommit.cli.infer_upsert import Fields, is_compacted, proposed
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import NOT_ROUTED, FormatOptions, Route
from airflow_provider_lakecommit.formats import (
    LARGE,
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
from airflow_provider_lakecommit.landing import PREFIX, Format, Landing, Transform, columns_of_unwrap, registry_settings
from airflow_provider_lakecommit.redaction import secrets_in

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
    question: Question,
    output: Output,
    *,
    taken: Sample | None = None,
    keys: list[bytes | None] | None = None,
    format: str = "",
) -> int:
    """Sample, infer, check, print.

    :param taken: the sample, if the caller has it
    :param keys: the keys of its records
    :param format: of a landing whose values are JSON behind a prefix, which is removed
    """
    if taken is None:
        keys = list[bytes | None]()
        taken = sample(question.kafka, question.topics, question.records, keys=keys)
    records = [(key, value) for key, (_, value) in zip(keys or (), taken, strict=False)]
    options = FormatOptions() if format or not question.landing else question.landing.format_options
    # By the content of the records: it does not include the names of their schemas.
    if (
        options.format == "json"
        and question.landing
        and (question.landing.transform.unwrap or ((route := question.landing.routing) and not route.by_schema))
    ):
        found_by = _of_landing(question, question.landing, taken, format or options.format)
        return output_of(replace(found_by, records=records), output)
    if options.format == "raw":
        found, columns = unread(taken), raw_columns(taken)
    else:
        found = sample_values(csv_as_json(taken, options) if options.format == "csv" else taken)
        columns = [_as_stated(c, options.timestamps.get(c.name)) for c in infer(found, examples=question.examples)]
        found.values = len(taken)
    wrong = rejected(taken, columns, options, examples=question.examples)
    inferred = Inferred(question=question, found=found, columns=columns, wrong=wrong, format=format or options.format)
    return output_of(replace(inferred, records=records), output)


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


def output_of(inferred: Inferred, output: Output) -> int:
    question, found, columns = inferred.question, inferred.found, inferred.columns
    given = given_by_sql(question.landing, columns)
    if output.as_json:
        routed = {table: _schema(of_table) for table, of_table in inferred.beside.items()}
        output.result(
            {
                "topics": list(question.topics),
                "format": inferred.format,
                "sampled": found.values,
                **_created(columns, given),
                **({"route": {"create": routed}} if routed else {}),
                "notes": {c.name: list(c.notes) for c in columns if c.notes},
                "tombstones": found.tombstones,
                "rejected": [
                    {"reason": reason, "count": n, "places": locations} for reason, n, locations in inferred.wrong
                ],
            }
        )
    else:
        registry, here = registry_settings(question.kafka), Path.cwd()
        for_trying = {"type": "sql", "uri": f"sqlite:///{here / 'lake.db'}", "warehouse": (here / "lake").as_uri()}
        sections = {
            "kafka": {key: value for key, value in question.kafka.items() if not key.startswith(PREFIX)},
            **({"registry": registry} if registry else {}),
            "catalog": question.catalog or for_trying,
            "spark": {"master": "local[2]"},
        }
        output.lines(
            [*to_yaml(inferred, given, _upsert(inferred)), *sections_yaml(sections, own=bool(question.catalog))]
        )
    if not any(c.type is not None for c in columns):
        refused = [(reason, n, at) for reason, (n, at) in found.refused.items()] or inferred.wrong
        why = "".join(f"; {reason}: {n} ({', '.join(locations)})" for reason, n, locations in refused)
        output.log(f"{', '.join(question.topics)}: no column could be found in {found.values} records{why}")
        return Exit.REFUSED
    return Exit.DONE


def _upsert(inferred: Inferred) -> tuple[list[str], list[str]]:
    question = inferred.question
    if not any(key for key, _ in inferred.records):
        return [], []
    new = partial(Landing, name="new", topics=question.topics, table="lake.new", format=inferred.format)
    return proposed(
        question.landing or new(),
        inferred.columns,
        inferred.records,
        compacted=is_compacted(question.kafka, question.topics),
        registered=inferred.registered,
    )


def _created(columns: Sequence[InferredColumn], given: SqlColumns | None) -> dict[str, Any]:
    """Return the columns of the table, or of ``record`` if SQL makes the table's from them."""
    if given is None:
        return {"create": _schema(columns)}
    return {"transform": {"record_schema": _schema(columns)["schema"]}, "create": _schema(given.columns)}


def _schema(columns: Sequence[InferredColumn]) -> dict[str, Any]:
    return {"schema": [c.to_dict() for c in columns if c.type is not None]}


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


def to_yaml(
    inferred: Inferred, given: SqlColumns | None = None, upsert: tuple[Sequence[str], Sequence[str]] = ((), ())
) -> Iterable[str]:
    """Yield the landing as YAML, with uncertainties as comments above each column.

    :param upsert: the lines of a proposed `upsert`, and those of the columns that it adds
    """
    topics, landing = inferred.question.topics, inferred.question.landing
    found, columns = inferred.found, inferred.columns
    name = (
        landing.name
        if landing
        else re.sub(r"[^A-Za-z0-9._-]|^[^A-Za-z0-9]+", "-", topics[0]).strip("-._")[:100] or "new"
    )
    table = landing.table if landing else f"lake.{re.sub(r'[^A-Za-z0-9_]', '_', topics[0])}"
    source = f"{inferred.source}, tried on" if inferred.source else "from"
    yield comment(f"{source} {found.values} records of {', '.join(topics)}; check it before use")
    if found.tombstones:
        yield comment(f"{found.tombstones} records without a value (they give no row)")
    yield from map(comment, notes_on_wrapping(landing, found, {c.name for c in columns}))
    for reason, n, locations in inferred.wrong:
        yield comment(f"{n} records are REJECTED by this schema: {reason} ({', '.join(locations)})")
    yield f"name: {scalar(name)}"
    yield f"topics: {json.dumps(list(topics))}" if len(topics) > 1 else f"topics: {scalar(topics[0])}"
    yield f"table: {scalar(table)}"
    yield from _format(inferred)
    yield comment("rejected records go there, with offset and reason; without it one bad record blocks its range")
    dead = (landing.dead_letter_table if landing else None) or f"{table}_dead"
    yield f"dead_letter_table: {scalar(dead)}"
    yield from upsert[0]
    typed = [c for c in (*columns, *(c for of in inferred.beside.values() for c in of)) if c.type is not None]
    times = {c.name for c in typed if c.type in ("date", "time", "timestamp", "timestamptz")}
    if landing and (stated := {name: rule for name, rule in landing.timestamps.items() if name in times}):
        yield f"timestamps: {flow(stated)}"
    if rules := {c.name: c.rule for c in typed if c.rule is not None}:
        yield comment("format of times in the records, for columns that are times:")
        yield f"# timestamps: {flow(rules)}"
    yield from _transform(columns, given, landing.transform if landing else Transform())
    yield from _table(columns if given is None else given.columns, upsert[1])
    if landing and landing.routing:
        yield from _route(landing.routing, inferred.beside)


def _table(columns: Sequence[InferredColumn], added: Sequence[str]) -> Iterable[str]:
    if any(c.type is not None for c in columns):
        yield comment(f"required: never missing or null in {LARGE} or more sampled values; other columns may be null")
        yield "create:"
        yield "  schema:"
    yield from _columns(columns, "    ")
    yield from (f"    {line}" for line in added)


def _transform(columns: Sequence[InferredColumn], given: SqlColumns | None, stated: Transform) -> Iterable[str]:
    if given is not None or stated.unwrap:
        yield "transform:"
    if stated.unwrap:
        yield f"  unwrap: {flow(stated.unwrap)}"
    if given is not None:
        yield "  record_schema:"
        yield from _columns(columns, "    ")
        yield "  sql: |"
        yield from (f"    {line}".rstrip() for line in given.sql.strip().splitlines())
        if stated.functions:
            yield f"  functions: {flow(dict(stated.functions))}"
        yield from (comment(why) for why in given.wrong)


def _columns(columns: Iterable[InferredColumn], indent: str) -> Iterable[str]:
    for column in columns:
        yield from (f"{indent}{comment(note)}" for note in column.notes)
        if column.type is not None:
            yield f"{indent}- {flow(column.to_dict())}"
        if column.other is not None:
            yield f"{indent}# - {flow(column.other)}"


def _route(route: Route, beside: Mapping[str, Sequence[InferredColumn]]) -> Iterable[str]:
    yield "route:"
    yield f"  by: {route.by}" if route.by_schema else f"  field: {scalar(route.field)}"
    yield f"  tables: {{{', '.join(f'{scalar(text)}: {scalar(table)}' for text, table in route.tables.items())}}}"
    yield f"  other: {scalar(route.other)}"
    yield f"  missing: {scalar(route.missing)}"
    if any(c.type is not None for of in beside.values() for c in of):
        yield "  create:"
    for table, columns in beside.items():
        if any(c.type is not None for c in columns):
            yield f"    {scalar(table)}:"
            yield "      schema:"
            yield from _columns(columns, "        ")
        else:
            yield comment(f"no record for {table} was sampled: declare its columns")


def _format(inferred: Inferred) -> Iterable[str]:
    landing = inferred.question.landing
    of = Format(name=inferred.format) if landing is None else landing.decoding
    schemas = (f"  {k}: {json.dumps(v)}" for k, v in (("schema", of.schema), ("reader_schema", of.reader_schema)) if v)
    message = [f"  message: {scalar(of.message)}"] if of.message else []
    csv = [f"  csv: {flow(dict(of.csv))}"] if of.csv else []
    if stated := [*schemas, *message, *csv]:
        yield from ("format:", f"  name: {inferred.format}", *stated)
    elif inferred.format != "json":
        yield f"format: {inferred.format}"


def sections_yaml(sections: Mapping[str, Mapping[str, Any]], *, own: bool) -> Iterable[str]:
    """Yield brokers, catalog and Spark, without secrets.

    :param own: whether the catalog is the user's
    """
    for name, settings in sections.items():
        if name == "catalog" and not own:
            yield comment("for trying, on this machine: replace it with the properties of your catalog")
        plain = {key: value for key, value in settings.items() if isinstance(value, str | int | float | Mapping)}
        shown = {key: _without_secret(key, value) for key, value in plain.items()}
        if hidden := [value[2:-1] for key, value in shown.items() if value != settings[key]]:
            yield comment(f"set {', '.join(hidden)} in the environment")
        yield f"{name}: {flow(shown)}"


def _without_secret(key: str, value: Any) -> Any:
    if not secrets_in({key: value}):
        return value.replace("${", "$${") if isinstance(value, str) else value
    return f"${{{re.sub(r'[^A-Z0-9]+', '_', key.upper()).strip('_')}}}"
