# SPDX-License-Identifier: Apache-2.0
"""Commits that fail for many cycles under steady load: what is planned meanwhile, what waits, what happens after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.control.records import read_entry
from airflow_provider_lakecommit.core.log import CommitFailed, CycleClosed, CycleOpened, Entry
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.core.planning.admission import pressure_of
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.results import Closed
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run.pauses import REFUSED_PAUSES
from airflow_provider_lakecommit.cycle.run_outcome import RunOutcome
from airflow_provider_lakecommit.exceptions import CatalogError, CommitUnknownError, LakecommitError
from airflow_provider_lakecommit.iceberg.ledger import swap
from airflow_provider_lakecommit.iceberg.ledger.ledger import landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotRecord
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from airflow_provider_lakecommit.stall.group_state import StallRules, State
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.observed_events import observed_record
from airflow_provider_lakecommit.stall.verdict import Verdict, evaluate
from tests.support.declared import changed_landing
from tests.support.world import Killed, World, deaths, records

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
LOAD = 20
"""Records that arrive in each cycle."""
SMALL = 6000
"""Bytes that a cycle without a window may take of the control topic."""


@dataclass(kw_only=True)
class Outage:
    """A world whose catalog can be taken away: its database is moved out of sight, and its connections end."""

    world: World
    produce: Produce
    produced: int = 0
    engines: list[SqlCatalog] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return Path(self.world.catalog["uri"].removeprefix("sqlite:///")).parent

    def leave(self) -> None:
        self.folder.rename(self.folder.with_suffix(".away"))

    def come_back(self) -> None:
        self.folder.with_suffix(".away").rename(self.folder)

    @contextmanager
    def away(self) -> Iterator[None]:
        self.leave()
        try:
            yield
        finally:
            self.come_back()

    def load(self, count: int = LOAD) -> None:
        self.produce(self.world.landing.topics, records(self.produced, count))
        self.produced += count

    def recorded(self) -> list[tuple[Entry, int]]:
        """What the landing's log holds, with the bytes of each record."""
        with self.world.session() as session:
            found = [(read_entry(r, self.world.landing.name, LIVE), r) for r in session.control.read_all()]
        return [
            (e, len(r.value or b"") + len(r.key or b"") + sum(len(k) + len(v) for k, v in r.headers))
            for e, r in found
            if e is not None
        ]

    def pending(self) -> dict[str, Counter[str]]:
        """By the log and the tables, which must be there."""
        with self.world.session() as session:
            state = session.read_state(prepare_for_commit(session).ledgers)
            return dict(pressure_of(state.state, session.now()).pending)

    def verdict(self) -> Verdict:
        """Of an observer of the control topic."""
        state, rules = State(), StallRules(landing=True)
        with self.world.session() as session:
            for r in session.control.read_all():
                if (found := observed_record(r.value, key=r.key, headers=r.headers)) is not None:
                    state = observe(state, found[1], rules)
        return evaluate(state, 0.0, rules).verdict

    def check(self) -> None:
        self.world.check(Counter(range(self.produced)))


