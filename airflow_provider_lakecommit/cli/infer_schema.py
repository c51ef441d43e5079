# SPDX-License-Identifier: Apache-2.0
"""`lakecommit infer-schema`: a sample of a topic as the YAML of a landing with a `create` section, ready to be edited.

Contract: what is printed is a valid landing, and its schema takes every sampled record but for those that stand in
comments with their places: the sample is decoded with it before it is printed. No value of a record is shown unless
`--examples` asks for it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_provider_lakecommit.cli.output import Exit, Output
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.formats.infer import InferredColumn, infer, schema_of
from airflow_provider_lakecommit.formats.sampled import MAX_PLACES, SampledValues, sample_values
from airflow_provider_lakecommit.kafka.sample import sample
from airflow_provider_lakecommit.landing import Landing

__all__ = ["infer_schema", "rejected", "to_yaml"]


def infer_schema(
    kafka: Mapping[str, Any],
    topics: Sequence[str],
    landing: Landing | None,
    output: Output,
    *,
    records: int,
    examples: bool,
) -> int:
    """Sample, conclude, check, print.

    :param landing: whose name and table are printed; by default some after the topic
    :raises LakecommitError: the topic cannot be read
    """
    taken = sample(kafka, topics, records)
    found = sample_values(taken)
    columns = infer(found, examples=examples)
    wrong = rejected(taken, columns, examples=examples)
    if output.as_json:
        output.result(
            {
                "topics": list(topics),
                "sampled": found.values,
                "create": {"schema": [c.to_dict() for c in columns if c.type is not None]},
                "notes": {c.name: list(c.notes) for c in columns if c.notes},
                "tombstones": found.tombstones,
                "rejected": [{"reason": reason, "count": n, "places": places} for reason, n, places in wrong],
            }
        )
    else:
        output.lines(to_yaml(topics, landing, found, columns, wrong))
    if not any(c.type is not None for c in columns):
        why = "".join(f"; {reason}: {n} ({', '.join(places)})" for reason, (n, places) in found.refused.items())
        output.log(f"{', '.join(topics)}: no column could be found in {found.values} records{why}")
        return Exit.REFUSED
    return Exit.DONE


def rejected(
    taken: Sequence[tuple[str, bytes | None]], columns: Sequence[InferredColumn], *, examples: bool
) -> list[tuple[str, int, list[str]]]:
    """What the schema refuses of the sample, by the landing's own decoder: reason, count, first places."""
    schema = schema_of(columns)
    values = [(place, value) for place, value in taken if value is not None]
    if schema is None or not values:
        return []
    counts: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    for reject in JsonDecoder(schema).decode([value for _, value in values]).rejects:
        # A reason quotes the value that it is about.
        reason_text = reject.reason if examples else reject.kind.replace("_", " ")
        reason = f"{reject.column}: {reason_text}" if reject.column else reason_text
        counts[reason] += 1
        if len(some := places.setdefault(reason, [])) < MAX_PLACES:
            some.append(values[reject.index][0])
    return [(reason, n, places[reason]) for reason, n in counts.most_common()]


def to_yaml(
    topics: Sequence[str],
    landing: Landing | None,
    found: SampledValues,
    columns: Sequence[InferredColumn],
    wrong: Sequence[tuple[str, int, list[str]]],
) -> Iterable[str]:
    """The landing as YAML, with what is uncertain as comments above each column."""
    name = (
        landing.name
        if landing
        else re.sub(r"[^A-Za-z0-9._-]|^[^A-Za-z0-9]+", "-", topics[0]).strip("-._")[:100] or "new"
    )
    table = landing.table if landing else f"lake.{re.sub(r'[^A-Za-z0-9_]', '_', topics[0])}"
    yield _comment(f"from {found.values} records of {', '.join(topics)}; check it before it is used")
    if found.tombstones:
        yield _comment(f"{found.tombstones} records without a value (they give no row)")
    for reason, n, places in wrong:
        yield _comment(f"{n} records are REJECTED by this schema: {reason} ({', '.join(places)})")
    yield f"name: {_scalar(name)}"
    yield f"topics: {json.dumps(list(topics))}" if len(topics) > 1 else f"topics: {_scalar(topics[0])}"
    yield f"table: {_scalar(table)}"
    typed = [c for c in columns if c.type is not None]
    if typed:
        yield "create:"
        yield "  schema:"
    for column in columns:
        yield from (f"    {_comment(note)}" for note in column.notes)
        if column.type is not None:
            yield f"    - {_flow(column.to_dict())}"


def _comment(text: str) -> str:
    return f"# {json.dumps(text, ensure_ascii=False)[1:-1]}".replace('\\"', '"')


def _scalar(text: str) -> str:
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", text) and text.lower() not in (
        "true",
        "false",
        "null",
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
    )
    return text if plain else json.dumps(text)


def _flow(value: Any) -> str:
    """A value in YAML's flow style."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)
