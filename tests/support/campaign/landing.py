# SPDX-License-Identifier: Apache-2.0
"""One landing of the campaign: its topic, its spec, its command line and its tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from tests.fakes.broker import MemoryBroker
from tests.support.campaign.console import Answer, Console
from tests.support.campaign.model import Born, Model
from tests.support.campaign.reader import DEAD, ROWS, rows_of
from tests.support.campaign.sink import is_sinks
from tests.support.world import SCHEMA, catalog_in

__all__ = ["PARTITIONS", "TOPICS", "CampaignLanding", "Cluster", "set_of", "several_of", "spec_of"]

TOPICS = ("orders", "returns", "refunds")
"""Of a set, which has the first two at first."""
PARTITIONS = 2
MOST_RECORDS = 8


class Cluster(Protocol):
    """The topics in an operator's hands; a :class:`~tests.fakes.broker.MemoryBroker` does all of it."""

    def create(self, topic: str, partitions: int) -> None: ...
    def grow(self, topic: str, partitions: int) -> None: ...
    def remove_before(self, topic: str, partition: int, offset: int) -> None: ...
    def truncate(self, topic: str, partition: int, offset: int) -> None: ...
    def produce(self, topic: str, values: list[tuple[str, str]], partition: int, *, aborted: bool = False) -> None: ...


def spec_of(folder: Path, bootstrap: str, topic: str, control: str) -> dict[str, Any]:
    """What the landing declares at first."""
    return {
        "name": "orders",
        "topics": topic,
        "table": ROWS,
        "dead_letter_table": DEAD,
        "dead_letter_max_records": 100_000,
        "dead_letter_max_ratio": 1.0,
        "unknown_fields": "dead_letter",
        "metadata_columns": True,
        "slice_records": 5,
        # Runs compact soon, next to whatever else is done.
        "max_debt_files": 10,
        "create": SCHEMA,
        "control_topic": control,
        "kafka": {"bootstrap.servers": bootstrap},
        "catalog": catalog_in(folder),
    }


def set_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A set of landings, each as the landing of a spec."""
    own = ("name", "topics", "table", "dead_letter_table", "kafka", "catalog")
    return {
        "name": "shop",
        "topics": list(TOPICS[:2]),
        "table": f"{ROWS}_{{topic}}",
        "dead_letter_table": "{table}_dead",
        "missing_table": "create",
        "defaults": {key: value for key, value in spec.items() if key not in own},
        "kafka": spec["kafka"],
        "catalog": spec["catalog"],
    }


def several_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A landing that makes one to three rows of each record."""
    columns: list[dict[str, Any]] = spec["create"]["schema"]
    part: dict[str, Any] = {"name": "part", "type": "int", "required": True}
    return {
        **spec,
        "create": {**spec["create"], "schema": [*columns, part]},
        "record_schema": [*columns, {"name": "parts", "type": "list<int>"}],
        "transform": "select id, name, unnest(parts) as part from record",
    }


@dataclass(slots=True)
class CampaignLanding:
    """What operations work with: a landing, or one of a set at a time. ``logs`` holds what the source holds."""

    cluster: Cluster
    logs: MemoryBroker
    console: Console
    model: Model
    topic: str
    next_id: int = 0
    names: int = 0
    adopted: bool = False
    """Did a sink land in the table before?"""
    sinks_turn: bool = False
    held: list[Callable[[], object]] = field(default_factory=list)
    """A commit request that is still on its way."""

    @property
    def spec(self) -> dict[str, Any]:
        return self.console.spec

    @property
    def is_set(self) -> bool:
        return "defaults" in self.spec

    @property
    def starts(self) -> tuple[str, ...]:
        """Where it may begin."""
        return "earliest", "latest"

    @property
    def upserts(self) -> bool:
        return "upsert_key" in self.options

    @property
    def options(self) -> dict[str, Any]:
        """The options of a landing, in the spec."""
        options: dict[str, Any] = self.spec["defaults"] if self.is_set else self.spec
        return options

    def choose(self, chance: Random) -> None:
        """Which landing of a set the next step is about."""
        if self.is_set:
            self.topic = chance.choice(self.spec["topics"])

    def choose_of(self, answer: Answer) -> None:
        """The next command is about the landing of a set that this answer is about."""
        if self.is_set and answer.landing:
            self.topic = answer.landing.rpartition("_")[2]

    def table(self, name: str) -> str:
        """Of a set that of the landing that the step is about."""
        if not self.is_set:
            return name
        return f"{ROWS}_{self.topic}" + "_dead" * (name == DEAD)

    @property
    def name(self) -> str:
        """Of a set that of the landing that the step is about."""
        return f"{self.spec['name']}.{self.table(ROWS)}" if self.is_set else str(self.spec["name"])

    @property
    def partitions(self) -> int:
        return len(self.logs.topics[self.topic].partitions)

    def borders(self, partition: int) -> tuple[int, int]:
        log = self.logs.topics[self.topic].partitions[partition]
        return log.start, log.end

    def run(self, *words: str) -> Answer:
        """Run a command; of a set on the landing that the step is about, but for `land`, which lands them all."""
        if self.is_set and words[0] != "land" and "--landing" not in words:
            words = (*words, "--landing", self.name)
        answer = self.console.run(*words)
        if self.sinks_turn and answer.done and words[:2] == ("reset", "offsets"):
            # It is refused during a sink's turn, but for one that ended with its topic, or was rolled back.
            with self.another_engine() as catalog:
                self.sinks_turn = is_sinks(catalog.load_table(ROWS))
        return answer

    def new_name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}-{self.names}"

    def produce(self, chance: Random, partition: int | None = None) -> None:
        """A few records for one partition: some have a field that no column is for; now and then all are aborted."""
        p = chance.randrange(self.partitions) if partition is None else partition
        count, aborted = chance.randint(1, MOST_RECORDS), chance.random() < 0.1
        odd = chance.choice((0.0, 0.0, 0.5, 1.0))
        ids = range(self.next_id, self.next_id + count)
        self.next_id += count
        topic = self.logs.topics[self.topic]
        end = topic.partitions[p].end
        several = "record_schema" in self.options
        records = [_record(n, odd=chance.random() < odd, several=several) for n in ids]
        self.cluster.produce(self.topic, records, p, aborted=aborted)
        if not aborted:
            for place, n in enumerate(ids):
                self.model.born[n] = Born(self.topic, topic.topic_id, p, end + place)

    def lanes(self) -> list[dict[str, Any]]:
        """The open streams, as `backfill --list` shows them."""
        answer = self.run("backfill", "SPEC", "--list")
        return list(answer.results[0]["lanes"]) if answer.done else []

    def finish_lane(self, lane: dict[str, Any]) -> Answer:
        how = ("--replace", "--yes") if lane["replaces"] else ()
        return self.run("backfill", "SPEC", "--name", lane["lane"], *how)

    @contextmanager
    def another_engine(self) -> Iterator[Catalog]:
        """The catalog, as another writer has it."""
        properties = {k: v for k, v in self.spec["catalog"].items() if k != "type"}
        catalog = SqlCatalog("default", **properties)
        try:
            yield catalog
        finally:
            catalog.close()


def _record(n: int, *, odd: bool, several: bool) -> tuple[str, str]:
    values: dict[str, Any] = {"id": n, "name": f"n{n}"}
    values |= {"parts": list(range(rows_of(n)))} if several else {}
    return str(n), json.dumps({**values, "more": 1} if odd else values)
