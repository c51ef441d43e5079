# SPDX-License-Identifier: Apache-2.0
"""Sweeps without any least age between windows, deaths, doubled work and zombies at random.

After each step every file of a snapshot and of a slice that may be published is there. In the end an independent reader
has each record once, and no file is left that the table does not have.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_provider_lakecommit.cycle.reported import reported_files
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.maintenance.sweep import sweep
from airflow_provider_lakecommit.prepare.tables import prepare_for_commit
from airflow_provider_lakecommit.spark import task
from airflow_provider_lakecommit.spark.job import Secrets
from airflow_provider_lakecommit.spark.task import run_task
from tests.faults.test_sweep import age, files, jobs_of
from tests.support.world import SCHEMA, Killed, World, deaths, records

pytestmark = pytest.mark.faults

LAYOUTS: dict[str, dict[str, str]] = {
    "folders": {},
    "object store": {"write.object-storage.enabled": "true"},
    "elsewhere": {"write.data.path": "file://{tmp}/elsewhere"},
}


class Campaign:
    """One landing, and what happens to it."""

    def __init__(self, world: World, produce: Callable[..., object], seed: int) -> None:
        self.world, self.produce, self.chance = world, produce, random.Random(seed)
        self.sent, self.runs, self.open = 0, 0, dict[str, Opened]()
        self.zombies: list[Callable[[], object]] = []
        self.story: list[str] = []

    def step(self) -> None:
        acts = [self.sends, self.opens, self.writes, self.doubles, self.stalls, self.wakes, self.closes, self.sweeps]
        act = self.chance.choices(acts, [1, 1, 2, 1, 1, 1, 2, 2])[0]
        at = self.chance.randrange(1, 4) if self.chance.random() < 0.2 else 0
        self.story.append(f"{act.__name__} dies at {at}" if at else act.__name__)
        with suppress(Killed, LakecommitError), deaths(at, self.chance.choice(["before", "after"])):
            act()
        self.check()

    def sends(self) -> None:
        self.produce(self.world.landing.topic_names[0], records(self.sent, 50))
        self.sent += 50

    def opens(self) -> None:
        self.runs += 1
        run = f"step-{self.runs}"
        self.open[run] = self.world.open(run, release=self.chance.random() < 0.5)

    def writes(self) -> None:
        for opened in self._some():
            self.world.write(opened, lambda _: self.chance.random() < 0.7)

    def doubles(self) -> None:
        """All slices once more, whoever did them before."""
        for opened in self._some():
            for job in jobs_of(self.world, opened):
                for n in range(len(job.places)):
                    run_task(job, Secrets(kafka=self.world.kafka, io={}), n)

    def stalls(self) -> None:
        """Tasks write their files, and say so when nobody expects it any more, or never."""
        real = task.send_report

        def late(*args: Any, **kwargs: Any) -> Any:
            if self.chance.random() < 0.7:
                self.zombies.append(lambda: real(*args, **kwargs))
            raise OSError("stalled before its report")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(task, "send_report", late)
            self.writes()

    def wakes(self) -> None:
        if self.zombies:
            with suppress(Exception):
                self.zombies.pop(self.chance.randrange(len(self.zombies)))()

    def closes(self) -> None:
        for run in self.chance.sample(list(self.open), min(1, len(self.open))):
            self.world.close(run, self.open.pop(run))

    def sweeps(self) -> None:
        with self.world.session() as session:
            sweep(session, older_than=timedelta(0), remove=True)

    def _some(self) -> list[Opened]:
        return [self.open[run] for run in self.chance.sample(list(self.open), min(1, len(self.open)))]

    def check(self) -> None:
        """Whatever a snapshot has, or may get, is there."""
        with self.world.session() as session:
            prepared = prepare_for_commit(session, tell=False)
            state = session.read_state(prepared.ledgers).state if prepared.tables else None
            for t in prepared.tables:
                held = [task.file.file_path for task in session.tables.load(t.name).scan().plan_files()]
                waits = state.accepted[t.name] if state else ()
                held += [f.file_path for a in waits for f in reported_files(a, t.name, t.table.metadata)]
                gone = [path for path in held if not Path(path.removeprefix("file://")).exists()]
                assert not gone, (gone, self.story)


def run(world: World, produce: Callable[..., object], seed: int, steps: int) -> None:
    campaign = Campaign(world, produce, seed)
    campaign.sends()
    world.settle()
    for _ in range(steps):
        campaign.step()
    campaign.closes()
    world.settle(limit=12)
    assert any(act.startswith("sweeps") for act in campaign.story)
    tables = (world.landing.table, *([world.landing.dead_letter_table] if world.landing.dead_letter_table else []))
    everything = set().union(*(files(world, table=t) for t in tables))
    age(everything)
    with world.session() as session:
        left = sweep(session, older_than=timedelta(0), remove=True)
        assert [t.error for t in left] == [""] * len(left), campaign.story
        held = {
            Path(f.file.file_path.removeprefix("file://"))
            for name in tables
            for f in session.tables.load(name).scan().plan_files()
        }
        data = [str(p) for p in held if p in files(world)]
    assert set().union(*(files(world, table=t) for t in tables)) == held, campaign.story
    found = duckdb.sql(f"select id, count(*) from read_parquet({data}) group by id").fetchall()
    assert Counter(dict(found)) == Counter(range(campaign.sent)), campaign.story


@pytest.mark.parametrize(
    ("seed", "layout"),
    [
        (1, "folders"),
        pytest.param(2, "object store", marks=pytest.mark.heavy),
        pytest.param(3, "elsewhere", marks=pytest.mark.heavy),
    ],
)
def test_a_short_campaign(
    make_world: Callable[..., World], produce: Callable[..., object], tmp_path: Path, seed: int, layout: str
) -> None:
    stated = {key: text.format(tmp=tmp_path) for key, text in LAYOUTS[layout].items()}
    run(make_world(2, create={**SCHEMA, "properties": stated}), produce, seed, steps=25)


@pytest.mark.campaign
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_campaign(make_world: Callable[..., World], produce: Callable[..., object], seed: int) -> None:
    run(make_world(2), produce, seed, steps=150)
