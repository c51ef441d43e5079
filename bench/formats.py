# SPDX-License-Identifier: Apache-2.0
"""`python -m bench --format avro|protobuf`: rows in another format, beside the JSON landing and what else reads it.

Contract: both topics hold the same records, every table is compared row by row with the generator, and all land in one
run, by turns. What is compared is CPU-seconds of the whole process tree. A peer has processes of its own for each turn:
what its start costs is measured by turns over a topic of few records, and taken off.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.landing.registry import with_registry
from bench.measure import Cost, measured
from bench.orders import produce
from bench.peer_connect import run_connect
from bench.peer_script import run_script
from bench.peer_spark import run_spark
from bench.place import Place
from bench.product import Product
from bench.registered import framed, registry
from bench.shapes import SHAPES, Shape
from bench.verify import verify

__all__ = ["PEERS_OF", "run_formats"]

FEW = 20_000
PARTITIONS = 8
PEERS_OF = {"avro": ("script", "spark", "connect"), "protobuf": ("script",)}
"""What else reads a format. Spark's reader of Protobuf, and a converter of it, are not on every mirror of Maven."""
Land = Callable[[Landing], object]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to land a topic of a format. A ``peer`` starts anew each time; the others stay warm."""

    name: str
    format: str
    land: Land
    peer: bool = False

    @property
    def start(self) -> str:
        """Under this name stands what its start costs."""
        return f"start of {self.name}"


@dataclass(frozen=True, slots=True)
class Round:
    """The topics, by format, and what lands them."""

    place: Place
    shape: Shape
    few: int

    def fill(self, format: str) -> int:
        """Make both topics of a format; the bytes of the large one."""
        sizes = {}
        for name, records in self._topics.items():
            made = framed(self.shape, format, records)
            bootstrap = self.place.broker.bootstrap
            sizes[name] = produce(bootstrap, f"{name}-{format}", records, PARTITIONS, made=made)
        return sizes["all"]

    def turn(self, one: Contestant, name: str) -> Cost | None:
        """One landing of a topic; ``None`` if the table is not what was produced."""
        landing = self.place.landing(f"{name}-{one.format}", self.shape)
        if one.format != "json":
            landing = replace(landing, format=one.format, timestamps={})
        broker = self.place.broker.pid
        with measured(without={broker} if broker else ()) as cost:
            one.land(landing)
        found = verify(self.place.settings, landing.table, self._topics[name], self.shape)
        if found.wrong:
            print(f"{one.name}: {'; '.join(found.wrong)}")
            return None
        return cost

    @property
    def _topics(self) -> Mapping[str, int]:
        return {"few": self.few, "all": self.place.options.records}


def run_formats(place: Place, options: argparse.Namespace) -> int:
    """Run and print; 1 when a table is not what was produced."""
    shape = SHAPES[options.shape]
    round_ = Round(place, shape, min(FEW, options.records // 20))
    sizes = {kind: round_.fill(kind) / options.records for kind in ("json", options.format)}
    told = ", ".join(f"{size:.0f} bytes as {kind}" for kind, size in sizes.items())
    print(f"{options.records} records ({shape.name}) in {PARTITIONS} partitions: {told}")
    costs: dict[str, list[Cost]] = {}
    with ExitStack() as stack:
        settings = stack.enter_context(registry(shape))
        kafka = with_registry(place.kafka, settings)
        product = stack.enter_context(Product(kafka, place.settings, _whisper if options.verbose else _silence))
        contestants = [
            Contestant("JSON landing", "json", product.run_landing),
            Contestant(_landing(options.format), options.format, product.run_landing),
            *_peers(round_, options.format, settings["url"]),
        ]
        for one in contestants:
            if not one.peer and round_.turn(one, "few") is None:
                return 1
        for _ in range(options.rounds):
            for one in contestants:
                for topic in ("few", "all") if one.peer else ("all",):
                    if (cost := round_.turn(one, topic)) is None:
                        return 1
                    costs.setdefault(one.start if topic == "few" else one.name, []).append(cost)
                _tell(one.name, cost, options.records)
    _compare(contestants, costs, options.records, round_.few)
    return 0


def _landing(format: str) -> str:
    return f"{format.capitalize()} landing"


def _peers(round_: Round, format: str, registry: str) -> Iterator[Contestant]:
    """Those that the options name."""
    place, shape = round_.place, round_.shape
    kafka, settings, catalog = place.kafka, place.settings, place.catalog

    def script(one: Landing) -> float:
        return run_script(kafka, settings, one.topic_names[0], one.table, shape, format)

    def spark(one: Landing) -> float:
        return run_spark(kafka, settings, one.topic_names[0], one.table, place.folder, avro=json.dumps(shape.avro))

    def connect(one: Landing) -> float:
        topic = one.topic_names[0]
        records = round_.few if topic.startswith("few") else place.options.records
        return run_connect(kafka, settings, catalog, topic, one.table, records, place.folder, registry=registry)

    known: Mapping[str, tuple[str, Land]] = {
        "script": ("two-process script", script),
        "spark": ("Spark from_avro", spark),
        "connect": ("Kafka Connect sink", connect),
    }
    for key in PEERS_OF[format]:
        if key in place.options.peers:
            yield Contestant(known[key][0], format, known[key][1], peer=True)


def _tell(name: str, cost: Cost, records: int) -> None:
    rate = records / 1000 / cost.cpu
    print(
        f"{name:28}{cost.wall:>8.2f} s {cost.cpu:>8.2f} CPU s {rate:>8.1f} krec/CPU-s {cost.peak_mb:>6.0f} MB  "
        f"load {cost.load:.1f}",
        flush=True,
    )


def _compare(contestants: list[Contestant], costs: Mapping[str, list[Cost]], records: int, few: int) -> None:
    """Medians; those of peers also without what it costs to start them, as few records show."""
    cpu = {name: statistics.median(cost.cpu for cost in some) for name, some in costs.items()}
    rates: dict[str, float] = {}
    for one in contestants:
        rates[one.name] = records / 1000 / cpu[one.name]
        if one.peer and cpu[one.name] > cpu[one.start]:
            rates[f"{one.name}, started"] = (records - few) / 1000 / (cpu[one.name] - cpu[one.start])
    ours = rates[contestants[1].name]
    for name, rate in rates.items():
        print(f"{name:28}{rate:>8.1f} krec/CPU-s; the {contestants[1].name} {ours / rate:.2f} x that")


def _silence(_text: str) -> None:
    """The figures are enough."""


def _whisper(text: str) -> None:
    print(f"  {text}", file=sys.stderr)
