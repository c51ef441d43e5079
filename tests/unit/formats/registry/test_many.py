# SPDX-License-Identifier: Apache-2.0
"""Several schemas are requested at a time, each once, and the first error is the last question."""

from __future__ import annotations

import threading

import pytest

from airflow_provider_lakecommit.exceptions import RegistryError
from airflow_provider_lakecommit.formats.registry.schema_source import (
    MOST_AT_ONCE,
    RegisteredSchema,
    SchemaKey,
    UnknownSchemaError,
    learned,
)


class Source:
    """Knows even numbers, each as soon as as many are requested at once as may be."""

    def __init__(self) -> None:
        self.requests: list[SchemaKey] = []
        self._together = threading.Barrier(MOST_AT_ONCE)

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        self.requests.append(key)
        self._together.wait(20)
        if not isinstance(key, int) or key % 2:
            raise UnknownSchemaError(f"no {key}")
        return RegisteredSchema(key=key, kind="AVRO", text=str(key))


def test_many_at_a_time() -> None:
    source = Source()
    keys = range(4 * MOST_AT_ONCE)
    found = learned(source, [*keys, *keys])
    assert set(found) == set(keys)
    assert sorted(source.requests, key=str) == sorted(keys, key=str)
    texts = {key: one.text for key, one in found.items() if isinstance(one, RegisteredSchema)}
    assert texts == {key: str(key) for key in keys if key % 2 == 0}
    assert str(found[3]) == "no 3"


class Away:
    def __init__(self) -> None:
        self.requests = 0

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        self.requests += 1
        raise RegistryError("LC9999", "away")


def test_one_that_is_away_is_not_requested_all() -> None:
    away = Away()
    with pytest.raises(RegistryError, match="LC9999"):
        learned(away, range(10_000))
    assert away.requests <= MOST_AT_ONCE


def test_none_and_one_need_no_thread() -> None:
    away = Away()
    assert learned(away, []) == {}
    with pytest.raises(RegistryError):
        learned(away, [1])
