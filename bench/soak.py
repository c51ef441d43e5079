# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.soak`: many landings in a live Airflow for as long as you say, with a kill a minute and outages.

Contract: forty landings of five formats: scheduled ones as tasks, as groups of tasks and as one landing set, continuous
ones as `lakecommit land --follow`. Six upsert, some are maintained by DAGs of their own, and topics get further fields.
Every minute a process gets SIGKILL; the broker and the catalog take turns in being stopped or killed. Every minute
memory, descriptors, threads, files, snapshots and lag are sampled. At the end the producer stops and all landings catch
up; then DuckDB compares all rows of all tables with the produced records, and `lakecommit verify` checks each landing.

The exit code is 1 if a row is lost, doubled or altered, if a landing does not catch up, if `verify` fails, or if a
process grew without bound. SIGUSR1 ends the minutes early; what follows is done as usual. SIGTERM and SIGINT end the
run early, without a comparison, and leave no process behind.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

from bench.soak_compare import Comparison, Reader, compared
from bench.soak_faults import Faults
from bench.soak_samples import Growth, Samples
from bench.soak_topics import Message, Topic
from bench.soak_world import World
from dev.airflow_client import AirflowAnswerError
from dev.airflow_stack import task_errors
from dev.interruptible import leave, run
from dev.paths import run_dir

SAMPLE_SECONDS = 60.0
TICK_SECONDS = 0.25
FLUSH_SECONDS = 300.0
LOOK_SECONDS = 10.0
TRIGGER_SECONDS = 120.0
VERIFY_SECONDS = 300.0
FOREIGN = ("soak", "broker", "catalog")
"""Roles that are not of the product or of an Airflow that runs it: their growth is printed, and fails nothing."""


def main(arguments: list[str]) -> int:
    """Run and print; 1 when something is lost, doubled, altered, behind, or grows."""
    options = _options(arguments)
    with _folder(options.keep) as folder:
        world = World(folder, options.landings, options.period)
        soak = Soak(world, options)

        signal.signal(signal.SIGUSR1, lambda *_: soak.enough.set())

        def stop() -> None:
            soak.stop.set()
            soak.enough.set()
            world.stop()

        return run(soak.run, stop)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, required=True, help="for which records are produced")
    parser.add_argument("--landings", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="of everything that goes wrong")
    parser.add_argument("--rate", type=float, default=50.0, help="records a second, of all topics")
    parser.add_argument("--period", type=float, default=300.0, help="shortest seconds between runs of a landing")
    parser.add_argument("--outages", type=float, default=300.0, help="seconds between outages; two servers take turns")
    parser.add_argument("--fields", type=float, default=240.0, help="seconds between two further fields of topics")
    parser.add_argument("--catch-up", type=float, default=900.0, help="most seconds for the landings to catch up")
    parser.add_argument("--keep", type=Path, help="folder of everything, which is kept; by default a temporary one")
    return parser.parse_args(arguments)


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="soak-", dir=run_dir()) as folder:
        yield Path(folder)


