# SPDX-License-Identifier: Apache-2.0
"""Random sequences of what can happen to a landing with checks: whatever the order, `main` has every good row once at
the end, never one twice, and wrong rows only where a user has released them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg.ledger.summary import has_ledger
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from tests.faults.test_audit import AUDITED, GOOD, WITHOUT_BAD, bad, decided, ids, loaded, rolled_back, shown
from tests.support.world import Killed, World, deaths, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
STEPS = 12
REFUSED, APART = "LC6250", "LC3060"
FOREIGN = 1_000_000


class Sequence:
    """One random sequence, with what is known of it."""

    def __init__(self, world: World, produce: Produce, seed: int) -> None:
        self.world, self.produce, self.random = world, produce, random.Random(seed)
        self.good = self.wrong = self.foreign = 0
        self.of_others: set[int] = set()
        self.released: set[int] = set()
        self.lines: list[str] = []

    def more(self) -> None:
        many = self.random.randint(1, 6)
        self.produce(self.world.landing.topics, records(self.good, many))
        self.good += many

    def worse(self) -> None:
        self.wrong += 1
        self.produce(self.world.landing.topics, bad(self.wrong))

    def run(self) -> None:
        with self.refusals():
            self.world.run()

    def killed(self) -> None:
        when: Any = self.random.choice(["before", "after"])
        with self.refusals(), suppress(Killed), deaths(self.random.randint(1, 9), when):
            self.world.run()

    def release(self) -> None:
        if shown(self.world, drop=False):
            with self.refusals():
                decided(self.world, drop=False)
                self.released |= {i for i in ids(self.world, "audit") if i < 0}

    def drop(self) -> None:
        if "audit" in loaded(self.world).metadata.refs and shown(self.world, drop=True):
            when: Any = self.random.choice(["before", "after", None])
            if when is None:
                decided(self.world, drop=True)
            else:
                with suppress(Killed), deaths(1, when):
                    decided(self.world, drop=True)

    def roll_back(self) -> None:
        with suppress(AssertionError):
            rolled_back(self.world, "main", self.random.randint(1, 2))

    def foreign_append(self) -> None:
        table = loaded(self.world)
        rows = table.scan(row_filter="id >= 0").to_arrow()[:1]
        if rows.num_rows:
            self.foreign += 1
            place = rows.schema.get_field_index("id")
            table.append(rows.set_column(place, rows.schema.field("id"), [[FOREIGN + self.foreign]]))

    def compacted(self) -> None:
        with self.world.session() as session, suppress(LakecommitError):
            list(compact(session, write=True))

    def expired(self) -> None:
        table = loaded(self.world)
        head = table.metadata.snapshot_by_name("main")
        # Otherwise `main` loses its ledger: see test_a_main_that_is_cut_off_from_its_ledger_is_not_read_again.
        if head is not None and has_ledger(head):
            table.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(minutes=1)).commit()

    def lose_branch(self) -> None:
        if "audit" in (table := loaded(self.world)).metadata.refs:
            table.manage_snapshots().remove_branch("audit").commit()

    def filtered(self) -> None:
        sql = {} if self.world.landing.transform.sql else WITHOUT_BAD
        self.world.landing = self.world.landing.changed(transform=sql or {"sql": None, "record_schema": None})

    def refusals(self) -> Any:
        return _Refusals(self.lines)

    def check(self, *, rolled_back: bool = False) -> None:
        """What holds at any time. Only a rollback takes rows of another writer away."""
        table = loaded(self.world)
        if "main" in table.metadata.refs:
            found = ids(self.world)
            assert not [i for i, many in found.items() if many > 1], self.lines
            assert {i for i in found if i < 0} <= self.released, self.lines
            others = {i for i in found if i > FOREIGN}
            assert rolled_back or self.of_others <= others, self.lines
            self.of_others = others

    def finish(self) -> None:
        """Without wrong records, and with the decisions that are requested, everything is landed."""
        self.world.landing = self.world.landing.changed(transform=WITHOUT_BAD)
        for _ in range(4):
            with self.refusals():
                self.world.settle()
                break
            decided(self.world, drop=True)
        found = ids(self.world)
        self.check()
        expected = Counter(range(self.good))
        rows = Counter({i: many for i, many in found.items() if 0 <= i < FOREIGN})
        assert rows == expected, (expected - rows, rows - expected, self.lines)


class _Refusals:
    """Lets the two refusals of audits pass."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _at: object) -> bool:
        if isinstance(error, LakecommitError):
            self.lines.append(error.code)
            return error.code in (REFUSED, APART)
        return False


OPERATIONS = (
    *("more", "more", "worse", "run", "run", "run", "run", "killed", "killed", "release", "drop"),
    *("roll_back", "foreign_append", "foreign_append", "compacted", "expired", "lose_branch", "filtered"),
)


def play(world: World, produce: Produce, seed: int) -> None:
    sequence = Sequence(world, produce, seed)
    sequence.more()
    sequence.run()
    for _ in range(STEPS):
        name = sequence.random.choice(OPERATIONS)
        sequence.lines.append(name)
        getattr(sequence, name)()
        sequence.check(rolled_back=name == "roll_back")
    sequence.finish()


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(n, marks=pytest.mark.heavy) for n in range(5, 40))])
def test_a_sequence(make_world: Make, produce: Produce, seed: int) -> None:
    play(make_world(1, **{**AUDITED, "checks": [GOOD], "dead_letter_table": None}), produce, seed)
