# SPDX-License-Identifier: Apache-2.0
"""Commit requests that land long after their sender gave up or died, and deaths before an unknown outcome is looked up.

The request is held back where it would reach the catalog, and is delivered when something else has happened. It may be
applied only if nothing has: then the next run finds its snapshot and announces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

from airflow_provider_lakecommit.iceberg.catalog import KEEP_SNAPSHOTS, Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import ancestry, landing_snapshots
from airflow_provider_lakecommit.iceberg.ledger.trim import trim_snapshots
from tests.fakes.catalog import Fault
from tests.fakes.lake import Lake, staged
from tests.support import messes
from tests.support.messes import CREATE, TABLE, table_of
from tests.support.steps import check_verified
from tests.support.world import Killed, World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]
LATE = timedelta(seconds=60)


@dataclass(slots=True)
class Delayed:
    """The first commit request, on its way."""

    request: tuple[Any, ...] = ()
    send: Callable[..., Any] = field(default=SqlCatalog.commit_table)

    def deliver(self) -> bool:
        """It arrives; returns whether it was applied."""
        assert self.request, "nothing was held back"
        try:
            self.send(*self.request)
        except (CommitFailedException, NoSuchTableError):
            return False
        return True


@contextmanager
def delayed(ends_with: type[BaseException]) -> Iterator[Delayed]:
    """Hold the first commit request back; its sender sees ``ends_with``, later requests go through."""
    held = Delayed()

    def commit(*request: Any) -> Any:
        if held.request:
            return held.send(*request)
        held.request = request
        raise ends_with

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", commit)
        yield held


def lands(*ids: int) -> Callable[[World, Produce], None]:
    """Another run, with these further records."""

    def run(world: World, produce: Produce) -> None:
        produce(world.landing.topics, records(ids[0], ids[1] - ids[0]) if ids else [])
        world.run()

    return run


def to_its_parent(world: World, produce: Produce) -> None:
    """Another run lands the same slices, and the table is rolled back to the head that the request was made for."""
    head = table_of(world).metadata.current_snapshot_id
    world.run()
    table_of(world).manage_snapshots().rollback_to_snapshot(head).commit()


def to_its_parent_and_on(world: World, produce: Produce) -> None:
    to_its_parent(world, produce)
    world.run()


def by(act: Callable[[World], None]) -> Callable[[World, Produce], None]:
    return lambda world, _: act(world)


class Meanwhile(NamedTuple):
    """What happens between sending and arriving, and whether the request may still be applied."""

    name: str
    act: Callable[[World, Produce], None]
    applied: bool = False
    needs_init: bool = False
    adds: tuple[int, ...] = ()


MEANWHILE = (
    Meanwhile("nothing", lambda *_: None, applied=True),
    Meanwhile("another run commits the same slices", lands()),
    Meanwhile("the next window is committed too", lands(100, 120)),
    Meanwhile("committed and rolled back to its parent", to_its_parent),
    Meanwhile("rolled back to its parent and landed anew", to_its_parent_and_on),
    Meanwhile("epochs are renewed", by(messes.from_earliest)),
    Meanwhile("foreign append", by(messes.append), adds=messes.FOREIGN),
    Meanwhile("tag dropped", by(messes.drop_tag)),
    Meanwhile("table rolled back before its parent", by(messes.roll_back)),
    Meanwhile("table made anew", by(messes.drop_and_make_anew), needs_init=True),
    Meanwhile("column added", by(messes.add_column)),
    Meanwhile("partition spec evolved", by(messes.evolve_spec)),
    Meanwhile("properties changed", by(messes.set_properties), applied=True),
)


def _until_commit(make_world: Make, produce: Produce) -> World:
    """A world with one landed window and one that is staged."""
    world = make_world(create=CREATE, table=TABLE, dead_letter_table=None, slice_records=100)
    produce(world.landing.topics, records(0, 40))
    world.run()
    produce(world.landing.topics, records(40, 60))
    return world


@pytest.mark.heavy(but=("another-run-commits-the-same-slices", "foreign-append"))
@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda m: m.name.replace(" ", "-"))
def test_a_request_that_lands_a_minute_late(make_world: Make, produce: Produce, meanwhile: Meanwhile) -> None:
    world = _until_commit(make_world, produce)
    opened = world.open("late")
    world.write(opened)
    with delayed(Killed) as held, pytest.raises(Killed):
        world.close("late", opened)
    world.now = lambda: datetime.now(UTC) + LATE
    meanwhile.act(world, produce)
    assert held.deliver() is meanwhile.applied
    if meanwhile.needs_init:
        messes.from_earliest(world)
    produce(world.landing.topics, records(120, 20))
    world.settle()
    produced = Counter([*range(100), *range(120, 140), *meanwhile.adds])
    if "next window" in meanwhile.name:
        produced += Counter(range(100, 120))
    world.check(produced)
    check_verified(world)


@pytest.mark.heavy
def test_a_request_that_lands_between_the_check_and_the_request_of_the_next_committer(
    make_world: Make, produce: Produce
) -> None:
    world = _until_commit(make_world, produce)
    opened = world.open("late")
    world.write(opened)
    with delayed(Killed) as held, pytest.raises(Killed):
        world.close("late", opened)
    arrived: list[bool] = []

    def commit(self: SqlCatalog, *request: Any) -> Any:
        if not arrived:
            arrived.append(held.deliver())
        return held.send(self, *request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", commit)
        closed = world.close("late", opened, retry=True)
    assert arrived == [True]
    assert closed.voided == ()
    world.settle()
    world.check(Counter(range(100)))
    check_verified(world)


@pytest.mark.heavy(but=("applied-the run is retried",))
@pytest.mark.parametrize("retried", [True, False], ids=["the run is retried", "another run follows"])
@pytest.mark.parametrize("applied", [True, False], ids=["applied", "not applied"])
def test_a_death_between_an_unknown_outcome_and_its_lookup(
    make_world: Make, produce: Produce, applied: bool, retried: bool
) -> None:
    world = _until_commit(make_world, produce)
    opened = world.open("unknown")
    world.write(opened)
    real_commit, real_load, sent = SqlCatalog.commit_table, Tables.load, []

    def commit(*request: Any) -> Any:
        sent.append(None)
        if applied:
            real_commit(*request)
        raise TimeoutError("read timed out")

    def load(self: Tables, identifier: str) -> Any:
        if sent:
            raise Killed
        return real_load(self, identifier)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", commit)
        patch.setattr(Tables, "load", load)
        with pytest.raises(Killed):
            world.close("unknown", opened)
    closed = world.run("unknown" if retried else None, retry=retried)
    assert [p.rows for p in closed.published] == [60]
    world.settle()
    world.check(Counter(range(100)))
    assert len(list(landing_snapshots(table_of(world).metadata))) == 3, "the origin and two appends"
    check_verified(world)


def test_an_expiry_of_ours_that_arrives_after_a_rollback_takes_no_branch_along(tmp_path: Path) -> None:
    lake = Lake(tmp_path, properties={KEEP_SNAPSHOTS: "4"})
    lake.create()
    ours = lake.join()
    for n in range(6):
        lake.publish(lake.request(staged((0, n, n + 1), epoch=ours.epoch)))
    line = list(ancestry(lake.load().metadata, "main"))
    lake.catalog.faults.append(Fault.ON_ITS_WAY)
    assert trim_snapshots(lake.tables, lake.name) == 0
    lake.load().manage_snapshots().rollback_to_snapshot(line[-2].snapshot_id).commit()
    with pytest.raises(CommitFailedException):
        lake.catalog.deliver()
    assert (lake.rows(), lake.rows("lakecommit-main")) == (1, 6)
