# SPDX-License-Identifier: Apache-2.0
"""What the steps of the demo share: the stack, what was sent, and the checks that several of them make.

Contract: every number that is shown is computed, from what the broker took, from the table, from the control topic or
from Airflow's database. A check that does not hold is shown and counted and the demo goes on, because what comes after
tells more about it; :class:`DemoError` is for what cannot be gone on from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import pandas as pd  # type: ignore[import-untyped]

from airflow_provider_lakecommit.landing import Landing
from dev.demo import flights as demo_flights
from dev.demo.evidence import ControlWatch, CycleStory, Lake, asset_events, compare
from dev.demo.screen import Screen, number
from dev.stack import DAG, Stack

RUN_SECONDS = 600.0
IMPORT_SECONDS = 60.0
TELL_LANDING = f"import json, {DAG} as dag; print(json.dumps(dag.flights.to_dict()))"

T = TypeVar("T")


class DemoError(RuntimeError):
    """The demo cannot go on."""


@dataclass(kw_only=True)
class Demo:
    """``sent`` holds all events so far, with the positions that the broker gave them."""

    stack: Stack
    screen: Screen
    flights: pd.DataFrame = field(default_factory=demo_flights.load)
    sent: list[pd.DataFrame] = field(default_factory=list)
    asset_events: int = 0

    @cached_property
    def landing(self) -> Landing:
        """What the Dag file declares, asked of a Python that knows this Airflow."""
        environment = self.stack.airflow.environment
        environment["PYTHONPATH"] = environment["AIRFLOW__CORE__DAGS_FOLDER"]
        command = [sys.executable, "-c", TELL_LANDING]
        children = self.stack.children
        children.run("landing", command, env=environment, cwd=self.stack.directory, timeout=IMPORT_SECONDS)
        return Landing.from_dict(json.loads(children.log("landing").read_text().strip().splitlines()[-1]))

    @cached_property
    def watch(self) -> ControlWatch:
        """The control topic of the landing."""
        return ControlWatch(self.stack.broker.bootstrap, self.landing)

    @property
    def lake(self) -> Lake:
        """The catalog and its tables."""
        return Lake(self.stack.catalog, self.stack.namespace)

    def send(self, most: int | None = None) -> None:
        """Send all flights, or the first ones, once (more)."""
        tell, flights = self.screen.progress, self.flights[:most]
        what = demo_flights.events(flights)
        places = demo_flights.produce(self.stack.broker.bootstrap, what, lambda n: tell(f"{number(n)} events sent"))
        self.sent.append(pd.concat([flights, places], axis=1))

    def run(self, run: str) -> str:
        """Trigger a run of the Dag and tell how it ended."""
        self.stack.airflow.client.trigger(DAG, run)
        return self.await_run(run)

    def begin(self, run: str, reached: Callable[[CycleStory], bool]) -> None:
        """Trigger a run, and wait until its cycle has come so far.

        :raises DemoError: the run ended before
        """
        client = self.stack.airflow.client
        client.trigger(DAG, run)
        while True:
            cycle = self.watch.cycle(run)
            if cycle is not None and reached(cycle):
                return
            seen = len(cycle.reported) if cycle else 0
            self.screen.progress(f"{run}  {seen} slices reported")
            if client.run_state(DAG, run) in ("success", "failed"):
                raise DemoError(f"the run {run} ended after {seen} slices, before it could be disturbed")

    def lakecommit(self, name: str, *arguments: str, timeout: float) -> tuple[int, list[str]]:
        """Exit code and output of the command line; ``name`` is that of its log."""
        command = [sys.executable, "-m", "airflow_provider_lakecommit.cli.main", *arguments]
        self.screen.progress(f"lakecommit {arguments[0]}")
        stack = self.stack
        code = stack.children.outcome(
            name, command, env=stack.airflow.environment, cwd=stack.directory, timeout=timeout
        )
        return code, stack.children.log(name).read_text().strip().splitlines()

    def await_run(self, run: str) -> str:
        """How a run ended."""
        client = self.stack.airflow.client

        def tell() -> None:
            states = (f"{t.task.split('.')[-1]}: {t.state or 'waits'}" for t in client.tasks(DAG, run))
            self.screen.progress(f"{run}  {', '.join(states)}")

        return client.await_run(DAG, run, RUN_SECONDS, tell)

    def cycle(self, run: str) -> CycleStory:
        """What the control topic says of a run."""
        found = self.watch.cycle(run)
        if found is None:
            raise DemoError(f"the run {run} opened no commit cycle")
        return found

    # -- checks -------------------------------------------------------------------------------------------------------

    def check_table(self) -> pd.DataFrame:
        """The whole table beside all that was sent, by position; returns the table."""
        self.screen.progress("reading the table back")
        rows = self.lake.rows(self.landing.table)
        it = compare(pd.concat(self.sent, ignore_index=True), rows)
        self.screen.check("rows", f"{number(it.rows)}; {number(it.sent)} sent", it.rows == it.sent)
        text = f"{it.lost} lost, {it.doubled} doubled, {it.strangers} that nobody sent"
        self.screen.check("by position", text, it.lost == it.doubled == it.strangers == 0)
        text = f"{it.checksum_table} of all columns; {it.checksum_sent} sent"
        self.screen.check("checksum", text, it.checksum_table == it.checksum_sent)
        return rows

    def check_asset_events(self, due: int) -> None:
        """How many asset events Airflow recorded since the last look."""
        found = asset_events(self.stack.airflow.database)
        new, self.asset_events = found - self.asset_events, found
        self.screen.check("asset events", f"{new} in Airflow's database; {due} due", new == due)

    def gave_rows(self, *runs: str) -> int:
        """How many of these runs gave the data table a snapshot: so many asset events are due."""
        table = self.landing.table
        return sum(any(p.table == table for p in self.cycle(run).published) for run in runs)
