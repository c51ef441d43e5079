# SPDX-License-Identifier: Apache-2.0
"""How topics and tables are called in OpenLineage, and what a commit says of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.serde import Serde

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.telemetry.lineage import (
    Commit,
    catalog_namespace,
    kafka_namespace,
    lineage_of,
    table_name,
)

ORDERS = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")
PARTITION = SourcePartition(topic="orders", topic_id="id", partition=0)


@pytest.mark.parametrize(
    ("stated", "namespace"),
    [
        ("broker:9093", "kafka://broker:9093"),
        ("b1:9092,b2:9092", "kafka://b1:9092"),
        ("SASL_SSL://b1:9094, b2", "kafka://b1:9094"),
        ("broker", "kafka://broker:9092"),
        ("SASL_SSL://me:secret@b1:9094,b2", "kafka://b1:9094"),
    ],
)
def test_topics_are_named_by_their_first_broker(stated: str, namespace: str) -> None:
    assert kafka_namespace({"bootstrap.servers": stated, "sasl.password": "secret"}) == namespace


@pytest.mark.parametrize(
    ("properties", "namespace"),
    [
        ({"type": "rest", "uri": "https://me:secret@lake:8181/api/?token=secret"}, "https://lake:8181/api"),
        ({"type": "hive", "uri": "thrift://metastore:9083,thrift://other:9083"}, "hive://metastore:9083"),
        ({"type": "sql", "uri": "postgresql+psycopg2://me:secret@db:5432/lake"}, "postgresql+psycopg2://db:5432/lake"),
        ({"type": "sql", "uri": "postgresql://me:s[e,c/ret@x@db:5432/lake"}, "postgresql://db:5432/lake"),
        ({"type": "sql", "uri": "postgresql://me:s?cret@db:5432/lake"}, "iceberg://lake_conn"),
        ({"type": "rest", "uri": "https://lake/api?token=se@cret", "warehouse": "s3://a/b"}, "s3://a/b"),
        ({"type": "rest", "uri": "http://[::1]:8181/api#x"}, "http://[::1]:8181/api"),
        ({"type": "rest", "warehouse": "abfss://lake@account.dfs.net/house"}, "abfss://lake@account.dfs.net/house"),
        ({"type": "sql", "uri": "sqlite:////var/lake.db"}, "sqlite:////var/lake.db"),
        ({"type": "glue", "glue.region": "eu-west-1", "glue.id": "4711"}, "arn:aws:glue:eu-west-1:4711"),
        ({"type": "glue", "glue.region": "eu-west-1"}, "glue://eu-west-1"),
        ({"type": "dynamodb", "warehouse": "s3://lake/house/"}, "s3://lake/house"),
        ({"type": "rest", "warehouse": "s3://KEY:SECRET@bucket/house"}, "s3://bucket/house"),
        ({"type": "rest", "warehouse": "s3://KEY:SE/CR@E?T#@bucket/house"}, "s3://bucket/house"),
        ({"type": "rest", "warehouse": "s3://TOKEN@bucket"}, "s3://bucket"),
        ({"type": "rest", "warehouse": "s3://bucket/a:b@c?x=d@e"}, "s3://bucket/a:b@c"),
        ({"type": "rest", "warehouse": "abfss://lake:SECRET@account.dfs.net/house"}, "abfss://account.dfs.net/house"),
        ({"type": "rest", "warehouse": "abfss://lake@account.dfs.net/h?sig=SECRET"}, "abfss://lake@account.dfs.net/h"),
        ({"type": "rest"}, "iceberg://lake_conn"),
    ],
)
def test_tables_are_named_by_their_catalog_without_a_login(properties: dict[str, str], namespace: str) -> None:
    assert catalog_namespace(properties, "lake_conn") == namespace


def test_a_table_of_glue_is_named_as_glue_does() -> None:
    assert table_name("arn:aws:glue:eu-west-1:4711", "shop.orders") == "table/shop/orders"
    assert table_name("https://lake", "shop.orders") == "shop.orders"


def snapshot(table: str, number: int, end: int, rows: int, counts: Counts) -> PublishedSnapshot:
    covered = Coverage.of([(PARTITION, OffsetRange(0, end))])
    return PublishedSnapshot(
        table=table, snapshot_id=number, commit_id=UUID(int=1), coverage=covered, rows=rows, files=1, counts=counts
    )


def fields_of(facet: Any) -> Any:
    return {name: value for name, value in Serde.to_dict(facet).items() if not name.startswith("_")}


def test_a_commit_reports_topic_and_tables_with_offsets_rows_and_snapshots() -> None:
    counts = Counts(landed=8, rejected=1, filtered=1)
    closed = Closed(
        commit_id=UUID(int=1),
        table="shop.orders",
        published=(snapshot("shop.orders", 2**61, 10, 8, counts), snapshot("shop.orders_dead", 3, 10, 1, counts)),
        valid_through=datetime(2026, 1, 2, tzinfo=UTC),
    )
    found = lineage_of([Commit(ORDERS, closed, "kafka://b:9092", "https://lake")])
    [topic] = found.inputs
    assert (topic.namespace, topic.name) == ("kafka://b:9092", "orders")
    assert fields_of(topic.inputFacets["inputStatistics"])["rowCount"] == 10
    assert fields_of(topic.inputFacets["lakecommit_offsets"]) == {"ranges": {"orders[0]": [[0, 10]]}}
    rows, dead = found.outputs
    assert [(each.namespace, each.name) for each in (rows, dead)] == [
        ("https://lake", "shop.orders"),
        ("https://lake", "shop.orders_dead"),
    ]
    assert fields_of(rows.facets["version"]) == {"datasetVersion": str(2**61)}
    assert fields_of(rows.outputFacets["outputStatistics"])["rowCount"] == 8
    assert fields_of(dead.outputFacets["outputStatistics"])["rowCount"] == 1
    assert fields_of(rows.outputFacets["lakecommit_offsets"]) == {"ranges": {"orders[0]": [[0, 10]]}}
    [cycle] = fields_of(found.run_facets["lakecommit_cycle"])["cycles"]
    assert cycle["landing"] == "orders"
    assert cycle["snapshots"]["shop.orders"] == str(2**61)
    assert cycle["validThrough"] == "2026-01-02T00:00:00+00:00"


def test_a_task_that_published_nothing_has_no_lineage() -> None:
    idle = Commit(ORDERS, Closed(commit_id=UUID(int=1)), "kafka://b:9092", "https://lake")
    assert lineage_of([]) == lineage_of([idle]) == OperatorLineage()
