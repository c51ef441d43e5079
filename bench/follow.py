# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.follow`: a topic that is followed, with a steady producer and a burst.

Contract: `lakecommit land --follow` runs as a process of its own; a second process produces so many records a second,
and for the seconds of the burst so many times more; a third reads the table's metadata and tells, many times a second,
how old the newest record is that a reader would find. Told are percentiles of that age while the producer was steady,
the time after the burst until the age was again what it had been, the share of the processors that the follow took with
all below it, and its memory over time. At the end every record must be in the table exactly once, else the exit code is
1. Wall seconds and ages count on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.types import LongType

from dev.paths import run_dir
from dev.servers.kafka import Broker

__all__ = ["TABLE", "TOPIC", "sample_ages", "send_at_rates", "spec_of", "until_landed", "verify_ids"]

TOPIC, TABLE = "followed", "bench.followed"
TICK_SECONDS = 0.02
SAMPLE_SECONDS = 0.1
COST_SECONDS = 1.0
NOTE = "x" * 180
AT = 2
"""Field id of the column that says when a record was produced."""


SECOND, OF_SECOND = 5_000, 10**12
"""Records of each run of the second landing, and their first id."""


@dataclass(slots=True)
class Samples:
    """What was seen of the follow and of its table. ``ages`` are pairs: when, and how old the newest record was."""

    ages: list[tuple[float, float]] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)
    rss: list[tuple[float, float]] = field(default_factory=list)


def main(arguments: list[str]) -> int:
    """Run and print; 1 when the table is not what was produced."""
    options = _options(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=run_dir()) as folder,
        Broker(Path(folder) / "kafka") as broker,
    ):
        settings = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        spec = spec_of(Path(folder), broker.bootstrap, settings, options)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, options.partitions, 1)])[TOPIC].result()
        command = [sys.executable, "-m", "airflow_provider_lakecommit.cli.main", "land", str(spec), "--follow"]
        command += ["--json", "--window-age", options.window_age, "--log-interval", "10s"]
        with (Path(folder) / "cycles.jsonl").open("w") as cycles:
            process = subprocess.Popen(command, stdout=cycles)
            try:
                with crossed(spec, broker.bootstrap, settings, options.crossed) as seconds:
                    samples, phases = _watch(process, broker.bootstrap, settings, options)
                produced = until_landed(settings, phases["sent"], seconds)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(120)
        _tell(samples, phases, options)
        _tell_windows(Path(folder) / "cycles.jsonl", _table(settings))
        return verify_ids(settings, produced, seconds)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.follow", description=__doc__)
    parser.add_argument("--rate", type=int, default=20_000, help="records a second")
    parser.add_argument("--seconds", type=int, default=300, help="for which the producer is steady")
    parser.add_argument("--burst", type=int, default=10, help="times the rate; 0 for none")
    parser.add_argument("--burst-seconds", type=int, default=30)
    parser.add_argument("--after", type=int, default=60, help="steady seconds after the burst")
    parser.add_argument("--warm", type=int, default=20, help="steady seconds that are not counted")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--window-age", default="2s")
    parser.add_argument(
        "--crossed", type=float, default=0, help="seconds between a second landing, a replay, a rollback"
    )
    return parser.parse_args(arguments)


def spec_of(folder: Path, bootstrap: str, catalog: dict[str, str], options: argparse.Namespace, **more: Any) -> Path:
    columns = [("id", "long"), ("at", "long"), ("note", "string")]
    values = {
        "name": "followed",
        "topics": TOPIC,
        "table": TABLE,
        "create": {"schema": [{"name": name, "type": kind} for name, kind in columns]},
        "window": {"groups": options.groups},
        "kafka": {"bootstrap.servers": bootstrap},
        "catalog": {"name": "lake", **catalog},
        "spark": {"master": "local[2]"},
        **more,
    }
    path = folder / "followed.yaml"
    path.write_text(json.dumps(values))
    return path


