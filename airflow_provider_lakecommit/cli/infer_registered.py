# SPDX-License-Identifier: Apache-2.0
"""`lakecommit infer-schema` for records that name their schemas: columns of the registry's newest version.

The sample is still decoded with them, so that rejects are reported before anything is landed. For JSON behind a schema
id, columns are inferred from the sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import Message

from airflow_provider_lakecommit.cli.infer_parts import row_columns
from airflow_provider_lakecommit.cli.infer_schema import Inferred, Question, infer_schema, rejected, unread
from airflow_provider_lakecommit.cli.infer_upsert import Fields
from airflow_provider_lakecommit.core import WITH_REGISTRY, FormatOptions
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.formats import (
    JSON,
    RegisteredSchema,
    SchemaRegistry,
    framed,
    framed_value,
    key_text,
    needed,
    newest,
    registered_columns,
    registry_of,
    subjects_of,
)
from airflow_provider_lakecommit.kafka.sample import sample


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
