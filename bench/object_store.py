# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.object_store`: the same topic landed on the local disk and on an S3 server, by turns.

Contract: both landings are warm and use the same catalog; only the warehouse differs. The S3 server runs on this
machine, and its CPU is not counted, but its wall seconds are. Every table is compared row by row with the generator
before its figures count; a table that differs ends the run with 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from dataclasses import replace

from pyiceberg.catalog import load_catalog

from bench.measure import measured
from bench.orders import produce
from bench.place import SPECS, Place, place_of
from bench.product import Product
from bench.verify import verify
from dev.servers.s3 import S3Server


def main(arguments: list[str]) -> int:
    """Run and print; 1 when a table is not what was produced."""
    parser = argparse.ArgumentParser(prog="python -m bench.object_store", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spec", choices=SPECS, default="day")
    parser.add_argument("--slice-records", type=int, default=250_000)
    parser.add_argument("--groups", type=int, default=2)
    options = parser.parse_args(arguments)
    with ExitStack() as ends:
        disk = ends.enter_context(place_of(options))
        server = ends.enter_context(S3Server(disk.folder / "s3"))
        settings = {**disk.settings, **server.properties}
        places = {
            "local disk": disk,
            "S3": replace(disk, settings=settings, catalog=load_catalog("lakecommit", **settings)),
        }
        products = {
            name: ends.enter_context(Product(place.kafka, place.settings, lambda _: None))
            for name, place in places.items()
        }
        for topic, records in (("warm-up", 20_000), ("orders", options.records)):
            produce(disk.broker.bootstrap, topic, records, 8)
        for name, place in places.items():
            products[name].run_landing(place.landing("warm-up"))
        print(f"{'':12}{'wall s':>8}{'CPU s':>8}{'load':>6}{'peak MB':>9}  verified")
        rates: dict[str, list[float]] = {name: [] for name in places}
        without = [pid for pid in (disk.broker.pid, server.pid) if pid]
        for _ in range(options.rounds):
            for name, place in places.items():
                rate = _turn(name, place, products[name], without)
                if rate is None:
                    return 1
                rates[name].append(rate)
    print(f"S3 lands {statistics.median(rates['S3']) / statistics.median(rates['local disk']):.2f} of the local rate")
    return 0


def _turn(name: str, place: Place, product: Product, without: list[int]) -> float | None:
    """Return the records per second; ``None`` when the table is not what was produced."""
    landing, records = place.landing("orders"), place.options.records
    with measured(without=without) as cost:
        product.run_landing(landing)
    found = verify(place.settings, landing.table, records)
    print(f"{name:12}{cost.wall:>8.2f}{cost.cpu:>8.2f}{cost.load:>6.1f}{cost.peak_mb:>9.0f}", end="  ")
    print("; ".join(found.wrong) or "all rows", flush=True)
    return None if found.wrong else records / cost.wall


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