@pytest.fixture
def make_outage(make_world: Make, produce: Produce, tmp_path: Path) -> Callable[..., Outage]:
    def make(**fields: object) -> Outage:
        world = make_world(**{"slice_records": 10, "dead_letter_table": None, **fields})
        folder = tmp_path / "database"
        folder.mkdir()
        world = replace(world, catalog={**world.catalog, "uri": f"sqlite:///{folder / 'c.db'}"})
        return Outage(world=world, produce=produce)

    return make


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request per commit; whatever becomes of it is looked up once."""
    monkeypatch.setattr(swap, "RetryPolicy", partial(RetryPolicy, seconds=0.0))


@contextmanager
def refusing(table: str = "") -> Iterator[None]:
    """The catalog can be read and takes no commit, of any table or of one."""
    commit = SqlCatalog.commit_table

    def refuse(self: SqlCatalog, of: Any, *rest: Any) -> Any:
        if not table or ".".join(of.name()) == table:
            raise ConnectionError("the catalog takes no commit")
        return commit(self, of, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", refuse)
        yield


def append_records(world: World) -> list[SnapshotRecord]:
    """The landing snapshots with files, oldest first."""
    with world.session() as session:
        metadata = session.tables.load(world.landing.table).metadata
    found = landing_snapshots(metadata, "main", landing=world.landing.name, lane=LIVE)
    return [r for r in reversed(list(found)) if int(r.extra.get("files", 0))]


@pytest.mark.heavy(but=("2",))
@pytest.mark.parametrize("cycles", [2, 8])
def test_an_outage_of_the_catalog_under_steady_load(make_outage: Callable[..., Outage], cycles: int) -> None:
    """Also one that ends before the landing counts as stalled."""
    outage = make_outage()
    world = outage.world
    outage.load()
    assert world.run().rows == LOAD
    outage.load()
    under_way = world.open("under way")
    before = len(outage.recorded())
    with outage.away():
        world.write(under_way)
        with pytest.raises(CatalogError):
            world.close("under way", under_way)
        in_flight = len(outage.recorded())
        sizes = []
        for n in range(cycles - 1):
            outage.load()
            opened = world.open(f"dark-{n}")
            assert opened.slices == ()
            assert opened.plan.refused == "catalog away"
            assert opened.plan.deferred
            assert "cleared by a catalog that answers" in str(opened.plan.reason)
            with pytest.raises(CatalogError):
                world.close(f"dark-{n}", opened)
            new = outage.recorded()[in_flight:]
            assert [type(e) for e, _ in new] == [CycleOpened, CommitFailed]
            sizes.append(sum(size for _, size in new))
            in_flight += 2
        assert max(sizes) < SMALL
        assert max(sizes) - min(sizes) < 100
    outage.load()
    stalled = cycles >= world.landing.backpressure.stalled_cycles
    opened = world.open("first")
    assert (opened.plan.refused == "stalled") is stalled
    assert bool(opened.slices) is not stalled
    world.write(opened)
    closed = world.close("first", opened)
    log = [e for e, _ in outage.recorded()[before:]]
    assert sum(isinstance(e, CycleClosed) for e in log) == 1
    assert isinstance(log[-1], CycleClosed)
    if stalled:
        assert opened.plan.left == cycles * LOAD
        assert closed.rows == LOAD
        last = world.open("second")
        assert sum(len(s) for s in last.slices) == cycles * LOAD
        world.write(last)
        assert world.close("second", last).rows == cycles * LOAD
    assert outage.pending()[world.landing.table] == Counter()
    outage.check()


@pytest.mark.heavy
def test_a_catalog_that_can_be_read_and_takes_no_commit(make_outage: Callable[..., Outage], impatient: None) -> None:
    outage = make_outage()
    world = outage.world
    outage.load()
    world.run()
    windows, held = 0, []
    with refusing():
        for n in range(8):
            outage.load()
            opened = world.open(f"dark-{n}")
            windows += bool(opened.slices)
            held.append(opened.plan.refused)
            world.write(opened)
            with pytest.raises(CommitUnknownError):
                world.close(f"dark-{n}", opened)
    assert windows == world.landing.backpressure.stalled_cycles == 3
    assert held == [None] * 3 + ["stalled"] * 5
    outage.load()
    drained = world.run()
    assert drained.rows == 3 * LOAD
    assert drained.left == 6 * LOAD
    assert len(append_records(world)) == 2  # three windows in one snapshot, next to the first
    assert world.run().rows == 6 * LOAD
    outage.check()


@pytest.mark.heavy
@pytest.mark.parametrize(
    "budget",
    [{"max_pending_slices": 5}, {"max_pending_files": 7}, {"max_pending_bytes": 2000}],
    ids=["slices", "files", "bytes"],
)
def test_what_is_pending_stays_within_its_budget(
    make_outage: Callable[..., Outage], impatient: None, budget: dict[str, int]
) -> None:
    outage = make_outage(partitions=1, stalled_cycles=100, **budget)
    world, table = outage.world, outage.world.landing.table
    outage.load()
    world.settle()
    [(name, most)] = budget.items()
    kind = name.removeprefix("max_pending_")
    states, observed = set(), []
    with refusing():
        for n in range(6):
            outage.load()
            opened = world.open(f"dark-{n}")
            states.add(opened.plan.refused)
            world.write(opened)
            with suppress(LakecommitError):
                world.close(f"dark-{n}", opened)
            observed.append(outage.pending()[table][kind])
    assert max(observed) <= most
    assert max(observed) > most * 0.6
    assert states == {None, f"pending {kind}"}
    assert f"{name} is {most}" in str(opened.plan.reason)
    world.settle(limit=12)
    outage.check()


@pytest.mark.heavy
def test_slowing_down_makes_windows_smaller_and_rarer(make_outage: Callable[..., Outage], impatient: None) -> None:
    outage = make_outage(partitions=1, stalled_cycles=100, slow_down=True)
    world = outage.world
    outage.load()
    world.run()
    sizes = []
    with refusing():
        for n in range(6):
            outage.load()
            opened = world.open(f"dark-{n}")
            sizes.append((sum(len(s) for s in opened.slices), opened.plan.refused))
            world.write(opened)
            with suppress(LakecommitError):
                world.close(f"dark-{n}", opened)
    slowing = (0, "slowing")
    # Of 20, then of 40, then of 20 + 60 records.
    assert sizes == [(20, None), slowing, (20, None), slowing, slowing, (20, None)]
    assert world.run().left
    world.settle()
    outage.check()


@pytest.mark.heavy
def test_a_table_that_fails_alone_stops_no_other_until_its_budget_is_full(
    make_outage: Callable[..., Outage], impatient: None
) -> None:
    outage = make_outage(partitions=1, dead_letter_table="shop.dead", dead_letter_max_ratio=1.0, max_pending_slices=6)
    world, held, verdicts = outage.world, [], []
    outage.load()
    world.run()
    rows = len(world.rows())
    with refusing("shop.dead"):
        for n in range(10):
            outage.load()
            outage.produce(world.landing.topics, [("x", "no json")])
            opened = world.open(f"half-{n}")
            held.append(opened.plan.refused)
            world.write(opened)
            with suppress(CommitUnknownError):
                world.close(f"half-{n}", opened)
            before, rows = rows, len(world.rows())
            assert (rows > before) is bool(opened.slices)
            if opened.slices and n > 1:
                assert any("shop.dead: commits failed in" in line for line in opened.explain)
            verdicts.append(outage.verdict())
    assert held[:5] == [None] * 5, "more windows than make a stall of all tables"
    assert held[-3:] == ["pending slices"] * 3
    full = [h == "pending slices" for h in held]
    # Whoever waits for the data is held when there are none any more.
    assert verdicts == [Verdict.STALLED if n >= 2 and all(full[n - 2 : n + 1]) else Verdict.SLOWING for n in range(10)]
    assert verdicts[-1] is Verdict.STALLED
    assert "6 slices are pending in shop.dead, backpressure.max_pending_slices is 6; its commits failed in" in str(
        opened.plan.reason
    )
    world.settle(limit=12)
    outage.check()
    assert len(world.rows("shop.dead")) == 10


@pytest.mark.heavy
def test_a_full_budget_does_not_keep_the_hole_that_all_else_waits_for(make_outage: Callable[..., Outage]) -> None:
    outage = make_outage(partitions=1)
    world = outage.world
    outage.load(30)
    opened = world.open("a")
    world.write(opened, only=lambda index: index != 0)
    assert len(world.close("a", opened).waiting) == 2
    outage.load(30)
    world.landing = changed_landing(world.landing, max_pending_slices=2)
    again = world.open("b")
    assert [str(s.spans[0].range) for s in again.slices] == ["[0, 10)"]
    assert any("Planned only what pending slices wait for" in line for line in again.explain)
    world.write(again)
    assert world.close("b", again).rows == 30
    world.settle(limit=12)
    outage.check()


def three_refused(outage: Outage) -> World:
    """One run that lands, and three windows whose commits are refused."""
    world = outage.world
    outage.load()
    world.run()
    with refusing():
        for n in range(3):
            outage.load()
            with suppress(LakecommitError):
                world.run(f"dark-{n}")
    return world


@pytest.mark.heavy
def test_a_relapse_between_chunks_loses_no_ground(make_outage: Callable[..., Outage], impatient: None) -> None:
    outage = make_outage(partitions=1, commit_files=6, stalled_cycles=100)
    world = three_refused(outage)
    files = outage.pending()[world.landing.table]["files"]
    assert files == 12, "three windows of two slices of two files"
    commit = SqlCatalog.commit_table
    with pytest.MonkeyPatch.context() as patch:

        def last(self: SqlCatalog, *a: Any, **k: Any) -> Any:
            """The server takes this one and is missing, with its connections."""
            answer = commit(self, *a, **k)
            self.engine.dispose()
            outage.leave()
            return answer

        patch.setattr(SqlCatalog, "commit_table", last)
        with pytest.raises(CatalogError):
            world.run("relapse")
    outage.come_back()
    [_, first] = append_records(world)
    assert (int(first.extra["files"]), first.slices, len(first.windows)) == (6, 3, 2)
    world.run("again")
    assert [int(r.extra["files"]) for r in append_records(world)] == [4, 6, 6]
    world.settle()
    outage.check()


@pytest.mark.heavy
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_death_between_the_chunks_of_a_drain(make_outage: Callable[..., Outage], impatient: None, step: int) -> None:
    outage = make_outage(partitions=1, commit_files=4, stalled_cycles=100)
    world = three_refused(outage)
    drain = world.open("drain")
    with deaths(step, "after"), suppress(Killed):
        world.close("drain", drain)
    world.close("drain", drain, retry=True)
    assert [r.slices for r in append_records(world)] == [2, 2, 2, 2]
    world.settle()
    outage.check()


# -- one process, cycle after cycle -----------------------------------------------------------------------------------


@dataclass
class Tasks:
    """An engine in this process."""

    ahead = 0

    def start(self) -> None:
        """There is nothing to start."""

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        return [run_task(job, secrets, i) for i in range(len(job.plan.slices))]

    def stop(self) -> None:
        """Its jobs end by themselves."""

    def close(self) -> None:
        """It holds nothing."""


def land(world: World, run: str, first: int = 0) -> tuple[RunOutcome, list[str | None]]:
    """A run until it ends by itself, and what held each of its cycles."""
    with world.session() as session:
        run_identity = world.run_identity(run)
        outcomes = list(LandingRunner(session, Tasks(), lambda n: replace(run_identity, number=n)).cycles(first))
    return RunOutcome.of(world.landing.name, outcomes), [o.opened.plan.refused for o in outcomes]


@pytest.mark.heavy
def test_a_run_after_an_outage_drains_and_then_lands_all_there_is(make_outage: Callable[..., Outage]) -> None:
    outage = make_outage()
    world = outage.world
    outage.load()
    land(world, "before")
    with outage.away():
        for n in range(4):
            outage.load()
            with pytest.raises(CatalogError):
                land(world, f"dark-{n}")
    run, held = land(world, "after")
    assert held == ["stalled", None]
    assert run.refused is None
    outage.check()


@pytest.mark.heavy
def test_a_retry_of_a_run_that_planned_nothing_for_want_of_a_catalog_goes_on(
    make_outage: Callable[..., Outage],
) -> None:
    outage = make_outage()
    world = outage.world
    outage.load()
    land(world, "before")
    outage.load()
    with outage.away(), pytest.raises(CatalogError):
        land(world, "dark")
    _, held = land(world, "dark")
    assert held == ["catalog away", None]
    outage.check()


def test_a_run_that_is_not_admitted_waits_longer_each_time_and_reports_what_clears_it(
    make_outage: Callable[..., Outage], monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = make_outage(max_open_cycles=1)
    world = outage.world
    outage.load()
    under_way = world.open("under way", release=False)
    outage.load()
    waits: list[float] = []
    monkeypatch.setattr(LandingRunner, "_pause", lambda self, seconds: waits.append(seconds))
    run, held = land(world, "after")
    assert held == ["open cycles"] * (len(REFUSED_PAUSES) + 1)
    assert waits == [*REFUSED_PAUSES]
    assert waits == sorted(waits)
    assert run.published == ()
    assert run.closed.left == LOAD
    assert (
        "no window was planned: open cycles: 1 windows are under way, backpressure.max_open_cycles is 1; cleared by"
        in str(run)
    )
    world.write(under_way)
    closed: Closed = world.close("under way", under_way)
    assert closed.rows == LOAD
    land(world, "later")
    outage.check()
