# SPDX-License-Identifier: Apache-2.0
"""What `lakecommit history` reports a landing: from its table, and of runs where the control log is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StringType

from airflow_provider_lakecommit.cli import history as command
from airflow_provider_lakecommit.cli.runs.process import identity
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.model import SliceCost
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.formats.evolution.changes import Change
from airflow_provider_lakecommit.formats.evolution.schema_commit import EvolveRequest, evolve_table
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.status import landing_history
from tests.fakes.session import DATA, P0, P1, FakeLanding
from tests.support.declared import changed_landing

DECISION = Decision(command="a command", actor="ann", host="here", at="now", landing="rows", reason="an outage")
Run = Callable[..., str]


@pytest.fixture
def read_it(landing: FakeLanding, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """What the command prints."""

    @contextmanager
    def connect(*_: object, **__: object) -> Iterator[Any]:
        yield landing.session

    monkeypatch.setattr(command.LandingSession, "connect", connect)

    def run(*, as_json: bool = False) -> str:
        spec = LandingSpec(landing=landing.session.landing, kafka={}, catalog={}, spark={})
        assert command.history(spec, Output(as_json=as_json)) == Exit.DONE
        return capsys.readouterr().out

    return run


def grows(landing: FakeLanding, run: str) -> None:
    landing.source.ends = {p: end + 10 for p, end in landing.source.ends.items()}
    landing.cycle(run)


def test_a_table_in_which_nothing_landed_has_a_history_of_nothing(landing: FakeLanding, read_it: Run) -> None:
    landing.cycle("a")
    schema = landing.catalog.load_table(DATA).schema()
    landing.catalog.drop_table(DATA)
    landing.catalog.create_table(DATA, schema)
    assert f"{DATA}: 0 snapshots with rows" in read_it()


def test_windows_are_reported_the_newest_first_with_what_they_took_and_their_runs(
    landing: FakeLanding, read_it: Run
) -> None:
    landing.cost = SliceCost(read_seconds=1, decode_seconds=1, write_seconds=1, bytes=10)
    landing.cycle("a")
    grows(landing, "b")
    first, second = read_it().splitlines()[1:3]
    assert first.endswith("20 landed: 20 rows, 2 files, 2 slices in 3.0 s; dag run b")
    assert second.endswith("30 landed: 30 rows, 3 files, 3 slices in 3.0 s; dag run a")
    [table] = json.loads(read_it(as_json=True))["tables"]
    newest = table["windows"][0]
    assert (newest["offsets"], newest["run"], newest["seconds"]) == (
        {str(P0): [[20, 30]], str(P1): [[10, 20]]},
        "b",
        3.0,
    )


def test_of_a_run_of_the_command_line_the_host_is_reported(
    landing: FakeLanding, read_it: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = identity(UUID(int=1))
    monkeypatch.setattr(landing, "run_identity", lambda *_: mine)
    landing.cycle("a")
    line = read_it().splitlines()[1]
    assert line.endswith(f"; command line on {mine.run_id.split('|')[1]}")


def test_a_spec_that_changed_is_reported_with_what_was_changed(landing: FakeLanding, read_it: Run) -> None:
    landing.cycle("a")
    landing.session.landing = changed_landing(landing.session.landing, unknown_fields="dead_letter")
    grows(landing, "b")
    lines = [line.strip() for line in read_it().splitlines()]
    at = lines.index("2 spec versions")
    assert lines[at + 1].endswith('; unknown_fields: default -> "dead_letter"')
    assert lines[at + 2].endswith("the first known one")


def test_epochs_and_what_users_decided_are_reported(landing: FakeLanding, read_it: Run) -> None:
    landing.cycle("a")
    landing.source.ends = {P0: 40, P1: 10}
    ledger_init(landing.session, {("orders", 0): 30}, decision=DECISION)
    landing.cycle("b")
    lines = read_it().splitlines()
    assert sum(line.endswith(": a user set the ledger") for line in lines) == 1
    assert sum(line.endswith(": the landing joined the table") for line in lines) == 1
    assert f"    {replace(DECISION, what='gives up orders[0] [20, 30)')}" in lines
    assert "  1 decision of users" in lines


def test_the_table_alone_reports_it_where_the_control_topic_is_missing(
    landing: FakeLanding, read_it: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    landing.cycle("a")
    landing.control.away = ControlTopicError("LC9999", "there is no topic control")
    shown = read_it()
    assert "30 landed: 30 rows, 3 files, 3 slices" in shown
    assert "run a" not in shown


def test_of_each_kind_so_many_are_reported_at_most(
    landing: FakeLanding, read_it: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing_history, "MOST", 2)
    for run in "abc":
        grows(landing, run)
    [table] = json.loads(read_it(as_json=True))["tables"]
    assert [w["run"] for w in table["windows"]] == ["c", "b"]
    monkeypatch.setattr(landing_history, "MOST_SNAPSHOTS", 1)
    [table] = json.loads(read_it(as_json=True))["tables"]
    assert len(table["windows"]) == 1
    assert table["epochs"][0]["why"] == "older snapshots were expired"


def test_a_snapshot_that_cannot_be_read_is_named(
    landing: FakeLanding, read_it: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.cycle("a")
    metadata = landing.session.tables.load(DATA).metadata
    broken = metadata.snapshots[0].model_copy(deep=True)
    assert broken.summary is not None
    broken.summary.additional_properties["lakecommit.slices"] = "many"
    spoilt = metadata.model_copy(update={"snapshots": [broken, *metadata.snapshots[1:]]})
    found = landing_history.table_history(DATA, spoilt, "main", "rows", {})
    assert len(found["windows"]) == 1
    (gap,) = found["unreadable"]
    assert str(broken.snapshot_id) in gap


def test_changes_of_columns_are_reported_with_their_reason(landing: FakeLanding, read_it: Run) -> None:
    landing.cycle("a")
    assert "of columns" not in read_it()
    change = Change(path=("extra",), kind=StringType())

    def lacking(metadata: TableMetadata) -> tuple[Change, ...]:
        return () if "extra" in metadata.schema().column_names else (change,)

    request = EvolveRequest(
        table=DATA, landing="rows", lane="live", branch="main", changes=lacking, reason="by 5 records"
    )
    assert evolve_table(landing.session.tables, request) == (change,)
    grows(landing, "b")
    lines = read_it().splitlines()
    assert "  1 change of columns" in lines
    assert any(line.endswith(" schema 1: add extra string (by 5 records)") for line in lines)
    (found,) = json.loads(read_it(as_json=True))["tables"][0]["columns"]
    assert (found["schema_id"], found["changes"], found["reason"]) == (1, ["add extra string"], "by 5 records")
