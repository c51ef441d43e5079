# SPDX-License-Identifier: Apache-2.0
"""The commands of the documentation do what their pages say: each page is played from top to bottom."""

from __future__ import annotations

import re
import runpy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.fixtures.kafka import create_topic, unique
from tests.support.doc_happenings import EXAMPLES, Reader, happen
from tests.support.doc_play import Stage, is_played, script
from tests.support.doc_texts import ROOT, pages

pytestmark = pytest.mark.integration

EXAMPLE = re.compile(r"python (?:docs/examples/)?(\w+\.py)")
HEAVY = ("docs/guides/connections.rst", "docs/operate/migrate.rst")
"""Pages that need brokers of their own."""
PLAYED = [page for page in pages() if is_played(page)]


def names_of(bootstrap: str, folder: Path, topic: str, control: str) -> dict[str, str]:
    """What replaces the names of the pages."""
    return {
        r"127\.0\.0\.1:9092": bootstrap,
        r"/tmp/lake": str(folder),
        r"control-(lakecommit|billing)\b": control,
        r"control-iceberg\b": f"{control}-iceberg",
        # The topic, where a text is surely about it and not about the landing or its spec.
        r"\borders(?=[:\[]\d)": topic,
        r"(?<=^topics: )orders$|(?<=retention of )orders\b": topic,
        r"(?<=infer-schema )orders\b": topic,
        r'(?<=NewTopic\(")orders|(?<=\)\[")orders(?="\])|(?<=produce\(")orders': topic,
    }


@pytest.fixture
def reader(tmp_path: Path, bootstrap: str) -> Iterator[Reader]:
    """A reader with a broker, an empty catalog and topics of his own."""
    topic, control = unique("orders"), unique("control")
    (tmp_path / "warehouse").mkdir()
    stage = Stage(folder=tmp_path, names=names_of(bootstrap, tmp_path, topic, control))
    made = Reader(stage=stage, bootstrap=bootstrap, topic=topic, control=control)
    yield made
    made.end()


def parameter(page: Path) -> Any:
    name = page.relative_to(ROOT).as_posix()
    return pytest.param(page, id=name, marks=[pytest.mark.heavy] if name in HEAVY else [])


@pytest.mark.heavy(
    but=(
        "README.md",
        "docs/start/*",
        "docs/operate/environments.rst",
        "docs/operate/maintenance.rst",
        "docs/guides/storage_and_catalogs.rst",
        "docs/guides/columns.rst",
    )
)
@pytest.mark.parametrize("page", [parameter(page) for page in PLAYED])
def test_a_page_is_played_from_top_to_bottom(page: Path, reader: Reader) -> None:
    for line in script(page):
        if line.kind == "happens":
            happen(reader, line.text)
        elif line.text.startswith("lakecommit "):
            reader.stage.run(line)
        elif found := EXAMPLE.fullmatch(line.text):
            reader.example(found[1])


def test_an_unknown_happening_is_noticed(reader: Reader) -> None:
    with pytest.raises(AssertionError, match="nobody knows"):
        happen(reader, "a miracle")


def keys_of(bootstrap: str, topic: str, partition: int) -> list[int]:
    """Of all records of a partition, in their order."""
    consumer, keys = Consumer({"bootstrap.servers": bootstrap, "group.id": topic}), list[int]()
    place = TopicPartition(topic, partition, 0)
    end = consumer.get_watermark_offsets(place)[1]
    consumer.assign([place])
    while len(keys) < end:
        keys += [int(m.key() or b"") for m in consumer.consume(10_000, 1.0)]
    consumer.close()
    return keys


@pytest.mark.heavy
def test_records_lie_where_pages_report_though_the_broker_has_refused_some_at_first(
    reader: Reader, bootstrap: str, admin: AdminClient
) -> None:
    topic, few = reader.topic, {"min.insync.replicas": "2"}
    create_topic(admin, topic, 4, few)
    lasting = ConfigEntry("min.insync.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    enough = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[lasting])
    relent = threading.Timer(0.5, lambda: admin.incremental_alter_configs([enough])[enough].result())
    relent.start()
    text = (EXAMPLES / "produce_orders.py").read_text().replace("127.0.0.1:9092", bootstrap)
    made, _, rest = text.partition("admin.create_topics")
    (reader.stage.folder / "producer.py").write_text(made + rest.partition("\n")[2].replace('"orders"', repr(topic)))
    runpy.run_path(str(reader.stage.folder / "producer.py"))
    relent.join()
    for partition in range(4):
        keys = keys_of(bootstrap, topic, partition)
        assert keys == sorted(set(keys)), partition
