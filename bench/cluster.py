# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.cluster`: a backlog on two workers of a standalone cluster, beside the same backlog on one.

Contract: each worker has one core of the cluster, and with ``--pinned`` one of the machine. Both shapes land the same
topic by turns, each in a session of its own that is warm when it is measured, into fresh tables that are compared row
by row with the generator. Told are wall seconds, rates and CPU-seconds, and how many times the rate of one worker two
have. Broker, driver and commits take from the same machine: where it has no more cores than workers, two have less than
twice the rate. Wall seconds count on a quiet machine only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from pyiceberg.catalog import load_catalog

from bench.__main__ import WARM_UP, WARM_UP_PARTITIONS
from bench.measure import Cost, measured
from bench.orders import produce
from bench.place import Place
from bench.product import Product
from bench.verify import verify
from dev.paths import run_dir
from dev.servers.kafka import Broker
from dev.servers.standalone import StandaloneCluster

TOPIC, FIRST = "orders", "warm-up"
PARTITIONS = 8
SHAPES = (1, 2)
"""Workers that the session may use."""


def main(arguments: list[str]) -> int:
    """Run and print; 1 when a table is not what was produced."""
    options = _options(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=run_dir())))
        broker = stack.enter_context(Broker(folder / "kafka"))
        cluster = stack.enter_context(StandaloneCluster(folder / "cluster", workers=max(SHAPES)))
        if options.pinned:
            _pin(cluster)
        settings = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        catalog = load_catalog("lakecommit", **settings)
        catalog.create_namespace("bench")
        place = Place(broker=broker, catalog=catalog, settings=settings, folder=folder, options=options)
        produce(broker.bootstrap, FIRST, WARM_UP, WARM_UP_PARTITIONS)
        produce(broker.bootstrap, TOPIC, options.records, PARTITIONS)
        costs: dict[int, list[Cost]] = {workers: [] for workers in SHAPES}
        for _ in range(options.rounds):
            for workers in SHAPES:
                if (cost := _turn(place, cluster, workers)) is None:
                    return 1
                costs[workers].append(cost)
                _tell(workers, cost, options.records)
    rates = {n: statistics.median(options.records / cost.wall for cost in some) for n, some in costs.items()}
    print(f"two workers {rates[2] / 1000:.0f} krec/s, {rates[2] / rates[1]:.2f} x the rate of one")
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--spec", default="day", help="partition spec of the tables")
    parser.add_argument("--slice-records", type=int, default=125_000)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--pinned", action="store_true", help="each worker on one processor of this machine")
    parser.add_argument("--verbose", action="store_true", help="what the landings say of themselves")
    return parser.parse_args(arguments)


def _pin(cluster: StandaloneCluster) -> None:
    """Executors are their children and stay where they are."""
    processors = sorted(os.sched_getaffinity(0))
    for number, worker in enumerate(cluster.workers):
        if worker.pid is not None:
            for thread in Path(f"/proc/{worker.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), {processors[number % len(processors)]})


def _turn(place: Place, cluster: StandaloneCluster, workers: int) -> Cost | None:
    """What one landing of everything cost; ``None`` if the table is wrong, which is told."""
    conf = {
        "spark.cores.max": str(workers),
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
        # All of them are there, and get work, before anything is measured.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    log: Callable[[str], None] = _whisper if place.options.verbose else _silence
    with Product(place.kafka, place.settings, log, {"master": cluster.url, "conf": conf}) as product:
        product.run_landing(place.landing(FIRST).changed(window={"slice_records": WARM_UP // WARM_UP_PARTITIONS}))
        landing = place.landing(TOPIC)
        with measured(without={place.broker.pid} if place.broker.pid else ()) as cost:
            product.run_landing(landing)
        used = sum(bool(worker.executors) for worker in cluster.workers)
    found = verify(place.settings, landing.table, place.options.records)
    wrong = [*found.wrong, *([f"{used} workers had work, not {workers}"] if used != workers else [])]
    if wrong:
        print("; ".join(wrong))
        return None
    return cost


def _tell(workers: int, cost: Cost, records: int) -> None:
    print(
        f"{workers} worker{'s' if workers > 1 else ' '}  {cost.wall:6.2f} s  {records / cost.wall / 1000:6.0f} krec/s  "
        f"{cost.cpu:6.2f} CPU-s  load {cost.load:.1f}",
        flush=True,
    )


def _whisper(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _silence(text: str) -> None:
    """Warm-up and turns say nothing of themselves."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
