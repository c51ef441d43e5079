# SPDX-License-Identifier: Apache-2.0
"""Many schemas of a registry, several of them asked for at a time.

Contract: :func:`learned` has an answer for each key, which is that there is none where the registry says so. A process
has at most :data:`MOST_AT_ONCE` questions for it under way, whatever the number of keys.

Failure story: the first other error goes through, and no further key is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from airflow_provider_lakecommit.formats.registry.schemas import (
    RegisteredSchema,
    SchemaKey,
    SchemaSource,
    UnknownSchemaError,
)

MOST_AT_ONCE = 8
"""A cold start of twenty tasks is that often as many questions for the registry."""
Learned = RegisteredSchema | UnknownSchemaError


def learned(source: SchemaSource, keys: Iterable[SchemaKey]) -> dict[SchemaKey, Learned]:
    """Return the schemas of these keys.

    :raises RegistryError: one cannot be learned now
    """
    wanted = list(dict.fromkeys(keys))
    if len(wanted) < 2:
        return {key: _one(source, key) for key in wanted}
    found: dict[SchemaKey, Learned] = {}
    failed: list[Exception] = []

    def ask(key: SchemaKey) -> None:
        if failed:
            return
        try:
            found[key] = _one(source, key)
        except Exception as e:
            failed.append(e)

    with ThreadPoolExecutor(min(MOST_AT_ONCE, len(wanted)), thread_name_prefix="lakecommit-schemas") as pool:
        for key in wanted:
            pool.submit(ask, key)
    if failed:
        raise failed[0]
    return found


def _one(source: SchemaSource, key: SchemaKey) -> Learned:
    try:
        return source.schema(key)
    except UnknownSchemaError as e:
        return e
