# SPDX-License-Identifier: Apache-2.0
"""All landings of a set in one process: the exit code, and how the process stops."""

from __future__ import annotations

import io
import json
import signal
from contextlib import nullcontext
from typing import Any

import pytest

from airflow_provider_lakecommit.cli.runs import land_set as module
from airflow_provider_lakecommit.cli.runs import set_landings
from airflow_provider_lakecommit.cli.runs.land_set import land_set, report_ends
from airflow_provider_lakecommit.cli.runs.set_landings import Landings
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.cli.terminal.stop import Signals
from airflow_provider_lakecommit.cycle.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.cycle.sets.expansion import Expansion
from airflow_provider_lakecommit.exceptions import CatalogError, SpecError
from airflow_provider_lakecommit.landing import Landing, LandingSet, LandingSetSpec, LandingSpec


def spec(name: str) -> LandingSpec:
    landing = Landing(name=name, topics=name, table=f"shop.{name}")
    return LandingSpec(landing=landing, kafka={}, catalog={}, spark={})


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ({"a": 0, "b": 0}, Exit.DONE),
        ({"a": 0, "b": Exit.REFUSED}, Exit.REFUSED),
        ({"a": 0, "b": CatalogError("LC9999", "away")}, Exit.REFUSED),
        ({"a": 0, "b": RuntimeError("nobody foresaw it")}, Exit.REFUSED),
        ({"a": 0, "b": SpecError("LC9999", "wrong")}, Exit.USAGE),
    ],
)
def test_the_code_reports_the_worst_and_the_lines_report_whose_it_is(
    ended: dict[str, int | BaseException], code: int
) -> None:
    out, err = io.StringIO(), io.StringIO()
    assert report_ends(ended, Output(as_json=True, out=out, err=err)) == code
    failed = [name for name, each in ended.items() if isinstance(each, BaseException)]
    assert [json.loads(line)["landing"] for line in out.getvalue().splitlines()] == failed
    last = err.getvalue().splitlines()[-1]
    assert last.startswith(f"{1 + (code == Exit.DONE)} of 2 landings succeeded")
    assert all(name in last for name in failed)


class _Runner:
    """In place of a lander: whether it was reported to stop."""

    def __init__(self, *_: object, **__: object) -> None:
        self.suspended = False

    def stop(self, *, grace: float) -> None:
        self.suspended = grace > 0


@pytest.mark.parametrize("stopped", [False, True])
def test_a_landing_that_begins_when_the_call_was_instructed_to_stop_is_reported_and_starts_no_spark(
    monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    def cycles(runner: _Runner, *_: object) -> int:
        return int(runner.suspended)

    monkeypatch.setattr(set_landings, "LandingRunner", _Runner)
    monkeypatch.setattr(set_landings, "land_cycles", cycles)
    session: Any = nullcontext()
    with ConcurrentLandings() as concurrent:
        landings = Landings(concurrent=concurrent, output=Output(), cycles=None, shared=None)
        if stopped:
            landings.stop()
        assert landings.land(spec("a"), lambda *_: session) == stopped


class _Lost(Signals):
    """SIGTERM came, and its exception was lost."""

    def __init__(self) -> None:
        super().__init__()
        self._reported = signal.SIGTERM


class _Round:
    """In place of a set's rounds: nothing is landed."""

    def __init__(self, *given: Any) -> None:
        self._check = given[-1]

    def land(self, *_: object) -> dict[str, int]:
        self._check()
        return {}

    def close(self) -> None:
        """It has nothing open."""


def test_a_call_that_was_instructed_to_stop_and_did_not_hear_it_ends_as_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    err = io.StringIO()
    monkeypatch.setattr(module, "Signals", _Lost)
    monkeypatch.setattr(module, "found_landings", lambda *_: Expansion(landings=()))
    monkeypatch.setattr(module, "SetRounds", _Round)
    declared = LandingSet(name="shop", topics_pattern=".*", table="lake.{topic}")
    given = LandingSetSpec(landing_set=declared, kafka={}, catalog={"type": "sql", "uri": "sqlite://"}, spark={})
    assert land_set(given, Output(err=err), cycles=None) == 128 + signal.SIGTERM
    assert err.getvalue() == "stopped by SIGTERM\n"
