# SPDX-License-Identifier: Apache-2.0
"""A landing's format, its subjects and their schema ids, in a few lines for a person.

Contract: nothing is decided by it, so that a registry that is away, or does not know a subject, is one of the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_lakecommit.core import WITH_REGISTRY
from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.evolution.columns import asked_subjects
from airflow_provider_lakecommit.formats.registry.client import needed, registry_of
from airflow_provider_lakecommit.formats.registry.schemas import UnknownSchemaError
from airflow_provider_lakecommit.landing import Landing

MOST_IDS = 20


def registry_lines(landing: Landing, kafka: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the schemas of a landing's records; none if they have no schemas."""
    if landing.format in WITH_REGISTRY and landing.decoding.schema:
        yield f"format {landing.format}, the landing's schema for all records"
    subjects = asked_subjects(landing)
    if not subjects:
        return
    format = next(iter(subjects.values()))
    try:
        registry = needed(registry_of(kafka), landing.name, format)
    except (SpecError, RegistryError) as e:
        yield f"format {format}: {e}"
        return
    yield f"format {', '.join(dict.fromkeys(subjects.values()))}, schemas of {registry.place}"
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
