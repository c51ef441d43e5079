# SPDX-License-Identifier: Apache-2.0
"""A landing next to a live connector: one spec for the table of a scene, and what the command line does with it."""

from __future__ import annotations

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest
from dev.record_traces import Scene
from tests.support.cli import COMMAND, LAND_SECONDS, Answer, run
from tests.support.declared import nested
from tests.support.waiting import PATIENCE

__all__ = ["Adoption"]

Row = tuple[int, int]


@dataclass(kw_only=True)
class Adoption:
    """A scene with a landing of the same topic and table."""

    scene: Scene
    spec: Path
    bootstrap: str
    connect: str

    @classmethod
    def of(cls, scene: Scene, folder: Path, bootstrap: str, connect: str, spark: str, **more: Any) -> Adoption:
        values = {
            "name": scene.connector,
            "topics": scene.source,
            "table": scene.table,
            "dead_letter_table": f"{scene.table}_dead",
            "control_topic": f"lakecommit-{scene.control}",
            "kafka": {"bootstrap.servers": bootstrap},
            "catalog": {
                "name": "lake",
                "type": "sql",
                "uri": f"sqlite:///{scene.lake.database}",
                "warehouse": scene.lake.sink["warehouse"],
            },
            "spark": {"remote": spark},
            **more,
        }
        path = folder / f"{scene.connector}.yaml"
        path.write_text(json.dumps(nested(**values)))
        return cls(scene=scene, spec=path, bootstrap=bootstrap, connect=connect)

    @property
    def topics(self) -> tuple[str, ...]:
        named = json.loads(self.spec.read_text())["topics"]
        return (named,) if isinstance(named, str) else tuple(named)

    @property
    def rest(self) -> ConnectRest:
        return ConnectRest(url=self.connect)

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("connect", "adopt", str(self.spec), "--connector", self.scene.connector, "--connect", self.connect)

    def adopt(self, *more: str, timeout: float = LAND_SECONDS) -> Answer:
        return run(*self.arguments, *more, timeout=timeout)

    def running(self, *more: str) -> subprocess.Popen[str]:
        """The command in a process that a test kills."""
        return subprocess.Popen(
            [*COMMAND, *self.arguments, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def killed_after(self, step: str, *more: str) -> bool:
        """SIGKILL as soon as it has said that; whether it was still there."""
        process = self.running(*more)
        for line in process.stderr or ():
            if step in line:
                with suppress(ProcessLookupError):
                    process.kill()
                break
        process.communicate(timeout=LAND_SECONDS)
        return process.returncode == -9

    def killed_in(self, seconds: float, *more: str) -> bool:
        """SIGKILL after that time; whether it was still there."""
        process = self.running(*more)
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        process.communicate(timeout=LAND_SECONDS)
        timer.cancel()
        return process.returncode == -9

    def land(self) -> Answer:
        return run("land", str(self.spec), "--json", timeout=LAND_SECONDS)

    def verified(self) -> Answer:
        return run("verify", str(self.spec))

    def offsets(self) -> dict[str, int]:
        """Where each partition goes on, by the ledger."""
        return dict(run("history", str(self.spec), "--ledger", "--json").value)

    def dead_letters(self) -> int:
        return len(self.scene.lake.catalog.load_table(f"{self.scene.table}_dead").scan().to_arrow())

    def rows(self) -> Counter[Row]:
        """The table, read by pyiceberg."""
        found = self.scene.lake.catalog.load_table(self.scene.table).scan().to_arrow()
        return Counter(zip(found["id"].to_pylist(), found["part"].to_pylist(), strict=True))

    def sent(self, below: Mapping[str, int] | None = None) -> Counter[Row]:
        """What the topic holds, read by a consumer of its own.

        :param below: only records before these offsets, by partition as messages name it
        """
        return Counter(self._records(below))

    def _records(self, below: Mapping[str, int] | None) -> Iterator[Row]:
        settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **settings})
        known = consumer.list_topics(timeout=30).topics
        try:
            for topic, number in ((t, n) for t in self.topics for n in sorted(known[t].partitions)):
                start, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
                end = end if below is None else below[f"{topic}[{number}]"]
                consumer.assign([TopicPartition(topic, number, start)])
                while start < end:
                    message = consumer.poll(PATIENCE)
                    # The end, behind what nobody is given: markers, and records that were aborted.
                    if message is None or message.error() is not None:
                        break
                    start = int(message.offset() or 0) + 1
                    value = json.loads(message.value() or b"")
                    if start <= end and isinstance(value["id"], int):
                        yield value["id"], value["part"]
        finally:
            consumer.close()

    def check_exactly_once(self, below: Mapping[str, int] | None = None) -> None:
        """The table holds each record that was sent, row by row, or those before these offsets, and nothing else."""
        sent, rows = self.sent(below), self.rows()
        assert rows - sent == Counter(), "rows that are there too often"
        assert sent - rows == Counter(), "rows that are missing"