def send_at_rates(
    bootstrap: str, phases: Sequence[tuple[int, float]], partitions: int, sent: Any, number: int = 0
) -> None:
    """At the rate of each phase for its seconds; ``sent`` is how many there are so far, ``number`` the first one."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000})
    for rate, seconds in phases:
        began, first = time.monotonic(), number
        while (passed := time.monotonic() - began) < seconds:
            due = first + int(rate * passed)
            now = time.time_ns() // 1000
            while number < due:
                value = b'{"id":%d,"at":%d,"note":"%s"}' % (number, now, NOTE.encode())
                with suppress(BufferError):
                    producer.produce(TOPIC, value, partition=number % partitions)
                    number += 1
                    continue
                producer.poll(0.01)
            producer.poll(0)
            sent.value = number
            time.sleep(TICK_SECONDS)
    producer.flush(120)
    sent.value = number


def sample_ages(settings: dict[str, str], ages: Any, done: Any) -> None:
    """How old the newest record of the table is, by the statistics of the files of each new snapshot."""
    newest, seen, table = 0, None, None
    while not done.is_set():
        with suppress(NoSuchTableError, OSError):
            table = _table(settings) if table is None else table.refresh()
            head = table.current_snapshot()
            if head is not None and head.snapshot_id != seen:
                seen, newest = head.snapshot_id, max(newest, _newest(table))
        if newest:
            now = time.time()
            ages.put((now, now - newest / 1e6))
        done.wait(SAMPLE_SECONDS)
    ages.put(None)


def _newest(table: Table) -> int:
    head = table.current_snapshot()
    if head is None:
        return 0
    times = [0]
    for manifest in head.manifests(table.io):
        if manifest.added_snapshot_id == head.snapshot_id:
            files = (entry.data_file for entry in manifest.fetch_manifest_entry(table.io))
            times += [from_bytes(LongType(), f.upper_bounds[AT]) for f in files if AT in (f.upper_bounds or {})]
    return max(times)


def _watch(
    process: subprocess.Popen[bytes], bootstrap: str, settings: dict[str, str], options: argparse.Namespace
) -> tuple[Samples, dict[str, Any]]:
    """Produce, and see what becomes of it."""
    steady = [(options.rate, float(options.warm)), (options.rate, float(options.seconds))]
    burst = [(options.rate * options.burst, float(options.burst_seconds)), (options.rate, float(options.after))]
    phases = steady + (burst if options.burst else [])
    spawn = mp.get_context("spawn")
    sent, ages, done = spawn.Value("q", 0), spawn.Queue(), spawn.Event()
    producer = spawn.Process(target=send_at_rates, args=(bootstrap, phases, options.partitions, sent))
    reader = spawn.Process(target=sample_ages, args=(settings, ages, done))
    samples, tree = Samples(), psutil.Process(process.pid)
    reader.start()
    # The first window of a follow begins when Spark is there: an empty topic is caught up at once.
    time.sleep(COST_SECONDS)
    began = time.time()
    producer.start()
    while producer.is_alive() and process.poll() is None:
        seconds, megabytes = _cost(tree)
        samples.cpu.append((time.time(), seconds))
        samples.rss.append((time.time(), megabytes))
        producer.join(COST_SECONDS)
    if process.poll() is not None:
        producer.terminate()
        reader.terminate()
        raise SystemExit(f"`lakecommit land` ended early with {process.returncode}: see its log above")
    done.set()
    samples.ages += iter(ages.get, None)
    reader.join()
    starts = {"steady": began + options.warm, "burst": began + options.warm + options.seconds}
    return samples, {**starts, "end": time.time(), "sent": sent.value}


@contextmanager
def crossed(spec: Path, bootstrap: str, settings: dict[str, str], every: float) -> Iterator[Counter[str]]:
    """In turns, a second landing into the same table, a replay of a landed range, and a rollback of the table.

    :param every: seconds between them; 0: nothing is done
    :return: how often each was done
    """
    done, count = Event(), Counter[str]()
    thread = Thread(target=_cross, args=(spec, bootstrap, settings, every, done, count))
    if every:
        thread.start()
    try:
        yield count
    finally:
        done.set()
        if every:
            thread.join()


def _cross(
    spec: Path, bootstrap: str, settings: dict[str, str], every: float, done: Event, count: Counter[str]
) -> None:
    values = json.loads(spec.read_text())
    other = spec.with_name("second.yaml")
    other.write_text(json.dumps({**values, "name": "second", "topics": "second"}))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("second", 1, 1)])["second"].result()
    producer = Producer({"bootstrap.servers": bootstrap})

    def second() -> int:
        first = OF_SECOND + SECOND * count["second landing"]
        for n in range(first, first + SECOND):
            producer.produce("second", b'{"id":%d,"at":0,"note":""}' % n)
        producer.flush(60)
        return _lakecommit("land", str(other))

    def replay() -> int:
        ranges = f"{TOPIC}:0={1000 * count['replay']}-{1000 * count['replay'] + 700}"
        return _lakecommit("backfill", str(spec), "--replace", "--range", ranges, "--yes", "--reason", "bench")

    def rollback() -> int:
        for _ in range(20):
            # The landing commits every two seconds, and a rollback is not tried again.
            table = _table(settings)
            line = [s.snapshot_id for s in ancestors_of(table.current_snapshot(), table.metadata)]
            with suppress(CommitFailedException):
                table.manage_snapshots().rollback_to_snapshot(line[3]).commit()
                return 0
        return 1

    acts = cycle({"second landing": second, "replay": replay, "rollback": rollback}.items())
    while not done.wait(every):
        name, act = next(acts)
        try:
            failed = act()
        except Exception as e:
            print(f"{name}: {type(e).__name__}: {e}", flush=True)
            failed = 1
        count[f"{name} failed" if failed else name] += 1


def _lakecommit(*words: str) -> int:
    command = [sys.executable, "-m", "airflow_provider_lakecommit.cli.main", *words]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if found.returncode:
        print(f"lakecommit {words[0]} ended with {found.returncode}: {found.stderr[-600:]}", flush=True)
    return found.returncode


def _cost(tree: psutil.Process) -> tuple[float, float]:
    """CPU-seconds and resident megabytes of a process with all below it, those that have ended too."""
    seconds = megabytes = 0.0
    with suppress(psutil.NoSuchProcess):
        for each in (tree, *tree.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
                megabytes += each.memory_info().rss / 1e6
    return seconds, megabytes


def until_landed(settings: dict[str, str], count: int, seconds: Counter[str] | None = None) -> int:
    """:param seconds: what was done beside the follow"""
    due, deadline = count + SECOND * (seconds or Counter())["second landing"], time.monotonic() + 600
    while time.monotonic() < deadline:
        head = _table(settings).current_snapshot()
        if head is not None and head.summary is not None and int(head.summary["total-records"] or 0) >= due:
            break
        time.sleep(0.5)
    return count


def _tell(samples: Samples, phases: dict[str, Any], options: argparse.Namespace) -> None:
    end = phases["burst"] if options.burst else phases["end"]
    ages = sorted(age for at, age in samples.ages if phases["steady"] <= at < end)
    if len(ages) > 1:
        cuts = statistics.quantiles(ages, n=100)
        print(f"age of the newest record: p50 {cuts[49]:.2f} s, p95 {cuts[94]:.2f} s, most {ages[-1]:.2f} s")
    cpu = [(at, seconds) for at, seconds in samples.cpu if phases["steady"] <= at < end]
    if len(cpu) > 1:
        share = (cpu[-1][1] - cpu[0][1]) / (cpu[-1][0] - cpu[0][0]) / (os.cpu_count() or 1)
        print(f"processors: {share:.0%} of {os.cpu_count()}")
    rss = [megabytes for at, megabytes in samples.rss if at >= phases["steady"]]
    parts = [rss[i * len(rss) // 6 : (i + 1) * len(rss) // 6] for i in range(6)]
    print("memory in MB: " + ", ".join(f"{statistics.mean(p):.0f}" for p in parts if p))
    if options.burst and ages:
        usual, over = ages[len(ages) * 95 // 100], phases["burst"] + options.burst_seconds
        late = [at - over for at, age in samples.ages if at >= phases["burst"] and age > usual + 1]
        most = max((age for at, age in samples.ages if at >= phases["burst"]), default=0.0)
        print(f"burst: age up to {most:.1f} s, as before {max(late, default=0.0):.1f} s after its end")


def _tell_windows(lines: Path, table: Table) -> None:
    """What windows took, from plan to COMPLETE, and what is left of them in the table."""
    cycles = [json.loads(line) for line in lines.read_text().splitlines()]
    took = [sum(c["seconds"].values()) for c in cycles if c["rows"]][1:]
    if took:
        print(f"windows: {len(took)}, median {statistics.median(took):.2f} s, most {max(took):.2f} s")
    head = table.current_snapshot()
    manifests = len(head.manifests(table.io)) if head else 0
    print(f"table: {len(table.metadata.snapshots)} snapshots, {manifests} manifests")


def verify_ids(settings: dict[str, str], produced: int, seconds: Counter[str] | None = None) -> int:
    """:param seconds: what was done beside the follow"""
    ids = _table(settings).scan(selected_fields=("id",)).to_arrow().column("id").to_numpy()
    if seconds:
        others = np.sort(ids[ids >= OF_SECOND]) - OF_SECOND
        print(f"beside: {dict(seconds)}")
        if not np.array_equal(others, np.arange(SECOND * seconds["second landing"])):
            print(f"the second landing has {len(others)} rows, {len(np.unique(others))} different")
            return 1
        ids = ids[ids < OF_SECOND]
    counts = np.bincount(ids, minlength=produced)
    lost, doubled = int((counts[:produced] == 0).sum()), int((counts > 1).sum())
    print(f"{produced} records, {lost} lost, {doubled} doubled")
    return int(bool(lost or doubled or len(counts) > produced))


def _table(settings: dict[str, str]) -> Table:
    return load_catalog("lake", **settings).load_table(TABLE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
