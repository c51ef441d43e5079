# SPDX-License-Identifier: Apache-2.0
"""`python -m bench`: JSON orders from a real topic into a real table, by the product and by a plain process.

Contract: every table is compared row by row with the generator before its figures count; a table that differs ends the
run with 1. The contestants take turns on the same topic, each with fresh tables, in the same process: what is compared
is CPU-seconds of the whole process tree. Wall seconds count on a quiet machine only: beside them stand the load and the
time for which the threads of the tree were ready to run and had to wait for a processor.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import Catalog, load_catalog

from airflow_provider_lakecommit.landing import Landing
from bench.measure import Cost, measured
from bench.orders import BY_DAY, BY_DAY_AND_BUCKET, SCHEMA, produce
from bench.plain import run_plain
from bench.product import Product
from bench.verify import differences
from dev.kafka import Broker
from dev.paths import run_dir

WARM_UP = 20_000
WARM_UP_PARTITIONS = 8
"""As many as make every group read, so that no worker of Spark has to start while it is measured."""
HEADINGS = (
    f"{'':16}{'wall s':>8}{'krec/s':>8}{'CPU s':>8}{'krec/CPU-s':>12}{'waited s':>10}{'load':>6}{'peak MB':>9}"
    f"{'files':>7}{'MB':>8}  verified"
)
SPECS = {"day": BY_DAY, "day+bucket": BY_DAY_AND_BUCKET}

Contestant = Callable[[Landing], None]


def main(arguments: list[str]) -> int:
    """Run and print a table; 1 when a table is not what was produced."""
    options = _options(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=run_dir()) as folder,
        Broker(Path(folder) / "kafka") as broker,
    ):
        kafka = {"bootstrap.servers": broker.bootstrap}
        catalog_settings = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        catalog = load_catalog("lakecommit", **catalog_settings)
        catalog.create_namespace("bench")
        produce(broker.bootstrap, "warm-up", WARM_UP, WARM_UP_PARTITIONS)
        with Product(kafka, catalog_settings, _whisper if options.verbose else _silence) as product:
            contestants: dict[str, Contestant] = {
                "plain process": lambda landing: run_plain(landing, kafka, catalog.load_table(landing.table)),
                "landing": product.run_landing,
            }
            for partitions in options.partitions:
                print(f"{options.records} orders in {partitions} partitions")
                topic = f"orders-{partitions}"
                size = produce(broker.bootstrap, topic, options.records, partitions)
                if not _compare(contestants, catalog, options, topic, size, broker.pid):
                    return 1
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="CPU-seconds of a landing beside a plain process"
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, nargs="+", default=[8], help="one topic of each number of partitions")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each contestant; the median counts")
    parser.add_argument("--spec", choices=SPECS, default="day", help="partition spec of the tables")
    parser.add_argument("--slice-records", type=int, default=250_000)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="what the landings say of themselves")
    return parser.parse_args(arguments)


def _compare(
    contestants: dict[str, Contestant],
    catalog: Catalog,
    options: argparse.Namespace,
    topic: str,
    size: int,
    broker: int | None,
) -> bool:
    """Let all land the topic, in turns, and print a table. Whether every table was right."""
    costs: dict[str, list[Cost]] = {name: [] for name in contestants}
    print(f"{size / 1e6:.1f} MB of values, {size / options.records:.0f} bytes each; spec {options.spec}")
    print(HEADINGS)
    for land in contestants.values():
        land(_landing(catalog, "warm-up", options))
    for _ in range(options.rounds):
        for name, land in contestants.items():
            landing = _landing(catalog, topic, options)
            with measured(without=broker) as cost:
                land(landing)
            if not _told(name, cost, catalog, landing, options):
                return False
            costs[name].append(cost)
    medians = {name: statistics.median(c.cpu for c in all_) for name, all_ in costs.items()}
    base = medians["plain process"]
    for name, cpu in medians.items():
        print(f"{name:16}{cpu / base:>8.2f} x the CPU-seconds of the plain process (median of {options.rounds})")
    return True


def _landing(catalog: Catalog, topic: str, options: argparse.Namespace) -> Landing:
    """A landing of its own, and its table."""
    name = f"{topic}-{uuid4().hex[:8]}"
    catalog.create_table(f"bench.{name}", SCHEMA, partition_spec=SPECS[options.spec])
    return Landing(
        name=name,
        topics=topic,
        table=f"bench.{name}",
        timestamps={"ts": "epoch_millis"},
        slice_records=options.slice_records,
        groups=options.groups,
    )


def _told(name: str, cost: Cost, catalog: Catalog, landing: Landing, options: argparse.Namespace) -> bool:
    """Verify the table, and print a line. Whether it is right."""
    table = catalog.load_table(landing.table)
    wrong = differences(table, options.records)
    files = [task.file for task in table.scan().plan_files()]
    thousands = options.records / 1000
    figures: list[Any] = [cost.wall, thousands / cost.wall, cost.cpu, thousands / cost.cpu, cost.waited, cost.load]
    figures += [cost.peak_mb, len(files)]
    megabytes = sum(f.file_size_in_bytes for f in files) / 1e6
    line = "{:>8.2f}{:>8.0f}{:>8.2f}{:>12.0f}{:>10.1f}{:>6.1f}{:>9.0f}{:>7d}".format(*figures)
    print(f"{name:16}{line}{megabytes:>8.1f}  {'; '.join(wrong) or 'row by row'}", flush=True)
    return not wrong


def _silence(_text: str) -> None:
    """The figures are enough."""


def _whisper(text: str) -> None:
    print(f"  {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
