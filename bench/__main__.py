# SPDX-License-Identifier: Apache-2.0
"""`python -m bench`: records of a real topic into a real table, by the product and by what else there is.

Contract: every table is compared row by row with the generator before its figures count; a table that differs ends the
run with 1. All contestants land the same topic, each with fresh tables of the same catalog. The landing and the plain
process take turns, both warm; what is compared of them is CPU-seconds of the whole process tree. With ``--peers``, what
others use lands it too, each with its own start; the rate of all is told from the first record on.

Wall seconds count on a quiet machine only: beside them stand the load and the time for which the threads of the tree
were ready to run and had to wait for a processor. Nobody's memory or CPU holds the broker, the verification or another
contestant.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import statistics
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil

from airflow_provider_lakecommit.landing import Landing
from bench.formats import PEERS_OF, run_formats
from bench.measure import Cost, measured
from bench.orders import produce
from bench.peer_connect import run_connect
from bench.peer_script import run_script
from bench.peer_spark import run_spark
from bench.place import SPECS, Place, place_of
from bench.plain import run_plain
from bench.product import Product
from bench.shapes import ORDERS, SHAPES
from bench.verify import verify

WARM_UP = 20_000
WARM_UP_PARTITIONS = 8
"""As many as make every group read, so that no worker of Spark has to start while it is measured."""
PLAIN, LANDING = "plain process", "landing"
PEERS = ("script", "spark", "connect")
HEADINGS = (
    f"{'':20}{'wall s':>8}{'krec/s':>8}{'CPU s':>8}{'krec/CPU-s':>12}{'waited s':>10}{'load':>6}{'peak MB':>9}"
    f"{'files':>7}{'MB':>8}  verified"
)

Contestant = Callable[[Landing], float | None]
"""Lands; returns the seconds since its first record where starting was part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One landing of one contestant. ``rate`` is in records per second from its first record on."""

    cost: Cost
    rate: float


def main(arguments: list[str]) -> int:
    """Run and print tables; 1 when a table is not what was produced."""
    options = _options(arguments)
    with place_of(options) as place:
        if options.format != "json":
            return run_formats(place, options)
        produce(place.broker.bootstrap, "warm-up", WARM_UP, WARM_UP_PARTITIONS)
        for partitions in options.partitions:
            topic = f"orders-{partitions}"
            size = produce(place.broker.bootstrap, topic, options.records, partitions)
            print(f"{options.records} orders in {partitions} partitions, {size / 1e6:.1f} MB of values; {options.spec}")
            print(HEADINGS)
            turns = _all_turns(place, topic)
            if turns is None:
                return 1
            _compare(turns)
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="CPU-seconds of a landing beside a plain process, and rates beside peers"
    )
    parser.add_argument("--records", type=int, help="2,000,000; 100,000 wide ones")
    parser.add_argument("--partitions", type=int, nargs="+", default=[8], help="one topic of each number of partitions")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contestant; the median counts")
    parser.add_argument("--format", choices=("json", *PEERS_OF), default="json", help="others: beside the JSON landing")
    parser.add_argument("--shape", choices=SHAPES, default="orders", help="of the records, in another format than JSON")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=[], help="what else lands the topic")
    parser.add_argument("--spec", choices=SPECS, default="day", help="partition spec of the tables")
    parser.add_argument("--slice-records", type=int, default=250_000)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="what the landings say of themselves")
    options = parser.parse_args(arguments)
    if options.format == "json" and options.shape != ORDERS.name:
        parser.error("JSON landings alone are measured with orders: name another format, beside which JSON is measured")
    if nobody := set(options.peers) - set(PEERS_OF.get(options.format, PEERS)):
        parser.error(f"no peer reads {options.format}: {', '.join(sorted(nobody))}")
    options.records = options.records or SHAPES[options.shape].records
    return options


def _all_turns(place: Place, topic: str) -> dict[str, list[Turn]] | None:
    """Spark and Connect first, each with its own start; then script, plain process and landing by turns. ``None`` when
    a table is not what was produced.
    """
    turns: dict[str, list[Turn]] = {}
    script, others = _peers(place)
    for _ in range(place.options.rounds):
        if not all(_turn(place, topic, name, land, (), turns) for name, land in others.items()):
            return None
    with ExitStack() as stack:
        before = _children()
        pool = stack.enter_context(mp.get_context("spawn").Pool(1))
        plain: Contestant = partial(_plainly, pool, place)
        plain(place.landing("warm-up"))
        of_plain = _children() - before
        log = _whisper if place.options.verbose else _silence
        product = stack.enter_context(Product(place.kafka, place.settings, log))
        product.run_landing(place.landing("warm-up"))
        of_product = _children() - before - of_plain
        for _ in range(place.options.rounds):
            both = {*of_plain, *of_product}
            round_ = [(name, land, both) for name, land in script.items()]
            round_ += [(PLAIN, plain, of_product), (LANDING, product.run_landing, of_plain)]
            if not all(_turn(place, topic, name, land, idle, turns) for name, land, idle in round_):
                return None
    return turns


def _peers(place: Place) -> tuple[dict[str, Contestant], dict[str, Contestant]]:
    """The script, and those that bring a Java process of their own."""
    kafka, settings, catalog, records = place.kafka, place.settings, place.catalog, place.options.records
    known: dict[str, tuple[str, Contestant]] = {
        "script": (
            "two-process script",
            lambda one: run_script(kafka, settings, one.topic_names[0], one.table, ORDERS),
        ),
        "spark": (
            "Spark streaming",
            lambda one: run_spark(kafka, settings, one.topic_names[0], one.table, place.folder),
        ),
        "connect": (
            "Kafka Connect sink",
            lambda one: run_connect(kafka, settings, catalog, one.topic_names[0], one.table, records, place.folder),
        ),
    }
    chosen = {key: known[key] for key in PEERS if key in place.options.peers}
    script = dict(one for key, one in chosen.items() if key == "script")
    return script, dict(one for key, one in chosen.items() if key != "script")


def _plainly(pool: Any, place: Place, landing: Landing) -> None:
    """In a process of its own, which stays warm."""
    pool.apply(run_plain, (landing, place.kafka, dict(place.settings)))


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def _turn(
    place: Place, topic: str, name: str, land: Contestant, others: Collection[int], turns: dict[str, list[Turn]]
) -> bool:
    """One landing: measured, verified, told. Whether its table is right."""
    landing, records = place.landing(topic), place.options.records
    broker = place.broker.pid
    with measured(without={*others, *([broker] if broker else [])}) as cost:
        after_start = land(landing)
    found = verify(place.settings, landing.table, records)
    rate = records / (after_start or cost.wall)
    figures = [cost.wall, rate / 1000, cost.cpu, records / 1000 / cost.cpu, cost.waited, cost.load, cost.peak_mb]
    line = "{:>8.2f}{:>8.0f}{:>8.2f}{:>12.0f}{:>10.1f}{:>6.1f}{:>9.0f}".format(*figures)
    told = "; ".join(found.wrong) or "row by row"
    print(f"{name:20}{line}{found.files:>7}{found.bytes / 1e6:>8.1f}  {told}", flush=True)
    turns.setdefault(name, []).append(Turn(cost=cost, rate=rate))
    return not found.wrong


def _compare(turns: Mapping[str, Sequence[Turn]]) -> None:
    """Medians beside those of the plain process and of the landing."""
    cpu = {name: statistics.median(t.cost.cpu for t in all_) for name, all_ in turns.items()}
    rate = {name: statistics.median(t.rate for t in all_) for name, all_ in turns.items()}
    print(f"medians of {len(turns[LANDING])}:")
    for name in turns:
        print(
            f"{name:20}{rate[name] / 1000:>8.0f} krec/s, the landing {rate[LANDING] / rate[name]:.2f} x that; "
            f"{cpu[name] / cpu[PLAIN]:.2f} x the CPU-seconds of the plain process"
        )


def _silence(_text: str) -> None:
    """The figures are enough."""


def _whisper(text: str) -> None:
    print(f"  {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
