# SPDX-License-Identifier: Apache-2.0
"""Where a landing set lands: by the connections that its defaults name."""

from __future__ import annotations

import json

import pytest

from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.operators.targets import set_target


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    lake = {"conn_type": "iceberg", "host": "http://127.0.0.1:1"}
    for name, each in (("KAFKA_DEFAULT", kafka), ("ICEBERG_DEFAULT", lake), ("OTHER_LAKE", lake)):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(each))


@pytest.mark.parametrize(
    ("defaults", "connection"),
    [({}, "iceberg_default"), ({"connections": {"iceberg": "other_lake"}}, "other_lake")],
    ids=["by default", "stated"],
)
def test_the_catalog_of_a_set_is_the_one_that_its_defaults_name(defaults: dict[str, object], connection: str) -> None:
    declared = LandingSet(name="shop", topics=["orders"], table="lake.{topic}", defaults=defaults)
    with set_target(declared, reach=False) as at:
        assert (at.catalog_key, at.tables.name) == (connection, connection)
