# SPDX-License-Identifier: Apache-2.0
"""OpenLineage of a commit: topics in, tables out, with offsets, rows and snapshots.

Contract: made from what the task knows when it has ended: nothing is read, no connection is used. The names come from
the task's settings, without logins: topics as OpenLineage names them (``kafka://host:port`` of the first broker, name
of the topic), tables by their catalog (its address or warehouse, and ``namespace.table``), as in the symlinks of
OpenLineage's Spark integration. In addition to the standard facets (statistics of inputs and outputs, version of a
table) there is our own, ``lakecommit_offsets``: ``ranges`` by partition, half-open, and on a run ``lakecommit_cycle``.
The libraries of OpenLineage are imported when Airflow requests lineage, never before.

Failure story: Airflow catches and logs errors raised here, and sends from a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_lakecommit.core import Coverage
    from airflow_provider_lakecommit.cycle import Closed, PublishedSnapshot
    from airflow_provider_lakecommit.landing import Landing

OFFSETS, CYCLE = "lakecommit_offsets", "lakecommit_cycle"
"""Names of our own facets."""
KAFKA_PORT = 9092
_CONTAINERS = ("abfs", "wasb")


class Commit(NamedTuple):
    """A closed cycle, and the locations of its topics and tables."""

    landing: Landing
    closed: Closed
    kafka: str
    catalog: str


def kafka_namespace(settings: Mapping[str, Any]) -> str:
    """Return the namespace of the topics of a cluster, by librdkafka's settings."""
    stated = settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or ""
    first = str(stated).split(",")[0].strip().rpartition("://")[2].rpartition("@")[2]
    host, _, port = first.rpartition(":") if first.rpartition(":")[2].isdigit() else (first, "", "")
    return f"kafka://{host}:{port or KAFKA_PORT}"


def catalog_namespace(properties: Mapping[str, str], conn_id: str) -> str:
    """Return the namespace of the tables of a catalog, by pyiceberg's properties; never with a login or a query."""
    kind, region, account = properties.get("type", "rest"), properties.get("glue.region"), properties.get("glue.id")
    if kind == "glue":
        return f"arn:aws:glue:{region}:{account}" if region and account else f"glue://{region or conn_id}"
    for address in (_without_login(properties.get("uri", "")), _without_keys(properties.get("warehouse", ""))):
        scheme, known, rest = address.partition("://")
        if known:
            scheme, rest = ("hive", rest.partition(",")[0]) if kind == "hive" and scheme == "thrift" else (scheme, rest)
            return f"{scheme}://{re.split('[?#]', rest)[0].rstrip('/')}"
    return f"iceberg://{conn_id}"


def _without_login(uri: str) -> str:
    """Return a catalog's address; empty if it may contain a password with invalid characters."""
    scheme, known, rest = uri.partition("://")
    return "" if re.search("[?#].*@", rest) else f"{scheme}{known}{rest.rpartition('@')[2]}"


def _without_keys(warehouse: str) -> str:
    """Return a folder's address without keys. A bucket has no port, so a colon before a slash belongs to a login. So
    does an ``@``, except after the name of an Azure container. A secret key may contain slashes.
    """
    scheme, known, rest = warehouse.partition("://")
    bucket = re.split("[/?#]", rest)[0]
    login = ":" in bucket or ("@" in bucket and not scheme.startswith(_CONTAINERS))
    return f"{scheme}{known}{rest.rpartition('@')[2]}" if login and "@" in rest else warehouse


def table_name(namespace: str, table: str) -> str:
    """Return the name of a table in the namespace of its catalog."""
    return f"table/{table.replace('.', '/')}" if namespace.startswith("arn:aws:glue:") else table


def lineage_of(commits: Sequence[Commit]) -> OperatorLineage[Any, Any]:
    """Return the lineage of a task; empty if it published nothing, because Airflow warns about a task without one."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    published = [commit for commit in commits if commit.closed.published]
    if not published:
        return OperatorLineage()
    return OperatorLineage(
        inputs=[dataset for commit in published for dataset in _inputs(commit)],
        outputs=[dataset for commit in published for dataset in _outputs(commit)],
        run_facets={CYCLE: _cycle(published)},
    )


def _inputs(commit: Commit) -> list[Any]:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset

    published = commit.closed.published
    data = [p for p in published if p.table == commit.landing.table] or published
    topics = dict.fromkeys(part.topic for p in published for part, _ in p.coverage.items())
    found = []
    for topic in topics:
        # Counts are sums over all topics of a landing.
        records = sum(p.counts.records for p in data)
        statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=records)
        offsets = _offsets([p.coverage for p in published], "input", topic)
        facets = {OFFSETS: offsets, **({"inputStatistics": statistics} if len(topics) == 1 else {})}
        found.append(InputDataset(namespace=commit.kafka, name=topic, inputFacets=facets))
    return found


def _outputs(commit: Commit) -> list[Any]:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset

    found = []
    for table in dict.fromkeys(p.table for p in commit.closed.published):
        mine: list[PublishedSnapshot] = [p for p in commit.closed.published if p.table == table]
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=sum(p.rows for p in mine), fileCount=sum(p.files for p in mine)
        )
        version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(mine[-1].snapshot_id))
        found.append(
            OutputDataset(
                namespace=commit.catalog,
                name=table_name(commit.catalog, table),
                facets={"version": version},
                outputFacets={"outputStatistics": statistics, OFFSETS: _offsets([p.coverage for p in mine], "output")},
            )
        )
    return found


def _offsets(covered: Sequence[Coverage], side: str, topic: str | None = None) -> Any:
    from openlineage.client.generated.base import InputDatasetFacet, OutputDatasetFacet

    whole = type(covered[0]).union(covered).to_dict()
    ranges = {p: r for p, r in whole.items() if topic is None or p.rpartition("[")[0] == topic}
    facet = InputDatasetFacet() if side == "input" else OutputDatasetFacet()
    return facet.with_additional_properties(ranges=ranges)


def _cycle(commits: Sequence[Commit]) -> Any:
    from openlineage.client.generated.base import RunFacet

    cycles = [
        {
            "landing": commit.landing.name,
            "commitId": str(commit.closed.commit_id),
            "validThrough": commit.closed.valid_through.isoformat() if commit.closed.valid_through else None,
            "snapshots": {p.table: str(p.snapshot_id) for p in commit.closed.published},
        }
        for commit in commits
    ]
    return RunFacet().with_additional_properties(cycles=cycles)
