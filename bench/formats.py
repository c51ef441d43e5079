# SPDX-License-Identifier: Apache-2.0
"""`python -m bench --format avro`: the same orders in another format, beside the JSON landing and Spark's own reader.

Contract: both topics hold the same records, every table is compared row by row with the generator, and all land in one
run, by turns. What is compared is CPU-seconds of the whole process tree. Spark's query has a process of its own for
each turn: what its start costs is measured by turns over a topic of few records, and taken off.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.registry.settings import with_registry
from bench.avro_orders import AVRO, registry, values
from bench.measure import Cost, measured
from bench.orders import produce
from bench.peer_spark import run_spark
from bench.product import Product
from bench.verify import verify

__all__ = ["run_avro"]

FEW = 20_000
PARTITIONS = 8
OF_AVRO, OF_SPARK, START = "Avro landing", "Spark from_avro", "start of Spark's query"
Land = Callable[[Landing], object]


def run_avro(place: Any, options: argparse.Namespace) -> int:
    """Run and print; 1 when a table is not what was produced.

    :param place: as of :mod:`bench.__main__`
    """
    sizes = {}
    for name, records in (("few", FEW), ("orders", options.records)):
        for kind, made in (("json", None), ("avro", values(0, records, records))):
            topic = f"{name}-{kind}"
            sizes[topic] = produce(place.broker.bootstrap, topic, records, PARTITIONS, made=made)
    told = ", ".join(f"{sizes[f'orders-{kind}'] / 1e6:.1f} MB as {kind}" for kind in ("json", "avro"))
    print(f"{options.records} orders in {PARTITIONS} partitions: {told}")
    costs: dict[str, list[Cost]] = {}
    with ExitStack() as stack:
        settings = stack.enter_context(registry())
        kafka = with_registry(place.kafka, settings)
        product = stack.enter_context(Product(kafka, place.settings, _whisper if options.verbose else _silence))
        contestants: Mapping[str, tuple[str, Land]] = {
            "JSON landing": ("json", product.run_landing),
            OF_AVRO: ("avro", product.run_landing),
            **({OF_SPARK: ("avro", lambda one: _spark(place, one))} if "spark" in options.peers else {}),
        }
        for turn in range(options.rounds + 1):
            for name, (kind, land) in contestants.items():
                # The landings' session is warm after it; Spark's query has one of its own each time.
                if not turn or name == OF_SPARK:
                    costs.setdefault(START, [])
                    if (cost := _turn(place, f"few-{kind}", land, FEW)) is None:
                        return 1
                    costs[START] += [cost] if name == OF_SPARK else []
                if turn:
                    if (cost := _turn(place, f"orders-{kind}", land, options.records)) is None:
                        return 1
                    costs.setdefault(name, []).append(cost)
                    _tell(name, cost, options.records)
    _compare(costs, options.records)
    return 0


def _landing(place: Any, topic: str) -> Landing:
    made: Landing = place.landing(topic)
    return replace(made, format="avro", timestamps={}) if topic.endswith("avro") else made


def _spark(place: Any, landing: Landing) -> None:
    topic = landing.topic_names[0]
    run_spark(place.kafka, place.settings, topic, landing.table, place.folder, avro=json.dumps(AVRO))


def _turn(place: Any, topic: str, land: Land, records: int) -> Cost | None:
    landing = _landing(place, topic)
    broker = place.broker.pid
    with measured(without={broker} if broker else ()) as cost:
        land(landing)
    found = verify(place.settings, landing.table, records)
    if found.wrong:
        print("; ".join(found.wrong))
        return None
    return cost


def _tell(name: str, cost: Cost, records: int) -> None:
    rate = records / 1000 / cost.cpu
    print(
        f"{name:28}{cost.wall:>8.2f} s {cost.cpu:>8.2f} CPU s {rate:>8.0f} krec/CPU-s  load {cost.load:.1f}", flush=True
    )


def _compare(costs: Mapping[str, list[Cost]], records: int) -> None:
    """Medians; that of Spark's query also without what it costs to start it, as few records show."""
    cpu = {name: statistics.median(cost.cpu for cost in some) for name, some in costs.items() if some}
    rates = {name: records / 1000 / seconds for name, seconds in cpu.items() if name != START}
    if OF_SPARK in cpu:
        rates[f"{OF_SPARK}, started"] = (records - FEW) / 1000 / (cpu[OF_SPARK] - cpu[START])
    for name, rate in rates.items():
        print(f"{name:28}{rate:>6.0f} krec/CPU-s; the Avro landing {rates[OF_AVRO] / rate:.2f} x that")


def _silence(_text: str) -> None:
    """The figures are enough."""


def _whisper(text: str) -> None:
    print(f"  {text}", file=sys.stderr)
