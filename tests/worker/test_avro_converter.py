# SPDX-License-Identifier: Apache-2.0
"""The peers of the benchmark on Avro: Kafka Connect's sink behind a converter lands the rows that are expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from bench.orders import produce
from bench.peer_connect import run_connect
from bench.registered import framed, registry
from bench.shapes import SHAPES
from bench.verify import differences
from dev.servers.kafka import Broker

pytestmark = pytest.mark.worker
RECORDS = 2_000


@pytest.mark.parametrize("name", SHAPES)
def test_the_sink_lands_framed_avro(name: str, broker: Broker, tmp_path: Path) -> None:
    shape, topic = SHAPES[name], f"converted-{name}"
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = load_catalog("lakecommit", **settings)
    catalog.create_namespace("bench")
    catalog.create_table(f"bench.{name}", shape.schema, partition_spec=shape.by_day)
    produce(broker.bootstrap, topic, RECORDS, 2, made=framed(shape, "avro", RECORDS))
    kafka = {"bootstrap.servers": broker.bootstrap}
    with registry(shape) as of_registry:
        seconds = run_connect(
            kafka, settings, catalog, topic, f"bench.{name}", RECORDS, tmp_path, registry=of_registry["url"]
        )

    assert seconds > 0
    assert differences(catalog.load_table(f"bench.{name}"), RECORDS, shape) == []
