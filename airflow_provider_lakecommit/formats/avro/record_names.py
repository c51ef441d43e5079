# SPDX-License-Identifier: Apache-2.0
"""The full name of the record that an Avro schema is of, for what is routed by it.

Contract: as Avro has it, the namespace and the name, of which one may be within the other; a schema that is no record,
or names one that another schema defines, is told by that name alone.
"""

from __future__ import annotations

import json

from airflow_provider_lakecommit.formats.registry.schemas import AVRO, RegisteredSchema
from airflow_provider_lakecommit.formats.schema_names import OneSchemaNames

__all__ = ["RecordNames", "record_name"]


class RecordNames(OneSchemaNames):
    """Of Avro."""

    kind = AVRO

    def _made(self, schema: RegisteredSchema) -> str | None:
        return record_name(schema.text)


def record_name(text: str) -> str | None:
    """The full name of the type at the top of a schema, if it has one."""
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
