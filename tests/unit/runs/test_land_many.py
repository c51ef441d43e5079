# SPDX-License-Identifier: Apache-2.0
"""Several specs in one call: which there are, which go together, and what the call comes to."""

from __future__ import annotations

import io
import json
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.cli.main import main
from airflow_provider_lakecommit.engines.local import LocalSpark, SparkSection
from airflow_provider_lakecommit.exceptions import CatalogError, SparkJobError, SpecError
from airflow_provider_lakecommit.landing import Landing, LandingSpec
from airflow_provider_lakecommit.many.shared_spark import SharedSpark
from airflow_provider_lakecommit.runs import land_many as module
from airflow_provider_lakecommit.runs.land_many import land_many, load_all, report_ends
from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.terminal.output import Exit, Output
from airflow_provider_lakecommit.terminal.stop import Signals


def spec(name: str, spark: dict[str, Any] | None = None) -> LandingSpec:
    landing = Landing(name=name, topics=name, table=f"shop.{name}")
    return LandingSpec(landing=landing, kafka={}, catalog={}, spark=spark or {})


def load(path: str) -> LandingSpec:
    if path == "wrong.yaml":
        raise SpecError("unknown key 'topic'")
    return spec(Path(path).stem.partition("-")[0])


def test_a_spec_that_is_wrong_is_kept_apart() -> None:
    specs, wrong = load_all(["a.yaml", "wrong.yaml", "b.yaml"], load)
    assert list(specs) == ["a", "b"]
    assert list(wrong) == ["wrong.yaml"]


def test_two_specs_of_one_landing_do_not_go_together() -> None:
    with pytest.raises(SpecError, match=r"a-1\.yaml and a-2\.yaml are both of landing a"):
        load_all(["a-1.yaml", "a-2.yaml"], load)


def test_two_local_sessions_do_not_go_together() -> None:
    specs = {"a": spec("a", spark={"master": "local[1]"}), "b": spec("b", spark={"master": "local[2]"})}
    with pytest.raises(SpecError, match="the sections 'spark' of these specs differ"):
        land_many(specs, {}, Output(), cycles=None)


@pytest.mark.parametrize(
    ("ended", "wrong", "code"),
    [
        ({"a": 0, "b": 0}, {}, Exit.DONE),
        ({"a": 0, "b": Exit.REFUSED}, {}, Exit.REFUSED),
        ({"a": 0, "b": CatalogError("away")}, {}, Exit.REFUSED),
        ({"a": 0, "b": RuntimeError("nobody foresaw it")}, {}, Exit.REFUSED),
        ({"a": 0, "b": SpecError("wrong")}, {}, Exit.USAGE),
        ({"a": 0}, {"b.yaml": SpecError("wrong")}, Exit.USAGE),
    ],
)
def test_the_code_tells_the_worst_and_the_lines_tell_whose_it_is(
    ended: dict[str, int | BaseException], wrong: dict[str, SpecError], code: int
) -> None:
    out, err = io.StringIO(), io.StringIO()
    assert report_ends(ended, wrong, Output(as_json=True, out=out, err=err)) == code
    failed = [name for name, each in {**wrong, **ended}.items() if isinstance(each, BaseException)]
    assert [json.loads(line)["landing"] for line in out.getvalue().splitlines()] == failed
    last = err.getvalue().splitlines()[-1]
    assert last.startswith(f"{1 + (code == Exit.DONE)} of 2 landings did what was asked")
    assert all(name in last for name in failed)


class _Told:
    """In place of a lander: whether it was told to stop."""

    def __init__(self, *_: object, **__: object) -> None:
        self.told = False

    def stop(self, *, grace: float) -> None:
        self.told = grace > 0


@pytest.mark.parametrize("stopped", [False, True])
def test_a_landing_that_begins_when_the_call_was_told_to_stop_is_told_so_and_starts_no_spark(
    monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    def cycles(runner: _Told, *_: object) -> int:
        return int(runner.told)

    monkeypatch.setattr(module, "runner_of", _Told)
    monkeypatch.setattr(module, "land_cycles", cycles)
    monkeypatch.setattr(LandingSession, "connect", lambda *_, **__: nullcontext())
    with ConcurrentLandings() as concurrent:
        landings = module.Landings(concurrent=concurrent, output=Output(), cycles=None, unique=uuid4())
        if stopped:
            landings.stop()
        assert landings.land(spec("a")) == stopped


class _Lost(Signals):
    """SIGTERM came, and its exception was lost."""

    def __init__(self) -> None:
        super().__init__()
        self._told = signal.SIGTERM


def test_a_call_that_was_told_to_stop_and_did_not_hear_it_ends_as_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    err = io.StringIO()
    monkeypatch.setattr(module, "Signals", _Lost)
    monkeypatch.setattr(module.Landings, "land", lambda *_: 0)
    assert land_many({"a": spec("a")}, {}, Output(err=err), cycles=None) == 128 + signal.SIGTERM
    assert err.getvalue() == "told to stop by SIGTERM\n"


def test_nothing_begins_in_a_shared_session_after_it_was_told_to_stop() -> None:
    shared = SharedSpark(LocalSpark(SparkSection({}), log=print, on_start=lambda: None))
    shared.stop()
    with pytest.raises(SparkJobError, match="told to stop"):
        shared.start()


def test_a_folder_stands_for_the_specs_in_it_and_one_without_any_is_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["land", str(tmp_path)]) == Exit.USAGE
    assert "there is no spec" in capfd.readouterr().err
    for name in ("b.yaml", "a.yml", "notes.txt"):
        (tmp_path / name).write_text("name: x\n")
    assert main(["land", str(tmp_path)]) == Exit.USAGE
    err = capfd.readouterr().err
    assert "a.yml" in err
    assert "b.yaml" in err
    assert "notes.txt" not in err
