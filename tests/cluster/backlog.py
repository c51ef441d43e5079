# SPDX-License-Identifier: Apache-2.0
"""Orders in a topic, a landing of them on a Spark that is elsewhere, and what is in its table then."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog

from tests.fixtures.kafka import Sender
from tests.support.cli import LAND_SECONDS, Answer, Running, orders, run, write_spec
from tests.support.waiting import until

__all__ = ["SLICE", "SLICES", "TOTAL", "Backlog"]

SLICE, SLICES = 50, 6
TOTAL = SLICE * SLICES
CONF = {"spark.executor.memory": "600m"}


@dataclass(frozen=True, slots=True)
class Backlog:
    """A spec whose landing has one group of :data:`SLICES` slices before it."""

    spec: Path

    @classmethod
    def of(cls, folder: Path, topic: str, bootstrap: str, sender: Sender, spark: dict[str, Any]) -> Backlog:
        sender.produce(topic, orders(TOTAL), 0)
        catalog = {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        if "master" in spark:
            spark = {**spark, "conf": {**CONF, **spark.get("conf", {})}}
        stated = {"groups": 1, "slice_records": SLICE, "spark": spark}
        return cls(write_spec(folder, "orders", topic, f"{topic}-control", bootstrap, catalog, **stated))

    @property
    def values(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.spec.read_text())
        return found

    def land(self) -> Answer:
        return run("land", str(self.spec), "--json", timeout=LAND_SECONDS)

    @contextmanager
    def landing(self) -> Iterator[Running]:
        """A `land` in a process of its own, which ends with the block."""
        running = Running.land(self.spec)
        try:
            yield running
        finally:
            running.close()

    @property
    def done(self) -> int:
        """Slices that are reported and not in the table yet."""
        lines = run("history", str(self.spec), "--control-topic", "--group", "lakecommit-orders", "--json").lines
        return sum(r["event"]["type"] == "DATA_COMPLETE" for r in lines)

    def await_done(self, count: int) -> None:
        until(lambda: self.done >= count, what=f"{count} slices reported", pause=0.5)

    def check(self) -> None:
        """Each order is in the table once, by another reader than ours; and `verify` agrees."""
        values = self.values
        table = load_catalog(**values["catalog"]).load_table(values["table"])
        found = Counter(table.scan().to_arrow().column("id").to_pylist())
        expected = Counter(range(TOTAL))
        assert (found - expected, expected - found) == (Counter(), Counter()), "doubled, lost"
        verified = run("verify", str(self.spec), "--json")
        assert verified.code == 0, verified.out
        assert verified.value["tables"][0]["rows"] == TOTAL