class Soak:
    """One run."""

    def __init__(self, world: World, options: argparse.Namespace) -> None:
        self.world, self.options = world, options
        self.stop, self.enough = Event(), Event()
        self.samples = Samples(world, world.folder)
        self._undelivered: Counter[str] = Counter()

    def run(self) -> int:
        """The whole of it: start, soak, catch up, compare."""
        self.world.start(_say)
        _say(f"everything runs, in {self.world.folder}")
        self._soak()
        behind = self._catch_up()
        self.samples.take()
        found = self._compared()
        wrong = self._verified()
        return self._told(behind, found, wrong)

    # -- while it runs --------------------------------------------------------------------------------------------

    def _soak(self) -> None:
        """Produce, break and sample for the minutes that were asked for."""
        seconds = self.options.minutes * 60
        ended = Event()
        with (self.world.folder / "faults.log").open("a") as log:
            self.faults = Faults(self.world, seconds, self.options.outages, self.options.seed, log)
            threads = [Thread(target=self._produce, args=(ended,)), Thread(target=self.faults.run, args=(ended,))]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + seconds
            while (left := deadline - time.monotonic()) > 0 and not self.enough.wait(min(SAMPLE_SECONDS, left)):
                self._sample()
            ended.set()
            for thread in threads:
                thread.join()

    def _sample(self) -> None:
        lake = self.samples.take()
        roles = {sample.role: sample for sample in self.samples.newest()}
        memory = " ".join(f"{role.replace('follow ', '')}={s.rss_mb:.0f}" for role, s in roles.items())
        daemons = roles["connect"].daemons if "connect" in roles else 0
        _say(
            f"produced {lake.produced}, lag {lake.lag}, {lake.verdicts}; {lake.files} files, "
            f"{lake.snapshots} snapshots, {daemons} daemons, {lake.strays} strays, load {lake.load:.1f}, "
            f"{lake.free_gb} GB free"
        )
        _say(f"  MB: {memory}")

    def _produce(self, ended: Event) -> None:
        """Send records at the rate, then the closing ones; have topics get further fields by turns."""
        settings = {"bootstrap.servers": self.world.broker.bootstrap, "enable.idempotence": True, "linger.ms": 20}
        producer = Producer({**settings, "message.timeout.ms": 900_000, "log_level": 0})
        slots = [topic for topic in self.world.topics for _ in range(topic.weight)]
        began, sent, grown = time.monotonic(), 0, 0
        while not ended.wait(TICK_SECONDS):
            passed = time.monotonic() - began
            if passed > self.options.fields * (grown + 1):
                self._add_fields(grown)
                grown += 1
            while sent < passed * self.options.rate:
                self._send(producer, slots[sent % len(slots)])
                sent += 1
            producer.poll(0)
        for topic in self.world.topics:
            for message in topic.closing(self.world.registry):
                self._produce_one(producer, topic, message)
        left = producer.flush(FLUSH_SECONDS)
        if left:
            self._undelivered["not delivered in time"] += left

    def _add_fields(self, turn: int) -> None:
        """Have every fourth topic whose records name their fields get one more."""
        for topic in [t for t in self.world.topics if t.evolves][turn % 4 :: 4]:
            topic.add_field()

    def _send(self, producer: Producer, topic: Topic) -> None:
        for message in topic.next(self.world.registry):
            self._produce_one(producer, topic, message)

    def _produce_one(self, producer: Producer, topic: Topic, message: Message) -> None:
        producer.produce(topic.name, message.value, message.key, message.partition, on_delivery=self._note_delivery)

    def _note_delivery(self, error: KafkaError | None, _message: Delivered) -> None:
        if error is not None:
            self._undelivered[str(error)] += 1

    # -- at the end -----------------------------------------------------------------------------------------------

    def _catch_up(self) -> list[Topic]:
        """Wait until the last record of every partition is in its table; return the topics of which it never is."""
        deadline, triggered = time.monotonic() + self.options.catch_up, 0.0
        behind = list(self.world.topics)
        with Reader.opened(self.world.lake, self.world.folder / "duckdb") as reader:
            while (behind := [t for t in behind if not _is_landed(t, reader)]) and time.monotonic() < deadline:
                if time.monotonic() > triggered + TRIGGER_SECONDS:
                    triggered = time.monotonic()
                    _say(f"{len(behind)} landings are behind: {' '.join(t.stem for t in behind)}")
                    for dag in {dag for t in behind if (dag := self.world.dag_of(t))}:
                        self.world.trigger(dag)
                if self.stop.wait(LOOK_SECONDS):
                    break
        return behind

    def _compared(self) -> list[Comparison]:
        with Reader.opened(self.world.lake, self.world.folder / "duckdb") as reader:
            found = [compared(topic, reader) for topic in self.world.topics]
        _say(f"{'table':24}{'expected':>10}{'rows':>10}{'lost':>8}{'doubled':>9}{'altered':>9}{'foreign':>9}")
        for each in found:
            counts = f"{each.lost:>8}{each.doubled:>9}{each.altered:>9}{each.foreign:>9}"
            _say(f"{each.table:24}{each.expected:>10}{each.rows:>10}{counts} {each.example}")
        return found

    def _verified(self) -> dict[str, str]:
        """Return what `lakecommit verify` says, for each landing for which it fails."""
        topics = self.world.topics
        with ThreadPoolExecutor(2) as pool:
            answers = pool.map(lambda topic: _verify(self.world.spec(topic), topic), topics)
            return {topic.landing: answer for topic, answer in zip(topics, answers, strict=True) if answer}

    def _told(self, behind: list[Topic], found: list[Comparison], wrong: dict[str, str]) -> int:
        """Print everything; the exit code."""
        self._tell_airflow()
        growths = self.samples.growths()
        _tell_growths(growths)
        grown = [g for g in growths if g.without_bound and g.role in self.samples.judged and g.role not in FOREIGN]
        _say(f"done: {dict(self.faults.done)}; started again: {dict(self.world.restarts)}")
        for trouble in self.world.troubles:
            _say(f"trouble: {trouble}")
        for name, text in wrong.items():
            _say(f"lakecommit verify {name}: {text}")
        for growth in grown:
            _say(f"grows without bound: {growth.role} {growth.measure} {growth.quarters}")
        expected, lost = sum(c.expected for c in found), sum(c.lost for c in found)
        doubled, altered = sum(c.doubled for c in found), sum(c.altered + c.foreign for c in found)
        _say(
            f"{sum(sum(t.sent) for t in self.world.topics)} records, {expected} rows expected: {lost} lost, "
            f"{doubled} doubled, {altered} altered; {len(behind)} landings behind, {len(wrong)} not verified, "
            f"{len(grown)} measures grow; not delivered: {dict(self._undelivered)}"
        )
        is_right = all(c.is_right for c in found) and not (behind or wrong or grown or self._undelivered)
        return 0 if is_right else 1

    def _tell_airflow(self) -> None:
        states: Counter[str] = Counter()
        for dag in self.world.dags():
            with suppress(AirflowAnswerError, OSError):
                states.update(self.world.airflow.client.runs(dag).values())
        errors = task_errors(self.world.airflow.home / "logs")
        (self.world.folder / "task_errors.txt").write_text("\n".join(errors))
        _say(f"runs: {dict(states)}; {len(errors)} errors of tasks, in task_errors.txt")


