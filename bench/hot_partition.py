# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.hot_partition`: a topic of which one partition has most records, beside one with an even spread.

Contract: the same records in both, landed by a run of the product, warm, by turns, into fresh tables that are compared
row by row with the generator. Told are wall and CPU-seconds, and how many times as long the uneven topic takes. Wall
seconds count on a quiet machine only.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from bench.measure import Cost
from bench.orders import produce
from bench.place import place_of
from bench.product import Product
from bench.windows import silence, tell, turn_of

EVEN, HOT = "even", "hot"


def main(arguments: list[str]) -> int:
    """Run and print; 1 when a table is not what was produced."""
    options = _options(arguments)
    with place_of(options) as place:
        produce(place.broker.bootstrap, EVEN, options.records, options.partitions)
        produce(place.broker.bootstrap, HOT, options.records, options.partitions, hot=options.share)
        costs: dict[str, list[Cost]] = {EVEN: [], HOT: []}
        with Product(place.kafka, place.settings, silence) as product:
            for turn in range(options.rounds + 1):
                for topic in (EVEN, HOT):
                    if (cost := turn_of(place, product, place.landing(topic))) is None:
                        return 1
                    if turn:
                        costs[topic].append(cost)
                        tell(topic, cost, options.records)
    even, hot = (statistics.median(c.wall for c in some) for some in costs.values())
    print(
        f"{options.share:.0%} in one of {options.partitions} partitions: {hot / even:.2f} x the time of an even spread"
    )
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_partition", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--share", type=float, default=0.8, help="of the records in the hot partition")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each, after one that is not counted")
    parser.add_argument("--spec", default="day", help="partition spec of the tables")
    parser.add_argument("--slice-records", type=int, default=250_000)
    parser.add_argument("--groups", type=int, default=2)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
