# SPDX-License-Identifier: Apache-2.0
"""iceberg-kafka-connect in a Kafka Connect worker, on the same topic into a table of the same catalog.

Contract: :func:`run_connect` starts a worker, hands it the sink, waits until the table holds all records, and stops it.
It returns the seconds from the sink's first record to the commit that completes the table; the worker's start is not in
them. The sink commits every ten seconds, so up to as much waiting is.

An idle task of a worker is called once in `offset.flush.interval.ms`, a minute by default, and reads its control topic
only then; one second is set here, or the last commit of a drained topic would wait for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

from pyiceberg.catalog import Catalog

from bench.registered import APICURIO
from dev.servers.kafka_connect import ConnectWorker, iceberg_sink

__all__ = ["run_connect"]

TASKS = 2
COMMIT_SECONDS = 10.0
FLUSH_SECONDS = 1.0
GIVE_UP_SECONDS = 900.0
LOOK_SECONDS = 1.0
_ASSIGNED = re.compile(r"^(\d+) .*(?:Adding newly assigned partitions|Resetting offset for partition)")


def run_connect(
    kafka: Mapping[str, Any],
    settings: Mapping[str, str],
    catalog: Catalog,
    topic: str,
    table: str,
    records: int,
    folder: Path,
    *,
    registry: str = "",
) -> float:
    """Land *records* records.

    :param settings: properties of the catalog, which is in SQLite
    :param registry: address of the registry that the records name their Avro schema in; without, they are JSON
    :raises RuntimeError: the sink fails, or takes too long
    """
    run = uuid4().hex[:8]
    sink = iceberg_sink(
        topic=topic,
        table=table,
        tasks=TASKS,
        control_topic=f"control-connect-{run}",
        commit_seconds=COMMIT_SECONDS,
        catalog_name=catalog.name,
        catalog={
            "type": "jdbc",
            "uri": f"jdbc:{settings['uri'].replace('sqlite:///', 'sqlite:')}?busy_timeout=30000",
            "warehouse": settings["warehouse"],
        },
    )
    if registry:
        sink = {**sink, **_of_avro(registry)}
    _make_topic(kafka, f"control-connect-{run}")
    deadline = time.monotonic() + GIVE_UP_SECONDS
    plugins = ("sink", "converter") if registry else ("sink",)
    bootstrap = str(kafka["bootstrap.servers"])
    with ConnectWorker(folder / f"connect-{run}", bootstrap, flush=FLUSH_SECONDS, plugins=plugins) as worker:
        worker.create(f"sink-{run}", sink)
        while (landed := _landed(catalog, table)) is None or landed[0] < records:
            worker.check(f"sink-{run}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the sink has {landed} of {records} records; see {worker.log}")
            time.sleep(LOOK_SECONDS)
        began = min(int(m[1]) / 1000 for line in worker.log.read_text().splitlines() if (m := _ASSIGNED.match(line)))
    return landed[1] - began


def _of_avro(registry: str) -> dict[str, str]:
    """Settings of a converter that reads Avro behind the four bytes of a schema's id."""
    reader = {"url": f"{registry}/{APICURIO}", "as-confluent": "true", "use-id": "contentId"}
    return {
        "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        **{f"value.converter.apicurio.registry.{key}": value for key, value in reader.items()},
    }


def _landed(catalog: Catalog, table: str) -> tuple[int, float] | None:
    """Records in the table, and when they were committed."""
    found = catalog.load_table(table)
    snapshot = found.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return None
    at = Path(urlparse(found.metadata_location).path).stat().st_mtime
    return int(snapshot.summary.additional_properties["total-records"]), at


def _make_topic(kafka: Mapping[str, Any], name: str) -> None:
    """The sink wants its control topic to be there."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(dict(kafka))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
