# SPDX-License-Identifier: Apache-2.0
"""The script that somebody writes who has no tool: confluent-kafka, pyiceberg and a library of
the format, in two processes.

Contract: each process takes half of the partitions up to the ends that it finds at its start, and appends by itself
what it has read, again when the other one came first. Nothing is checked: no dead letters, no guard against values
that are damaged, none against a second run. :func:`run_script` returns the seconds since the first record was there.
"""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

from bench.script_decoders import decoder_of
from bench.shapes import Shape

__all__ = ["run_script"]

PROCESSES = 2
RECORDS_A_COMMIT = 500_000
RECORDS_A_POLL = 20_000


@dataclass(frozen=True, slots=True)
class Append:
    """Values to rows of the table, and those into it."""

    decode: Callable[[Sequence[bytes]], pa.Table]
    target: pa.Schema

    def __call__(self, table: Any, values: Sequence[bytes]) -> None:
        # The table says that a record has an id; of a file it wants to hear it, too.
        fields = [field.with_nullable(field.name != "id") for field in self.target]
        rows = self.decode(values).select(self.target.names).cast(pa.schema(fields))
        while True:
            try:
                table.append(rows)
                return
            except CommitFailedException:
                table.refresh()


def run_script(
    kafka: Mapping[str, Any], catalog: Mapping[str, str], topic: str, table: str, shape: Shape, format: str = "json"
) -> float:
    """Land what the topic holds.

    :param shape: of its records
    :param format: that they are in
    :raises RuntimeError: a process failed
    """
    consumer = Consumer({**kafka, "group.id": "bench-script"})
    partitions = sorted(consumer.list_topics(topic, 30).topics[topic].partitions)
    consumer.close()
    context = mp.get_context("spawn")
    first = context.Queue()
    shares = [partitions[n::PROCESSES] for n in range(PROCESSES)]
    append = Append(decode=decoder_of(shape, format), target=shape.expected(0, 0, 1).schema)
    workers = [
        context.Process(
            target=_land, args=(dict(kafka), dict(catalog), topic, table, share, append, first), daemon=True
        )
        for share in shares
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError("a process of the script failed")
    return time.time() - min(first.get() for _ in workers)


def _land(
    kafka: dict[str, Any],
    catalog: dict[str, str],
    topic: str,
    name: str,
    partitions: Sequence[int],
    append: Append,
    first: Any,
) -> None:
    consumer = Consumer(
        {
            **kafka,
            "group.id": "bench-script",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # The default of a second leaves a fast reader idle most of the time.
            "fetch.queue.backoff.ms": 5,
        }
    )
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), 30)[1] for p in partitions}
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    table = load_catalog("lakecommit", **catalog).load_table(name)
    left, seen = sum(ends.values()), False
    values: list[bytes] = []
    while left:
        for message in consumer.consume(min(RECORDS_A_POLL, left), 1.0):
            if message.error():
                raise RuntimeError(message.error().str())
            if (message.offset() or 0) < ends[message.partition() or 0]:
                values.append(message.value() or b"")
                left -= 1
        if values and not seen:
            first.put(time.time())
            seen = True
        if len(values) >= RECORDS_A_COMMIT or not left:
            append(table, values)
            values = []
    consumer.close()
