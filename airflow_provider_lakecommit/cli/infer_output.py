# SPDX-License-Identifier: Apache-2.0
"""Print an inferred spec, as YAML or JSON.

Alternatives (exact decimals, times) are comments to uncomment. Values are shown only with `--examples`, secrets never:
variables of the environment replace them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from airflow_provider_lakecommit.cli.infer_parts import comment, flow, given_by_sql, notes_on_wrapping, scalar
from airflow_provider_lakecommit.cli.infer_schema import Inferred
from airflow_provider_lakecommit.cli.infer_upsert import is_compacted, proposed
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import Route
from airflow_provider_lakecommit.formats import LARGE, InferredColumn
from airflow_provider_lakecommit.landing import PREFIX, Format, Landing, Transform, registry_settings
from airflow_provider_lakecommit.redaction import secrets_in

Given = tuple[Sequence[InferredColumn], Sequence[str]]
"""The columns that the landing's SQL makes, and why it does not make others."""


def output_of(inferred: Inferred, output: Output) -> int:
    """Print the spec; refuse if no column was found."""
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


def _created(columns: Sequence[InferredColumn], given: Given | None) -> dict[str, Any]:
    """Return the columns of the table, or of ``record`` if SQL makes the table's from them."""
    if given is None:
        return {"create": _schema(columns)}
    return {"transform": {"record_schema": _schema(columns)["schema"]}, "create": _schema(given[0])}


def _schema(columns: Sequence[InferredColumn]) -> dict[str, Any]:
    return {"schema": [c.to_dict() for c in columns if c.type is not None]}


def to_yaml(
    inferred: Inferred, given: Given | None = None, upsert: tuple[Sequence[str], Sequence[str]] = ((), ())
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
    yield from _transform(columns, given, landing)
    yield from _table(columns if given is None else given[0], upsert[1])
    if landing and landing.routing:
        yield from _route(landing.routing, inferred.beside)


def _table(columns: Sequence[InferredColumn], added: Sequence[str]) -> Iterable[str]:
    if any(c.type is not None for c in columns):
        yield comment(f"required: never missing or null in {LARGE} or more sampled values; other columns may be null")
        yield "create:"
        yield "  schema:"
    yield from _columns(columns, "    ")
    yield from (f"    {line}" for line in added)


def _transform(columns: Sequence[InferredColumn], given: Given | None, landing: Landing | None) -> Iterable[str]:
    stated = landing.transform if landing else Transform()
    if given is not None or stated.unwrap:
        yield "transform:"
    if stated.unwrap:
        yield f"  unwrap: {flow(stated.unwrap)}"
    if given is not None and landing:
        yield "  record_schema:"
        yield from _columns(columns, "    ")
        yield "  sql: |"
        sql = landing.transform_of(landing.table) or ""
        yield from (f"    {line}".rstrip() for line in sql.strip().splitlines())
        if stated.functions:
            yield f"  functions: {flow(dict(stated.functions))}"
        yield from map(comment, given[1])


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
