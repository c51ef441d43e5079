# SPDX-License-Identifier: Apache-2.0
"""Check that the schema registry answers, and that the subjects of this landing have its format.

Requests are sent from the host of the doctor; tasks send theirs from their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_lakecommit.core import WITH_REGISTRY
from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats import UnknownSchemaError, key_text, needed, registry_of, requested_subjects
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, fail, ok, warn

CHECK = "schema registry"


def registry(landing: Landing, kafka: Mapping[str, Any]) -> Iterable[CheckResult]:
    subjects = requested_subjects(landing)
    if not subjects:
        return
    try:
        registry = needed(registry_of(kafka), landing.name, next(iter(subjects.values())))
    except (SpecError, RegistryError) as e:
        yield fail(
            CHECK, str(e), "correct the section `registry` of the spec, or the connection of `connections.registry`"
        )
        return
    for subject, format in subjects.items():
        try:
            found = registry.newest(subject)
        except UnknownSchemaError as e:
            yield warn(
                CHECK, str(e), "records may name schemas of other subjects; check the names that they are registered by"
            )
        except RegistryError as e:
            yield fail(CHECK, str(e), "correct its address or credentials, or restore it: records cannot be read")
        else:
            observed = (
                f"{registry.location}: the newest version of {subject} is {key_text(found.key)}, of type {found.kind}"
            )
            if found.kind == WITH_REGISTRY[format]:
                yield ok(CHECK, observed)
            else:
                yield fail(CHECK, observed, f"set another `format` than {format}, which would reject its records")
