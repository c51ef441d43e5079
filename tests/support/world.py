# SPDX-License-Identifier: Apache-2.0
"""One landing on real parts, driven step by step in this process, with a death between any two durable steps.

Contract: :class:`World` runs the same functions as operators and CLI do (open, write each slice, close); only Spark is
left out, its tasks are called one after the other. :class:`Deaths` counts the durable steps (control transactions and
catalog commits) and dies, as by ``kill -9``, before or after the n-th: the exception is no ``Exception``, so that no
handler of the package runs.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from airflow_provider_lakecommit.control.control_writer import ControlWriter
from airflow_provider_lakecommit.cycle.commit import commit as commit_in_turns
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import MARK_COLUMNS, Landing
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult
from airflow_provider_lakecommit.spark.task import run_task
from tests.support.groups import group_job

When = Literal["before", "after"]


class Killed(BaseException):
    """The process is missing."""


@dataclass(slots=True)
class Deaths:
    """Dies at the n-th durable step (from 1), or never (0). ``steps`` names what was reached."""

    at: int = 0
    when: When = "before"
    steps: list[str] = field(default_factory=list)

    def around(self, name: str, act: Callable[[], Any]) -> Any:
        self.steps.append(name)
        mine = len(self.steps) == self.at
        if mine and self.when == "before":
            raise Killed(f"before step {self.at}: {name}")
        result = act()
        if mine:
            raise Killed(f"after step {self.at}: {name}")
        return result


@contextmanager
def deaths(at: int = 0, when: When = "before", writer: Any = ControlWriter) -> Iterator[Deaths]:
    """Count durable steps, and die at one of them.

    :param writer: the class that writes control records
    """
    counter = Deaths(at, when)
    send, commit = writer.send, SqlCatalog.commit_table
    with pytest.MonkeyPatch.context() as patch:
        # The dead do nothing more, also not for another table.
        patch.setattr(commit_in_turns, "NEXT_TABLE_AFTER", 600.0)
        patch.setattr(writer, "send", lambda self, records: counter.around("control", lambda: send(self, records)))
        patch.setattr(
            SqlCatalog, "commit_table", lambda self, *a, **k: counter.around("catalog", lambda: commit(self, *a, **k))
        )
        yield counter


def own_columns(schema: Schema) -> list[NestedField]:
    """Columns that a landing did not add to name the record of a row."""
    return [f for f in schema.fields if f.name not in MARK_COLUMNS]


@dataclass(kw_only=True)
class World:
    """A landing with its connections; every run is a fresh process as far as the package can tell."""

    landing: Landing
    kafka: Mapping[str, Any]
    catalog: Mapping[str, str]
    lines: list[str] = field(default_factory=list)
    runs: int = 0
    noted: dict[tuple[str, int], int] = field(default_factory=dict)
    """Offsets that a user wrote down: what a user has when the table has forgotten."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def secrets(self) -> Secrets:
        """What tasks are given."""
        return Secrets(kafka=self.kafka, io=Tables(self.catalog).io_properties())

    @contextmanager
    def session(self) -> Iterator[LandingSession]:
        with LandingSession.connect(self.landing, self.kafka, self.catalog, log=self.lines.append) as session:
            session.now = self.now
            yield session

    def run_identity(self, run: str, attempt: str = "1") -> RunIdentity:
        return RunIdentity(deployment="test", dag_id="test", run_id=run, attempt=attempt)

    def open(self, run: str, *, retry: bool = False, release: bool = True) -> Opened:
        with self.session() as session:
            return open_cycle(
                session, self.run_identity(run), retry=retry, release=lambda cycle: release and cycle.run != run
            )

    def write(self, opened: Opened, only: Callable[[int], bool] = lambda _: True) -> list[SliceResult]:
        """Do the slices whose place passes ``only``."""
        results = []
        with self.session() as session:
            for ticket in opened.groups:
                job = group_job(self.landing, session.control, ticket, "test")
                if job is not None:
                    results += [run_task(job, self.secrets, i) for i, place in enumerate(job.numbers) if only(place)]
        self.lines += [str(r) for r in results if r.status != "done"]
        return results

    def close(self, run: str, opened: Opened | None, *, retry: bool = False) -> Closed:
        with self.session() as session:
            return close_cycle(session, self.run_identity(run), opened.ticket if opened else None, retry=retry)

    def run(self, name: str | None = None, *, retry: bool = False) -> Closed:
        """One whole cycle."""
        self.runs += 1
        run = name or f"run-{self.runs}"
        opened = self.open(run, retry=retry)
        self.write(opened)
        return self.close(run, opened, retry=retry)

    def settle(self, limit: int = 6) -> None:
        """Runs until a run has nothing to do, which is more than that it published nothing: on a busy machine a broker
        or a catalog may not answer in time, and what that run did not get done is for the next one.
        """
        for _ in range(limit):
            closed = self.run()
            undone = closed.published or closed.voided or closed.waiting or closed.missing or closed.left
            if not undone and "catalog away" not in str(closed.reason):
                return
        raise AssertionError(f"not caught up after {limit} runs: {closed}")

    def rows(self, table: str | None = None) -> list[dict[str, Any]]:
        with self.session() as session:
            return session.tables.load(table or self.landing.table).scan().to_arrow().to_pylist()

    def check(self, expected: Counter[int]) -> None:
        """Exactly these ids are in the table, each as often as told."""
        found = Counter(row["id"] for row in self.rows())
        lost, doubled = expected - found, found - expected
        if lost or doubled:
            raise AssertionError(f"lost {dict(lost)}, doubled {dict(doubled)}; {self.lines[-12:]}")


def race(world: World, runs: int = 3, name: str = "race") -> None:
    """Whole cycles of some runs at once; one may refuse another, and nothing else may be raised."""
    errors: list[BaseException] = []

    def run(name: str) -> None:
        try:
            opened = world.open(name, release=False)
            world.write(opened)
            world.close(name, opened)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(f"{name}-{n}",)) for n in range(runs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [e for e in errors if not isinstance(e, LakecommitError)] == []


def records(first: int, count: int) -> list[tuple[str, str]]:
    """Keyed JSON records with the ids from ``first``."""
    return [(str(i), json.dumps({"id": i, "name": f"n{i}"})) for i in range(first, first + count)]


SCHEMA: dict[str, Any] = {
    "schema": [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}],
    "partition_by": ["bucket(2, id)"],
}


def catalog_in(folder: Path) -> dict[str, str]:
    """Properties of a catalog of its own."""
    (folder / "warehouse").mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{folder / 'c.db'}", "warehouse": f"file://{folder / 'warehouse'}"}
