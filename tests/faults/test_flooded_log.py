# SPDX-License-Identifier: Apache-2.0
"""Whoever may write to the control topic makes no reader of it take all memory, and no landing misread its own records.

The programs are measured by their own peaks.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.headers import HEADER
from tests.fixtures.kafka import unique
from tests.support.cli import orders, run, write_spec
from tests.support.golden_events import golden_bytes

pytestmark = pytest.mark.faults

Written = tuple[bytes, list[tuple[str, bytes]]]
LARGE = b"x" * 900_000
EVENT = golden_bytes("start_commit", "1.12.0")
FLOODS: dict[str, tuple[str, Written]] = {
    "headers of others": ("zstd", (b"x", [("trace", LARGE)])),
    "events with headers of others": ("gzip", (EVENT, [("trace", LARGE)])),
    "our header": ("zstd", (EVENT, [(HEADER, LARGE)])),
    "events of another": ("zstd", (EVENT + LARGE, [(HEADER, b'{"v":1,"lane":"live"}')])),
    "events of a sink": ("gzip", (EVENT + LARGE, [])),
    "values": ("lz4", (LARGE, [])),
    "values with our header": ("zstd", (LARGE, [(HEADER, b"")])),
}
MOST_MIB = 100
"""More than the program takes without the flood of 225 MB."""
CHILD = """
import re, sys
from pathlib import Path
from airflow_provider_lakecommit.cli.main import main
code = main(sys.argv[1:])
print("peak", int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
sys.exit(code)
"""


def peak_of(*command: str) -> int:
    """The most memory of a command that ends well, in MiB."""
    done = subprocess.run([sys.executable, "-c", CHILD, *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(re.findall(r"peak (\d+)", done.stdout)[-1])


def send(bootstrap: str, topic: str, compression: str, values: Iterable[Written]) -> list[str]:
    """Return what brokers say of records that they do not take."""
    refused: list[str] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": compression, "message.max.bytes": 100_000_000}
    )
    for value, headers in values:
        producer.produce(
            topic,
            value=value,
            headers=headers,
            partition=0,
            on_delivery=lambda error, _: refused.append(error.name()) if error else None,
        )
        producer.poll(0)
        if len(producer) > 20:
            producer.flush(60)
    assert producer.flush(120) == 0
    return refused


@pytest.fixture
def landed(
    tmp_path: Path,
    bootstrap: str,
    catalog_properties: dict[str, str],
    make_topic: Callable[..., str],
    produce: Callable[..., object],
) -> tuple[Path, str]:
    """The spec of a landing with records in its table and more to plan, and its control topic, which keeps what is
    compressed.
    """
    topic, control = make_topic(1), make_topic(1)
    spec = write_spec(tmp_path, "flooded", topic, control, bootstrap, catalog_properties)
    produce(topic, orders(10))
    assert run("land", str(spec), "--json").code == 0
    produce(topic, orders(10, first=10))
    return spec, control


@pytest.mark.heavy
@pytest.mark.parametrize(("compression", "one"), FLOODS.values(), ids=FLOODS)
def test_a_flood_takes_no_memory_and_hides_nothing(
    compression: str, one: Written, bootstrap: str, landed: tuple[Path, str]
) -> None:
    spec, control = landed
    most = peak_of("plan", str(spec)) + MOST_MIB
    assert send(bootstrap, control, compression, repeat(one, 250)) == []
    assert peak_of("plan", str(spec)) < most
    assert run("land", str(spec), "--json").code == 0
    verified = run("verify", str(spec), "--rows")
    assert verified.code == 0, verified.out
    assert peak_of("status", str(spec)) < most


def test_a_topic_that_a_landing_made_takes_no_batch_that_unpacks_into_more_than_it_may_hold(bootstrap: str) -> None:
    name = unique("uncompressed")
    with ControlTopic(name, {"bootstrap.servers": bootstrap}) as control:
        control.ensure(partitions=1)
    assert send(bootstrap, name, "gzip", [(bytes(50_000_000), [])]) == ["MSG_SIZE_TOO_LARGE"]
