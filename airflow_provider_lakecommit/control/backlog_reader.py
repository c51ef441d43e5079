# SPDX-License-Identifier: Apache-2.0
"""How much of its topics a landing has not planned yet, by its control topic and the topics.

Nothing is written, and no consumer group is joined. Bytes are the rows times the mean size of the oldest ones; the age
is that of the oldest, by its record's timestamp, or since it was first seen if that has no time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.control_watch import ControlWatch
from airflow_provider_lakecommit.control.records import entry_of
from airflow_provider_lakecommit.core import LIVE, Backlog, SourcePartition, planned_after, unplanned
from airflow_provider_lakecommit.kafka import LastError, SourceTopics, made, time_of

SAMPLE = 200
"""Records that are read to learn of sizes."""
SAMPLE_SECONDS = 2.0
LOG_SECONDS = 30.0


class BacklogWatch:
    """The backlog of one landing, for one thread at a time."""

    def __init__(self, landing: str, topics: tuple[str, ...], control_topic: str, kafka: Mapping[str, Any]) -> None:
        self._landing = landing
        self._source = SourceTopics(kafka, topics)
        self._control_topic = control_topic
        self._kafka = kafka
        self._log: ControlWatch | None = None
        # A consumer needs the name of a group; it never joins it.
        ours = {"group.id": "lakecommit-backlog", "enable.auto.commit": False, "enable.partition.eof": True}
        self._reader: Consumer = made(Consumer, kafka, LastError(), **ours, **{"isolation.level": "read_committed"})
        self._planned: Mapping[SourcePartition, int] = {}
        self._oldest: dict[tuple[SourcePartition, int], float] = {}
        self._mean = 0.0

    def read(self) -> Backlog:
        """Return the current backlog. A failed look may be repeated."""
        self._follow()
        marks = {p: (w.start, w.stable) for p, w in self._source.watermarks().partitions.items()}
        left = unplanned(self._planned, marks)
        self._read({p: begin for p, (begin, _) in left.items()})
        rows = sum(end - begin for begin, end in left.values())
        oldest = min(self._oldest.values(), default=None)
        return Backlog(
            rows=rows,
            bytes=round(rows * self._mean),
            age=None if oldest is None else max(0.0, time.time() - oldest),
            planned=sum(self._planned.values()),
        )

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
        self._reader.close()
        self._source.close()

    def _follow(self) -> None:
        if self._log is None:
            with ControlTopic(self._control_topic, self._kafka) as topic:
                if not topic.exists():
                    return
            self._log = ControlWatch(self._control_topic, self._kafka)
        deadline = time.monotonic() + LOG_SECONDS
        while True:
            records = self._log.poll()
            for record in records:
                entry = entry_of(record, self._landing, LIVE)
                if entry is not None:
                    self._planned = planned_after(self._planned, entry)
            if self._log.caught_up and not records:
                return
            if time.monotonic() > deadline:
                raise self._log.away(LOG_SECONDS)

    def _read(self, begins: Mapping[SourcePartition, int]) -> None:
        self._oldest = {(p, at): when for (p, at), when in self._oldest.items() if begins.get(p) == at}
        expected = {(p.topic, p.partition): p for p, at in begins.items() if (p, at) not in self._oldest}
        if not expected:
            return
        self._reader.assign([TopicPartition(p.topic, p.partition, begins[p]) for p in expected.values()])
        sizes: list[int] = []
        deadline = time.monotonic() + SAMPLE_SECONDS
        while expected and len(sizes) < SAMPLE and time.monotonic() < deadline:
            for message in self._reader.consume(SAMPLE, 0.2):
                key = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        expected.pop(key, None)
                    continue
                sizes.append(len(message.value() or b"") + len(message.key() or b""))
                partition = expected.pop(key, None)
                if partition is not None:
                    when = time_of(message.timestamp()[1])
                    self._oldest[partition, begins[partition]] = time.time() if when is None else when.timestamp()
        self._reader.unassign()
        if sizes:
            self._mean = sum(sizes) / len(sizes)
