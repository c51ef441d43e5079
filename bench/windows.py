# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.windows`: a backlog in windows one after another, beside the same backlog in one window.

Contract: both are landed by a run of the product, warm, by turns, into fresh tables that are compared row by row with
the generator. Told are wall and CPU-seconds, and for which share of the rate of one window the row of windows is good:
what a window costs beside its records. Wall seconds count on a quiet machine only.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from airflow_provider_lakecommit.landing import Landing
from bench.measure import Cost, measured
from bench.orders import produce
from bench.place import Place, place_of
from bench.product import Product
from bench.verify import verify

TOPIC = "orders"


def main(arguments: list[str]) -> int:
    """Run and print; 1 when a table is not what was produced."""
    options = _options(arguments)
    with place_of(options) as place:
        produce(place.broker.bootstrap, TOPIC, options.records, 8)
        shapes = {"one window": None, f"windows of {options.window}": options.window}
        costs: dict[str, list[Cost]] = {name: [] for name in shapes}
        with Product(place.kafka, place.settings, _whisper if options.verbose else silence) as product:
            for turn in range(options.rounds + 1):
                for name, limit in shapes.items():
                    landing = place.landing(TOPIC).changed(window={"max_records": limit})
                    if (cost := turn_of(place, product, landing)) is None:
                        return 1
                    if turn:
                        costs[name].append(cost)
                        tell(name, cost, options.records)
    rates = {name: statistics.median(options.records / c.wall for c in some) for name, some in costs.items()}
    one, row = rates.values()
    print(f"in a row {row / 1000:.0f} krec/s, {row / one:.2f} x the rate of one window")
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.windows", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--window", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each, after one that is not counted")
    parser.add_argument("--spec", default="day", help="partition spec of the tables")
    parser.add_argument("--slice-records", type=int, default=250_000)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="what the landings say of themselves")
    return parser.parse_args(arguments)


def turn_of(place: Place, product: Product, landing: Landing) -> Cost | None:
    """What one landing of everything cost; ``None`` if the table is wrong, which is told."""
    broker = place.broker.pid
    with measured(without={broker} if broker else ()) as cost:
        product.run_landing(landing)
    found = verify(place.settings, landing.table, place.options.records)
    if found.wrong:
        print("; ".join(found.wrong))
        return None
    return cost


def tell(name: str, cost: Cost, records: int) -> None:
    rate = records / cost.wall / 1000
    print(
        f"{name:20}{cost.wall:>8.2f} s {rate:>6.0f} krec/s {cost.cpu:>7.2f} CPU s  load {cost.load:.1f}  "
        f"peak {cost.peak_mb:.0f} MB",
        flush=True,
    )


def silence(_text: str) -> None:
    """The figures are enough."""


def _whisper(text: str) -> None:
    print(f"  {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
