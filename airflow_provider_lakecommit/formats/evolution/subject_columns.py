# SPDX-License-Identifier: Apache-2.0
"""Columns by the newest version of a subject.

A topic's subject is ``TOPIC-value``, unless ``create`` states another. The newest version is requested whenever it is
needed, but never to read records, which name their schemas. Columns of a table created this way are optional at every
level: older and later records may lack fields that this version requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from airflow_provider_lakecommit.core import WITH_REGISTRY
from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.evolution.changes import UNLIMITED, TableSide, evolution
from airflow_provider_lakecommit.formats.registry.client import SchemaRegistry, needed, registry_of
from airflow_provider_lakecommit.formats.registry.schema_source import RegisteredSchema, UnknownSchemaError
from airflow_provider_lakecommit.iceberg import create_from_spec
from airflow_provider_lakecommit.landing import Landing

if TYPE_CHECKING:
    # With Arrow, which a plan does without.
    from airflow_provider_lakecommit.formats.infer_values import InferredColumn

COLUMNS = {
    "AVRO": "airflow_provider_lakecommit.formats.avro.infer:registered_columns",
    "PROTOBUF": "airflow_provider_lakecommit.formats.protobuf.infer:registered_columns",
}
"""Functions ``module:name`` that return the columns of a schema of that kind, and of the landing's ``message`` if
any.
"""


_STATE = "state `create.schema` as a list"


def subjects_of(landing: Landing, table: str | None = None) -> tuple[str, ...]:
    """Return the subjects of a landing's records, for its leading table by default."""
    stated = (landing.create_of(table or landing.table) or {}).get("subject")
    return (stated,) if stated else tuple(f"{topic}-value" for topic in landing.topic_names)


def requested_subjects(landing: Landing) -> dict[str, str]:
    """Return the subjects of values and keys that need a registry, with their formats."""
    found: dict[str, str] = {}
    if landing.decoding.name in WITH_REGISTRY and not landing.decoding.schema:
        found |= dict.fromkeys(subjects_of(landing), landing.decoding.name)
    if (format := landing.columns.key.get("format")) in WITH_REGISTRY and not landing.columns.key.get("schema"):
        found |= {f"{topic}-key": format for topic in landing.topic_names}
    return found


def check_registry(landing: Landing, kafka: Mapping[str, Any]) -> None:
    """Check that the settings name a registry, if the records need one, without contacting it.

    :raises SpecError: they name none, or its client does not take them
    """
    if formats := list(requested_subjects(landing).values()):
        with suppress(RegistryError):
            needed(registry_of(kafka), landing.name, formats[0])


def newest(registry: SchemaRegistry, subject: str) -> RegisteredSchema:
    """Return the newest version of a subject.

    :raises SpecError: there is no such subject
    """
    try:
        return registry.newest(subject)
    except UnknownSchemaError as e:
        raise SpecError("LC4009", f"{e}; state `create.subject` if the subject has another name") from None


def registered_columns(schema: RegisteredSchema, subject: str, message: str = "") -> list[InferredColumn]:
    """Return the columns of a schema, and of *message* if it has several.

    :raises SpecError: it has none
    """
    if schema.kind not in COLUMNS:
        raise SpecError("LC4010", f"subject {subject} is of type {schema.kind}, which gives no columns; state `create`")
    from airflow_provider_lakecommit.formats.decoder import Refusal

    try:
        named = {"message": message} if message else {}
        found: list[InferredColumn] = resolve_name(COLUMNS[schema.kind])(schema, **named)
    except Refusal as refusal:
        raise SpecError("LC4011", f"subject {subject}: {refusal.reason}") from None
    return found


def create_of(
    landing: Landing, table: str, kafka: Mapping[str, Any], log: Callable[[str], object]
) -> Mapping[str, Any]:
    """Return the section ``create`` of a table, with columns of the registry's newest version if it says so.

    :param log: takes lines about fields that no column can hold
    :raises SpecError: there is no such subject, topics have columns that differ, or a column cannot have its field's
        name
    """
    create = landing.create_of(table) or {}
    if create.get("schema") != "registry":
        return create
    registry = needed(registry_of(kafka), landing.name, landing.decoding.name)
    columns: dict[str, dict[str, Any]] = {}
    for subject in subjects_of(landing, table):
        for column in registered_columns(newest(registry, subject), subject, landing.decoding.message):
            if column.type is None:
                log(f"{table}: no column for field {column.name} of subject {subject}: {'; '.join(column.notes)}")
                continue
            made = _optional(column.to_dict())
            if columns.setdefault(column.name, made) != made:
                raise SpecError(
                    "LC4012",
                    f"landing {landing.name!r}: column {column.name} of subject {subject} is {made}, for another topic "
                    f"{columns[column.name]}: {_STATE}, or `create.subject`",
                )
    stated = list(columns.values())
    made_of = create_from_spec({"schema": stated})[0].as_struct() if stated else StructType()
    if wrong := evolution(Schema(), made_of, widen=False, side=TableSide(version=3), limits=UNLIMITED).left_out:
        raise SpecError("LC4013", f"landing {landing.name!r}: {'; '.join(map(str, wrong))}: {_STATE}")
    return {**{k: v for k, v in create.items() if k != "subject"}, "schema": stated}


def _optional(made: Any) -> Any:
    """Make a column optional, with everything in it: older records may lack what the newest version has."""
    if isinstance(made, Mapping):
        return {key: _optional(part) for key, part in made.items() if key != "required"}
    return [_optional(part) for part in made] if isinstance(made, list) else made


MOST_IDS = 20


def registry_lines(landing: Landing, kafka: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines for users about the schemas of a landing's records; an unreachable registry is one of the lines."""
    if landing.decoding.name in WITH_REGISTRY and landing.decoding.schema:
        yield f"format {landing.decoding.name}, the landing's schema for all records"
    subjects = requested_subjects(landing)
    if not subjects:
        return
    format = next(iter(subjects.values()))
    try:
        registry = needed(registry_of(kafka), landing.name, format)
    except (SpecError, RegistryError) as e:
        yield f"format {format}: {e}"
        return
    yield f"format {', '.join(dict.fromkeys(subjects.values()))}, schemas of {registry.location}"
    for subject in subjects:
        try:
            count, ids = registry.ids(subject, MOST_IDS)
        except UnknownSchemaError:
            yield f"there is no subject {subject}; records may use schemas of other subjects"
        except RegistryError as e:
            yield f"subject {subject} is unknown: {e}"
        else:
            shown = ", ".join([*(["…"] if count > len(ids) else []), *map(str, ids)])
            yield f"subject {subject} has {count} versions, with schema ids {shown}"
