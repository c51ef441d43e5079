# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.beside`: a day is landed anew beside a live stream that is followed.

Contract: a past is landed first. Then `lakecommit land --follow` lands a steady producer's records, and after a while
`lakecommit backfill --replace` lands all of the past again, beside it and in a process of its own. Told is how old the
newest record of the table was before the replay and during it, and the ratio of the two; the goal is the ratio that is
kept. At the end every record must be in the table exactly once, else the exit code is 1. Ages count on a quiet machine
only: the load stands beside them.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from bench.follow import TOPIC, sample_ages, send_at_rates, spec_of, until_landed, verify_ids
from dev.paths import run_dir
from dev.servers.kafka import Broker

PRODUCE_RATE = 100_000
START_SECONDS = 60
COMMAND = [sys.executable, "-m", "airflow_provider_lakecommit.cli.main"]


def main(arguments: list[str]) -> int:
    """Run and print; 1 when the table is not what was produced."""
    options = _options(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=run_dir()) as folder,
        Broker(Path(folder) / "kafka") as broker,
    ):
        settings = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        spec = spec_of(Path(folder), broker.bootstrap, settings, options, metadata_columns=True)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, options.partitions, 1)])[TOPIC].result()
        past = _land_past(spec, broker.bootstrap, options)
        following = [*COMMAND, "land", str(spec), "--follow", "--window-age", options.window_age]
        follow = subprocess.Popen(following, stdout=subprocess.DEVNULL)
        try:
            ages, began, ended, sent = _beside(spec, broker.bootstrap, settings, past, options)
            produced = until_landed(settings, sent)
        finally:
            follow.send_signal(signal.SIGTERM)
            follow.wait(120)
        _tell(ages, began, ended, past)
        return verify_ids(settings, produced)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.beside", description=__doc__)
    parser.add_argument("--past", type=int, default=2_000_000, help="records that are landed anew")
    parser.add_argument("--rate", type=int, default=10_000, help="records a second")
    parser.add_argument("--warm", type=int, default=20, help="steady seconds that are not counted")
    parser.add_argument("--before", type=int, default=60, help="steady seconds before the replay")
    parser.add_argument("--during", type=int, default=120, help="for which the producer goes on from then on")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--window-age", default="2s")
    parser.add_argument("--max-records", type=int, default=500_000, help="in a window of the replay")
    parser.add_argument("--yield-to-live", default=None, metavar="AGE", help="of the replay")
    return parser.parse_args(arguments)


def _land_past(spec: Path, bootstrap: str, options: argparse.Namespace) -> int:
    """How many there are; of each partition as many."""
    sent = mp.get_context("spawn").Value("q", 0)
    send_at_rates(bootstrap, [(PRODUCE_RATE, options.past / PRODUCE_RATE)], options.partitions, sent)
    subprocess.run([*COMMAND, "land", str(spec)], check=True, stdout=subprocess.DEVNULL)
    return int(sent.value)


def _beside(
    spec: Path, bootstrap: str, settings: dict[str, str], past: int, options: argparse.Namespace
) -> tuple[list[tuple[float, float]], float, float, int]:
    """Ages with their times, when the replay began and ended, and how many records there are."""
    spawn = mp.get_context("spawn")
    sent, ages, done = spawn.Value("q", 0), spawn.Queue(), spawn.Event()
    phases = [(options.rate, float(START_SECONDS + options.warm + options.before + options.during))]
    producer = spawn.Process(target=send_at_rates, args=(bootstrap, phases, options.partitions, sent, past))
    reader = spawn.Process(target=sample_ages, args=(settings, ages, done))
    producer.start()
    # The follow begins when its Spark is there, and is behind then.
    until_landed(settings, past + 1)
    time.sleep(options.warm)
    reader.start()
    time.sleep(options.before)
    began = time.time()
    replay = subprocess.Popen(_replay(spec, past, options), stdout=subprocess.DEVNULL)
    ended = began + options.during if replay.wait() else time.time()
    if replay.returncode:
        raise RuntimeError(f"the replay ended with {replay.returncode}")
    late = not producer.is_alive()
    producer.join()
    done.set()
    seen = list(iter(ages.get, None))
    reader.join()
    if late:
        print("the replay took longer than the producer went on: --during more")
    return seen, began, ended, int(sent.value)


def _replay(spec: Path, past: int, options: argparse.Namespace) -> list[str]:
    each = [(past - n + options.partitions - 1) // options.partitions for n in range(options.partitions)]
    ranges = [word for n, end in enumerate(each) for word in ("--range", f"{TOPIC}:{n}=0-{end}")]
    yields = ["--yield-to-live", options.yield_to_live] if options.yield_to_live else []
    return [
        *COMMAND,
        "backfill",
        str(spec),
        "--replace",
        *ranges,
        "--yes",
        "--max-records",
        str(options.max_records),
        *yields,
    ]


def _tell(ages: Sequence[tuple[float, float]], began: float, ended: float, past: int) -> None:
    before, during = (
        _percentiles([age for at, age in ages if start <= at < end]) for start, end in ((0.0, began), (began, ended))
    )
    load = psutil.getloadavg()[0]
    print(f"replay: {past} records landed anew in {ended - began:.0f} s; load {load:.1f}")
    for name, found in (("before", before), ("during", during)):
        print(f"age of the newest record {name} it: p50 {found[0]:.2f} s, p95 {found[1]:.2f} s, most {found[2]:.2f} s")
    print(f"ratio: p50 {during[0] / before[0]:.2f}, p95 {during[1] / before[1]:.2f}")


def _percentiles(ages: list[float]) -> tuple[float, float, float]:
    cuts = statistics.quantiles(ages, n=100)
    return cuts[49], cuts[94], max(ages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
