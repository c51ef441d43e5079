# SPDX-License-Identifier: Apache-2.0
"""Sweeps without any least age between windows, deaths, doubled work and zombies at random, in streams too.

After each step every file of a snapshot and of a slice that may be published is there. In the end an independent reader
has each record once, and no file is left that the table does not have.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.commit.reported import reported_files
from airflow_provider_lakecommit.cycle.plan.open_lanes import open_lanes
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.operations.backfill.closing import close_lane
from airflow_provider_lakecommit.operations.backfill.opening import joined_session
from airflow_provider_lakecommit.operations.maintenance.sweep import sweep
from airflow_provider_lakecommit.spark import task
from airflow_provider_lakecommit.spark.task import run_task
from tests.faults.test_lanes import lane, preview_of
from tests.faults.test_replay import DECISION
from tests.faults.test_sweep import age, files, jobs_of
from tests.support.steps import check_verified
from tests.support.world import SCHEMA, Killed, World, deaths, records

pytestmark = pytest.mark.faults

LAYOUTS: dict[str, dict[str, str]] = {
    "folders": {},
    "object store": {"write.object-storage.enabled": "true"},
    "elsewhere": {"write.data.path": "file://{tmp}/warehouse/elsewhere"},
}


class Campaign:
    """One landing, and what happens to it."""

    def __init__(self, world: World, produce: Callable[..., object], seed: int) -> None:
        self.world, self.produce, self.chance = world, produce, random.Random(seed)
        self.sent, self.runs, self.open = 0, 0, dict[str, tuple[World, Opened]]()
        self.zombies: list[Callable[[], object]] = []
        self.story: list[str] = []

    def step(self) -> None:
        acts = self.acts()
        act = self.chance.choices(list(acts), list(acts.values()))[0]
        at = self.chance.randrange(1, 4) if self.chance.random() < 0.2 else 0
        self.story.append(f"{act.__name__} dies at {at}" if at else act.__name__)
        with suppress(Killed, LakecommitError), deaths(at, self.chance.choice(["before", "after"])):
            act()
        self.check()

    def acts(self) -> dict[Callable[[], None], int]:
        """How often each is done."""
        once = [self.sends, self.opens, self.doubles, self.stalls, self.wakes]
        return {**dict.fromkeys(once, 1), **dict.fromkeys([self.writes, self.closes, self.sweeps], 2)}

    def lane(self) -> World:
        """Whose next cycle it is."""
        return self.world

    def sends(self) -> None:
        self.produce(self.world.landing.topic_names[0], records(self.sent, 50))
        self.sent += 50

    def opens(self) -> None:
        self.runs += 1
        run, world = f"step-{self.runs}", self.lane()
        self.open[run] = world, world.open(run, release=self.chance.random() < 0.5)

    def writes(self) -> None:
        for world, opened in self._some():
            world.write(opened, lambda _: self.chance.random() < 0.7)

    def doubles(self) -> None:
        """All slices once more, whoever did them before."""
        for world, opened in self._some():
            for job in jobs_of(world, opened):
                for n in range(len(job.numbers)):
                    run_task(job, self.world.secrets, n)

    def stalls(self) -> None:
        """Tasks write their files, and report it when nobody expects it any more, or never."""
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
            world, opened = self.open.pop(run)
            world.close(run, opened)

    def sweeps(self) -> None:
        with self.world.session() as session:
            sweep(session, older_than=timedelta(0), remove=True)

    def _some(self) -> list[tuple[World, Opened]]:
        return [self.open[run] for run in self.chance.sample(list(self.open), min(1, len(self.open)))]

    def check(self) -> None:
        """Whatever a snapshot has, or may get, is there."""
        with self.world.session() as session, ExitStack() as opened:
            lanes = [opened.enter_context(joined_session(session, lane)) for lane in open_lanes(session)]
            for one in (session, *lanes):
                self._check_lane(one)

    def _check_lane(self, session: LandingSession) -> None:
        prepared = prepare_for_commit(session, log=False)
        state = session.read_state(prepared.ledgers).state if prepared.tables else None
        for t in prepared.tables:
            held = [task.file.file_path for task in session.tables.load(t.name).scan().plan_files()]
            waits = state.accepted[t.name] if state else ()
            held += [f.file_path for a in waits for f in reported_files(a, t.name, t.table.metadata)[0]]
            removed = [path for path in held if not Path(path.removeprefix("file://")).exists()]
            assert not removed, (removed, session.lane, self.story)

    def expected(self) -> Counter[int]:
        return Counter(range(self.sent))

    def ends(self) -> None:
        """All is landed."""
        with suppress(LakecommitError):
            self.closes()
        self.world.settle(limit=12)


PAST, PER_LANE = 90, 30
"""Records of each of two partitions that the live stream begins behind, and those of one stream."""


class LaneCampaign(Campaign):
    """Six streams next to the live one, which are closed before they are whole, and begun again under their names."""

    def __init__(self, world: World, produce: Callable[..., object], seed: int) -> None:
        super().__init__(world, produce, seed)
        world.landing = world.landing.changed(window={"start": "latest"})
        for p in range(2):
            produce(world.landing.topics, records(100_000 + PAST * p, PAST), partition=p)
        world.settle()
        starts = [(p, start) for p in range(2) for start in range(0, PAST, PER_LANE)]
        self.lanes = [lane(world, f"{p}={a}-{a + PER_LANE}", name=f"past-{n}") for n, (p, a) in enumerate(starts)]

    def acts(self) -> dict[Callable[[], None], int]:
        return {**super().acts(), self.opens: 3, self.gives_up: 1, self.finishes: 1}

    def lane(self) -> World:
        return self.chance.choice([self.world, *self.lanes[:3], *self.lanes[:3], *self.lanes])

    def gives_up(self) -> None:
        """An open stream is closed as it is; its tasks know nothing of that."""
        with self.world.session() as session:
            for lane in self.chance.sample(open_lanes(session), min(1, len(open_lanes(session)))):
                with joined_session(session, lane) as own:
                    close_lane(own, decision=DECISION)

    def finishes(self) -> None:
        one = self.chance.choice(self.lanes)
        if not preview_of(self.world, one.request).done:
            one.finish()

    def ends(self) -> None:
        super().ends()
        for one in self.lanes:
            if not preview_of(self.world, one.request).done:
                one.finish()

    def expected(self) -> Counter[int]:
        return super().expected() + Counter(range(100_000, 100_000 + 2 * PAST))


def run(campaign: Campaign, steps: int) -> None:
    world = campaign.world
    campaign.sends()
    world.settle()
    for _ in range(steps):
        campaign.step()
    campaign.ends()
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
    assert Counter(dict(found)) == campaign.expected(), campaign.story
    check_verified(world)


@pytest.mark.heavy
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
    run(Campaign(make_world(2, create={**SCHEMA, "properties": stated}), produce, seed), steps=25)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.heavy), pytest.param(3, marks=pytest.mark.heavy)]
)
def test_a_short_campaign_of_streams(
    make_world: Callable[..., World], produce: Callable[..., object], seed: int
) -> None:
    run(LaneCampaign(make_world(2), produce, seed), steps=25)


@pytest.mark.campaign
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(10, 20))
@pytest.mark.parametrize("kind", [Campaign, LaneCampaign])
def test_a_campaign(
    make_world: Callable[..., World], produce: Callable[..., object], kind: type[Campaign], seed: int
) -> None:
    run(kind(make_world(2), produce, seed), steps=150)
