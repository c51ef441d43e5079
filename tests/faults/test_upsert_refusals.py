# SPDX-License-Identifier: Apache-2.0
"""What a landing that upserts cannot do is refused by name on every path, changes nothing, and is possible where the
table records deletes; a reset that goes back shows in its preview what it does to rows.

In memory: the commands, operators, tasks and tables are the product's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import LedgerError, SpecError
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.starts import Way
from airflow_provider_lakecommit.operators.backfill import BackfillOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from airflow_provider_lakecommit.operators.replay import ReplayOperator
from tests.support.campaign.console import Answer, Console, console
from tests.support.declared import changed_landing
from tests.support.in_memory import TOPIC, MemoryWorld, memory_world

pytestmark = pytest.mark.faults

COLUMNS = [
    {"name": "id", "type": "long", "required": True},
    {"name": "name", "type": "string"},
    {"name": "_is_deleted", "type": "boolean"},
]
OPTIONS: dict[str, Any] = {
    "create": {"schema": COLUMNS},
    "key": {"columns": ["id"], "format": "json"},
    "upsert_key": ["id"],
}
RANGE = f"{TOPIC}:0=0-2"


def record(key: int | None, name: str | None) -> tuple[str, str | None]:
    return json.dumps({"id": key}), None if name is None else json.dumps({"name": name})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MemoryWorld]:
    """Two partitions with a few changes each, of other keys, and a dead letter."""
    with memory_world(tmp_path, 2, **OPTIONS) as made:
        made.send(record(1, "a"), record(2, "a"), record(1, "b"), record(2, None))
        made.send(record(11, "a"), record(12, "a"), record(None, "x"), partition=1)
        yield made


@pytest.fixture
def commands(world: MemoryWorld, tmp_path: Path) -> Iterator[Console]:
    spec = {**world.landing.to_flat(), "kafka": dict(world.kafka), "catalog": dict(world.catalog)}
    with console(tmp_path / "spec.json", spec) as made:
        yield made


def head(world: MemoryWorld) -> list[str]:
    with world.session() as session:
        return [session.tables.load(name).metadata_location for name in world.landing.tables]


COMMANDS = [
    ("LC1335", ("backfill", "SPEC", "--range", RANGE)),
    ("LC1335", ("backfill", "SPEC", "--since", "2020-01-01")),
    ("LC1335", ("reset", "offsets", "SPEC", "--from", "latest", "--fill", "hole", "--yes")),
    ("LC1334", ("backfill", "SPEC", "--range", RANGE, "--replace", "--yes")),
    ("LC1334", ("reset", "offsets", "SPEC", "--from", f"{TOPIC}:0=1", "--delete", "--yes")),
    ("LC1334", ("reset", "hard", "SPEC", "--yes")),
    ("LC1334", ("dead-letters", "SPEC", "--replay")),
]
OPERATIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("LC1335", "reset offsets", {"start": "latest", "fill": "hole"}),
    ("LC1334", "reset offsets", {"start": f"{TOPIC}:0=1", "delete": True}),
    ("LC1334", "reset hard", {}),
    ("LC1334", "dead-letters", {}),
]


def test_commands_and_tasks_that_cannot_work_are_refused_and_change_nothing(
    world: MemoryWorld, commands: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = head(world)
    for code, words in COMMANDS:
        found = commands.run(*words)
        assert (words, found.code, found.results[-1]["error"]["code"]) == (words, 2, code)
    monkeypatch.setattr(LandingOperationOperator, "session", lambda _: world.session())
    context: Any = {"ti": SimpleNamespace(dag_id="repairs", run_id="manual__1")}
    for code, operation, arguments in OPERATIONS:
        task = LandingOperationOperator(task_id="t", landing=world.landing, operation=operation, arguments=arguments)
        with pytest.raises(Exception, match=code):
            task.execute(context)
    monkeypatch.setattr(KafkaToIcebergOperator, "session", lambda _: world.session())
    kinds: list[tuple[str, type[BackfillOperator]]] = [("LC1335", BackfillOperator), ("LC1334", ReplayOperator)]
    for code, kind in kinds:
        ranged = kind(task_id="t", landing=world.landing, ranges=RANGE)
        with pytest.raises(SpecError, match=code), ranged.session():
            raise AssertionError("the range is opened")
    assert head(world) == before


@pytest.mark.heavy(but=("soft",))
@pytest.mark.parametrize("deletes", ["soft", "ignore"])
def test_what_records_deletes_leaves_a_hole_to_a_backfill(tmp_path: Path, deletes: str) -> None:
    with memory_world(tmp_path, **OPTIONS, upsert_deletes=deletes) as world:
        world.send(record(1, "a"), record(2, "a"), record(3, "a"))
        world.broker.produce(TOPIC, [record(1, "b"), record(2, None), record(4, "a")], 0)
        spec = {**world.landing.to_flat(), "kafka": dict(world.kafka), "catalog": dict(world.catalog)}
        with console(tmp_path / "spec.json", spec) as commands:
            assert commands.run("reset", "offsets", "SPEC", "--from", "latest", "--fill", "hole", "--yes").done
            # What comes first is newer than what the hole has.
            world.send(record(4, "c"), record(5, "a"))
            assert commands.run("backfill", "SPEC", "--name", "hole").done
        live = [row[:2] for row in world.found("id", "name", "_is_deleted") if not row[2]]
        rest = [] if deletes == "soft" else [(2, "a")]
        assert live == [(1, "b"), *rest, (3, "a"), (4, "c"), (5, "a")]


# -- reading again ----------------------------------------------------------------------------------------------------


def older(answer: Answer) -> list[str] | None:
    """Return the partitions whose keys may keep older states, None if no row shows any; of the data table."""
    data, dead = answer.results[0]["tables"]
    assert dead["older"] is None
    found: list[str] | None = data["older"]
    return found


def test_a_preview_reports_that_rows_get_older_and_which_keys_may_stay_so(
    world: MemoryWorld, commands: Console
) -> None:
    one = commands.run("reset", "offsets", "SPEC", "--from", f"{TOPIC}:0=0", "--again")
    assert one.code == 3, "nothing is done"
    assert older(one) == [f"{TOPIC}[1]"]
    every = commands.run("reset", "offsets", "SPEC", "--from", "earliest", "--again")
    assert older(every) == []
    assert older(commands.run("reset", "offsets", "SPEC", "--from", "earliest")) is None
    with world.session() as session:
        for start, lines in ({(TOPIC, 0): 0}, 2), ("earliest", 1):
            preview = [*init_preview(session, start, Way(again=True)).lines()]
            assert sum("OLDER" in line or f"{TOPIC}[1] may STAY so" in line for line in preview) == lines


@pytest.mark.heavy
def test_a_landing_that_appends_is_not_warned_of_older_rows(tmp_path: Path) -> None:
    with memory_world(tmp_path, create={"schema": COLUMNS[:2]}) as world:
        world.send(("1", '{"id": 1}'))
        spec = {**world.landing.to_flat(), "kafka": dict(world.kafka), "catalog": dict(world.catalog)}
        with console(tmp_path / "spec.json", spec) as commands:
            assert older(commands.run("reset", "offsets", "SPEC", "--from", "earliest", "--again")) is None


@pytest.mark.heavy(but=("2",))
@pytest.mark.parametrize("records", [1, 2, 100])
def test_what_is_read_again_ends_with_the_newest_changes(world: MemoryWorld, commands: Console, records: int) -> None:
    """In windows of any size; a delete that is read again removes what came back before it."""
    expected = world.found("id", "name")
    assert expected == [(1, "b"), (11, "a"), (12, "a")]
    assert commands.run("reset", "offsets", "SPEC", "--from", "earliest", "--again", "--yes").done
    world.landing = changed_landing(world.landing, max_records=records)
    world.settle(limit=12)
    assert world.found("id", "name") == expected


def test_a_backfill_of_older_records_does_not_win_when_rows_get_keys(tmp_path: Path) -> None:
    log = {**OPTIONS, "columns": {"metadata": True}, "upsert_key": []}
    with memory_world(tmp_path, **log) as world:
        world.send(record(0, "a"))
        world.broker.produce(TOPIC, [record(1, "a"), record(2, "a"), record(1, "b")], 0)
        spec = {**world.landing.to_flat(), "kafka": dict(world.kafka), "catalog": dict(world.catalog)}
        with console(tmp_path / "spec.json", spec) as commands:
            assert commands.run("reset", "offsets", "SPEC", "--from", "latest", "--fill", "hole", "--yes").done
            world.send(record(1, "c"), record(3, "a"))
            assert commands.run("backfill", "SPEC", "--name", "hole").done
        assert len(world.found("id")) == 6
        keyed = {**changed_landing(world.landing, upsert_key=["id"]).to_flat()}
        spec = {**keyed, "kafka": dict(world.kafka), "catalog": dict(world.catalog)}
        with console(tmp_path / "keyed.json", spec) as commands:
            assert commands.run("reset", "key", "SPEC", "--yes").done
        assert [row[:2] for row in world.found("id", "name")] == [(0, "a"), (1, "c"), (2, "a"), (3, "a")]


def test_a_table_keeps_its_key_while_its_offsets_are_to_be_read_again(tmp_path: Path) -> None:
    """Its rows are there: read by another rule, they would be in the table next to those of the same records."""
    columns = [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}]
    upsert = {"upsert_key": ["id"], "upsert_deletes": "ignore"}
    with memory_world(tmp_path, create={"schema": columns}, **upsert) as world:
        world.send(*((None, json.dumps({"id": n % 2, "name": f"n{n}"})) for n in range(4)))
        with world.session() as session:
            ledger_init(session, "earliest", Way(again=True))
        keyed = world.landing
        world.landing = keyed.changed(upsert={"key": (), "deletes": "hard"})
        with pytest.raises(LedgerError, match="LC3055"):
            world.run()
        world.landing = keyed
        world.settle()
        assert sorted(row["name"] for row in world.rows()) == ["n2", "n3"]
