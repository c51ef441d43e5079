# SPDX-License-Identifier: Apache-2.0
"""A catalog outage under an Iceberg sink of Kafka Connect, with and without what `example_lakecommit_guard_connector`
does.

Contract: `python -m bench.outage_connect [--guarded] [--retries] [--cycles N]` plays one outage on a broker, a worker
and a catalog of its own and prints one line. The sink commits every two seconds, so 30 cycles stand for an outage of
150 minutes at its default of five. With `--retries` a commit is refused as a conflict, which the sink is set to try
again; without, the catalog fails and the sink is as it comes: its coordinator dies.

*Recovered* is when all records are in the table that had been produced when the catalog came back. The guard judges the
control topic as the trigger does and calls Connect as the operators do, in this process; a DAG run adds the seconds
that Airflow takes to start its tasks.

Failure story: an outage that is not recovered from in a minute is told as such; rows that are doubled or missing after
a recovery end the program with 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_lakecommit.control.control_watch import ControlWatch
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.operations.kafka_connect.disposition import Disposition
from airflow_provider_lakecommit.operations.kafka_connect.rescue import Rescue, RescueReport
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest
from airflow_provider_lakecommit.stall.group_state import StallRules, State
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.observed_events import observed_record
from airflow_provider_lakecommit.stall.verdict import Verdict, evaluate
from dev.paths import run_dir
from dev.record_traces import CONFLICT, INTERVAL, REFUSAL, TRIGGER, Lake, Scene
from dev.servers.kafka import Broker
from dev.servers.kafka_connect import ConnectWorker

GIVE_UP = 60.0
LOOK_SECONDS = 0.2
RESTART_PAUSE = 2 * INTERVAL


class Guard(threading.Thread):
    """What the DAG does, without Airflow."""

    def __init__(self, scene: Scene, kafka: dict[str, Any], rest: ConnectRest) -> None:
        super().__init__(daemon=True)
        self.did: list[str] = []
        self._name, self._rest = scene.connector, rest
        self._group = f"connect-{scene.connector}"
        self._watch = ControlWatch(scene.control, kafka)
        self._rules = StallRules(interval=INTERVAL)
        self._done = threading.Event()
        self._paused = False
        self._restarted = 0.0

    def run(self) -> None:
        state = State()
        while not self._done.is_set():
            for record in self._watch.poll(LOOK_SECONDS):
                found = observed_record(record.value, key=record.key, headers=record.headers, group=self._group)
                if found is not None:
                    state = observe(state, found[1], self._rules)
            try:
                self._act(evaluate(state, time.time(), self._rules).verdict)
            except LakecommitError as e:
                # The task's next attempt.
                print(f"  {e}", file=sys.stderr)

    def _act(self, verdict: Verdict) -> None:
        if verdict is Verdict.STALLED and not self._paused:
            self._rest.pause(self._name)
            self._paused = True
            self.did.append("pause")
        elif verdict is Verdict.DEAD and time.monotonic() - self._restarted > RESTART_PAUSE:
            self._rest.restart(self._name)
            self._restarted = time.monotonic()
            self.did.append("restart")
        elif self._paused and verdict not in (Verdict.STALLED, Verdict.DEAD):
            self._rest.resume(self._name)
            self._paused = False
            self.did.append("resume")

    def close(self) -> None:
        self._done.set()
        self.join()
        self._watch.close()


def main(arguments: list[str]) -> int:
    """Play one outage; 1 if rows are doubled or missing."""
    parser = argparse.ArgumentParser(prog="python -m bench.outage_connect")
    parser.add_argument("--guarded", action="store_true", help="do what the example DAG does")
    parser.add_argument("--retries", action="store_true", help="the sink tries refused commits again")
    parser.add_argument("--cycles", type=int, default=30, help="commit intervals that the outage lasts (default 30)")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="outage-", dir=run_dir()) as folder,
        Broker(Path(folder) / "kafka") as broker,
        ConnectWorker(Path(folder) / "worker", broker.bootstrap, flush=0.5, heap="512m") as worker,
    ):
        kafka = {"bootstrap.servers": broker.bootstrap}
        scene = Scene("outage", kafka, Lake(Path(folder)), [worker])
        return _outage(scene, kafka, ConnectRest(url=worker.url), options)


def _outage(scene: Scene, kafka: dict[str, Any], rest: ConnectRest, options: argparse.Namespace) -> int:
    scene.begin(**({"iceberg.control.commit.max-consecutive-failures": "100000"} if options.retries else {}))
    with _guarded(scene, kafka, rest, wanted=options.guarded) as did:
        scene.lake.execute(TRIGGER.format(CONFLICT if options.retries else REFUSAL))
        scene.mark("catalog away")
        scene.cycles(options.cycles)
        waits = _report(scene, kafka).of(Disposition.WAITING)
        dead = len(rest.status(scene.connector).dead)
        last, before = scene.fed, scene.lake.commits(scene.table)
        scene.lake.execute("drop trigger outage")
        back = time.monotonic()
        first = _seconds_until(lambda: scene.lake.commits(scene.table) > before, back)
        whole = _seconds_until(lambda: _landed(scene, last), back)
        dead_after = len(rest.status(scene.connector).dead)
    rows = _ids(scene)
    doubled = len(rows) - len(set(rows))
    missing = len(set(range(1, last + 1)) - set(rows))
    told = {
        "sink": "retries" if options.retries else "defaults",
        "guarded": options.guarded,
        "outage_s": options.cycles * INTERVAL,
        "files_waiting": len(waits),
        "tasks_dead": dead,
        "first_commit_s": first,
        "recovered_s": whole,
        "tasks_dead_after": dead_after,
        "doubled": doubled,
        "missing": missing,
        "orphans": _orphans(scene, kafka),
        "did": ", ".join(f"{n} x {what}" for what, n in _counts(did).items()) or "nothing",
    }
    print("  ".join(f"{key}={value}" for key, value in told.items()), flush=True)
    scene.close_source()
    return int(bool(doubled) or (whole is not None and bool(missing)))


@contextmanager
def _guarded(scene: Scene, kafka: dict[str, Any], rest: ConnectRest, *, wanted: bool) -> Iterator[list[str]]:
    if not wanted:
        yield []
        return
    guard = Guard(scene, kafka, rest)
    guard.start()
    yield guard.did
    guard.close()


def _report(scene: Scene, kafka: dict[str, Any]) -> RescueReport:
    tables = Tables({}, connect=lambda *_, **__: scene.lake.catalog)
    (report,) = Rescue(kafka, tables, control_topic=scene.control, connector=scene.connector).check()
    return report


def _seconds_until(holds: Any, since: float) -> float | None:
    while not holds():
        if time.monotonic() - since > GIVE_UP:
            return None
        time.sleep(LOOK_SECONDS)
    return round(time.monotonic() - since, 1)


def _ids(scene: Scene) -> list[int]:
    return list(scene.lake.catalog.load_table(scene.table).scan().to_arrow()["id"].to_pylist())


def _landed(scene: Scene, last: int) -> bool:
    return set(range(1, last + 1)) <= set(_ids(scene))


def _orphans(scene: Scene, kafka: dict[str, Any]) -> int:
    """Files on the storage that nobody has announced."""
    known = {Path(j.file.path.removeprefix("file://")).name for j in _report(scene, kafka).files}
    table = scene.lake.catalog.load_table(scene.table)
    there = {path.name for path in Path(table.location().removeprefix("file://")).rglob("*.parquet")}
    return len(there - known)


def _counts(did: list[str]) -> dict[str, int]:
    return {what: did.count(what) for what in dict.fromkeys(did)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
