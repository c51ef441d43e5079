# SPDX-License-Identifier: Apache-2.0
"""The full name of an Avro schema's record, for routing.

Contract: as in Avro, namespace and name, one of which may contain the other; a schema that is not a record, or refers
to another schema's definition, has only that name.
"""

from __future__ import annotations

import json

from airflow_provider_lakecommit.formats.registry.schemas import AVRO, RegisteredSchema
from airflow_provider_lakecommit.formats.schema_names import OneSchemaNames


class RecordNames(OneSchemaNames):
    """Record names of Avro."""

    kind = AVRO

    def _made(self, schema: RegisteredSchema) -> str | None:
        return record_name(schema.text)


def record_name(text: str) -> str | None:
    """Return the full name of a schema's top type, if it has one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    while isinstance(found, dict) and isinstance(found.get("type"), dict):
        found = found["type"]
    if isinstance(found, str):
        return found
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str):
        return None
    space = found.get("namespace")
    return f"{space}.{name}" if isinstance(space, str) and space and "." not in name else name