def _is_landed(topic: Topic, reader: Reader) -> bool:
    try:
        ends = reader.ends(topic.table)
    except Exception:  # A table that is not there yet, or a catalog that is not: it is read again.
        return False
    return all(ends.get(partition, 0) == sent for partition, sent in enumerate(topic.sent))


def _verify(spec: Path, topic: Topic) -> str:
    command = [sys.executable, "-m", "airflow_provider_lakecommit.cli.main", "verify", str(spec), "--rows"]
    command += ["--landing", topic.landing] if topic.role == "set" else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERIFY_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no end in {VERIFY_SECONDS:.0f} s"
    return "" if done.returncode == 0 else f"{done.returncode}: {(done.stdout + done.stderr)[-600:]}"


def _tell_growths(growths: list[Growth]) -> None:
    _say(f"{'process':28}{'measure':>10}{'minutes':>9}{'1st quarter':>13}{'2nd':>9}{'3rd':>9}{'last':>9}")
    for each in growths:
        if any(each.quarters):
            quarters = "".join(f"{value:>9.0f}" for value in each.quarters[1:])
            head = f"{each.role:28}{each.measure:>10}{each.minutes:>9.0f}{each.quarters[0]:>13.0f}{quarters}"
            _say(f"{head}{'  grows' if each.without_bound else ''}")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
