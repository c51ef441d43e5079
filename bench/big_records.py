# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.big_records`: records of a megabyte and more, through `lakecommit land`.

Contract: each shape is a topic of two partitions and a table of its own, landed by a process of its own as a user
starts it; told are the peak memory of its process tree (neither this program nor the broker is counted), its
CPU-seconds, how the window was cut, the files and their row groups. Every row is compared with the generator; a table
that differs ends the run with 1.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import psutil
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog

from bench.measure import measured
from dev.paths import run_dir
from dev.servers.kafka import Broker

MB = 1_000_000
PARTITIONS = 2
LARGEST = 32 << 20
SEED = 20260301
POOL = 8
FLUSH_SECONDS = 120.0
SMALL_BYTES, BIG_EVERY = 200, 10
LEVELS = 12
LEAF_BYTES = 400
ROWS_AT_A_TIME = 8

Value = dict[str, Any]


@cache
def _pool() -> tuple[str, ...]:
    return tuple(Random(SEED + i).randbytes(MB // 2).hex() for i in range(POOL))


def _text(number: int, size: int) -> str:
    """Text that no other number has, and that no codec makes much smaller than half."""
    pool = _pool()[number % POOL]
    turn = number * 7919 % len(pool)
    return (f"{number:012d}" + (pool[turn:] + pool[:turn]) * (size // len(pool) + 1))[:size]


def _long_text(number: int, size: int) -> Value:
    return {"id": number, "body": _text(number, size)}


def _deep(number: int, size: int) -> Value:
    """Structs in structs, and lists of structs and a map at the bottom; no member is long."""
    words = _text(number, size)
    leaves = [{"k": f"k{at}", "v": words[at : at + LEAF_BYTES]} for at in range(0, size, LEAF_BYTES)]
    value: Value = {"leaves": leaves, "tags": {"first": words[:20], "last": words[-20:]}}
    for _ in range(LEVELS):
        value = {"down": value}
    return {"id": number, "body": value}


def _deep_type() -> str:
    inner = "struct<leaves: list<struct<k: string, v: string>>, tags: map<string, string>>"
    for _ in range(LEVELS):
        inner = f"struct<down: {inner}>"
    return inner


def _binary(number: int, size: int) -> Value:
    return {"id": number, "body": _text(number, size * 3 // 4).encode()}


def _mixed(number: int, size: int) -> Value:
    """Small ones, and every tenth big; of both kinds in each partition."""
    return _long_text(number, size if number // PARTITIONS % BIG_EVERY == 0 else SMALL_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of record. ``share`` is that of the big ones among all."""

    make: Callable[[int, int], Value]
    type: str = "string"
    size: int = MB
    share: float = 1.0
    landing: Mapping[str, Any] | None = None


SHAPES = {
    "text": Shape(make=_long_text),
    "deep": Shape(make=_deep, type=_deep_type()),
    "binary": Shape(make=_binary, type="binary", landing={"format": {"encodings": {"body": "base64"}}}),
    "mixed": Shape(make=_mixed, share=1 / BIG_EVERY),
    "10MB": Shape(make=_long_text, size=10 * MB),
}


def main(arguments: list[str]) -> int:
    """Run and print a line per shape; 1 when a table is not what was produced."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.big_records", description="memory of a landing of big records"
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--megabytes", type=int, default=1000, help="of each topic")
    parser.add_argument("--verbose", action="store_true", help="what the landings say of themselves")
    options = parser.parse_args(arguments)
    limits = {"message.max.bytes": str(LARGEST), "replica.fetch.max.bytes": str(LARGEST)}
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=run_dir()) as folder,
        Broker(Path(folder) / "kafka", properties=limits) as broker,
    ):
        for name in options.shapes:
            shape = SHAPES[name]
            records = max(1, int(options.megabytes * MB / (shape.size * shape.share)))
            if not _land(Path(folder), broker, name, shape, records, verbose=options.verbose):
                return 1
    return 0


def _land(folder: Path, broker: Broker, name: str, shape: Shape, records: int, *, verbose: bool) -> bool:
    topic = f"big-{name}"
    _produce(broker.bootstrap, topic, shape, records)
    spec = {
        "name": topic,
        "topics": topic,
        "table": f"bench.{name}",
        "create": {"schema": [{"name": "id", "type": "long"}, {"name": "body", "type": shape.type}]},
        "dead_letter_table": f"bench.{name}_dead",
        "kafka": {"bootstrap.servers": broker.bootstrap},
        "catalog": {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{folder}/{name}.db",
            "warehouse": f"file://{folder}/warehouse-{name}",
        },
        "spark": {"master": "local[2]"},
        **(shape.landing or {}),
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(spec))
    with measured(without=[broker.pid or 0]) as cost:
        # What this program holds itself is taken off: it is no part of a landing.
        own = psutil.Process().memory_info().rss / MB
        done = subprocess.run(
            [sys.executable, "-m", "airflow_provider_lakecommit.cli.main", "land", str(path), "--json"],
            stdout=subprocess.PIPE,
            stderr=None if verbose else subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode:
        print(f"{name}: ended with {done.returncode}\n{done.stderr or ''}")
        return False
    files = _files(spec)
    groups = [g for f in files for g in _groups(f)]
    verified = _differs(shape, files, records) is None
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    print(
        f"{name}: {records} records, {shape.size / MB:g} MB the big ones; peak {cost.peak_mb - own:.0f} MB, "
        f"wall {cost.wall:.1f} s, CPU {cost.cpu:.1f} s, load {cost.load:.1f}; "
        f"cycles {len(lines)}, slices {[line['window']['slices'] for line in lines]}; {len(files)} files, biggest "
        f"{max(f.stat().st_size for f in files) / MB:.0f} MB; {len(groups)} row groups, biggest "
        f"{max(groups) / MB:.0f} MB in memory; {'every row as produced' if verified else 'ROWS DIFFER'}",
        flush=True,
    )
    return verified


def _produce(bootstrap: str, topic: str, shape: Shape, records: int) -> None:
    config = {"max.message.bytes": str(LARGEST)}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, config=config)])[topic].result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "message.max.bytes": LARGEST,
            "queue.buffering.max.kbytes": 256 << 10,
            "linger.ms": 5,
        }
    )
    for number in range(records):
        value = json.dumps(shape.make(number, shape.size), default=_encoded, separators=(",", ":")).encode()
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(1.0)
        producer.poll(0)
    if producer.flush(FLUSH_SECONDS):
        raise RuntimeError(f"{topic}: records were not taken")


def _encoded(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(type(value).__name__)
    return base64.b64encode(value).decode()


def _files(spec: Mapping[str, Any]) -> list[Path]:
    table = load_catalog(**spec["catalog"]).load_table(spec["table"])
    return [Path(urlsplit(path).path) for path in table.inspect.files().column("file_path").to_pylist()]


def _groups(path: Path) -> Iterator[int]:
    metadata = pq.ParquetFile(path).metadata
    yield from (metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))


def _differs(shape: Shape, files: list[Path], records: int) -> int | None:
    """The first record that is not in the table exactly once as it was produced."""
    seen: set[int] = set()
    for path in files:
        for batch in pq.ParquetFile(path).iter_batches(ROWS_AT_A_TIME):
            for row in batch.to_pylist():
                number = row["id"]
                if number in seen or _plain(row) != _plain(shape.make(number, shape.size)):
                    return int(number)
                seen.add(number)
    return next((number for number in range(records) if number not in seen), None)


def _plain(value: Any) -> Any:
    """Without the difference between a map and its pairs."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        pairs = value and all(isinstance(each, tuple) for each in value)
        return dict(value) if pairs else [_plain(each) for each in value]
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
