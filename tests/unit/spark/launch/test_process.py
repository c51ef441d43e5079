# SPDX-License-Identifier: Apache-2.0
"""A process is called dead only when that is certain."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import psutil
import pytest

from airflow_provider_lakecommit.cli.runs.process import identity, is_dead
from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.spark.launch.process import CLI, ProcessName, lives, started

RUN = UUID(int=7)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends when its standard input does."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def name_of(pid: int) -> ProcessName:
    return replace(ProcessName.own(), pid=pid, start=started(pid) or "")


def cycle_of(name: ProcessName, dag: str = CLI) -> Cycle:
    return Cycle(commit_id=uuid4(), dag=dag, run=f"{CLI}|{name}|{RUN}", number=0, slot=0)


def test_the_own_process_lives_and_its_cycles_are_not_dead() -> None:
    run_identity = identity(RUN, 3)
    assert not is_dead(
        Cycle(commit_id=uuid4(), dag=run_identity.dag_id, run=run_identity.run_id, number=run_identity.number, slot=0)
    )
    assert run_identity.number == 3


def test_runs_of_one_process_have_different_names() -> None:
    assert identity(uuid4()).run_id != identity(uuid4()).run_id


def test_another_living_process_is_not_dead(child: subprocess.Popen[bytes]) -> None:
    assert not is_dead(cycle_of(name_of(child.pid)))


def test_a_killed_process_is_dead_also_before_its_parent_has_waited_for_it(child: subprocess.Popen[bytes]) -> None:
    cycle = cycle_of(name_of(child.pid))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(cycle)
    child.wait()
    assert is_dead(cycle)


def test_a_process_id_that_was_given_again_is_another_process(child: subprocess.Popen[bytes]) -> None:
    assert is_dead(cycle_of(replace(name_of(child.pid), start="1")))
    assert not lives(child.pid, "1")


@pytest.mark.parametrize(
    ("changed", "dead"),
    [
        ({"host": "elsewhere"}, False),
        ({"boot": "an earlier one"}, True),
        ({"namespace": "pid:[1]"}, False),
        ({"host": "elsewhere", "boot": "an earlier one"}, False),
    ],
)
def test_of_another_host_only_an_earlier_boot_of_the_same_host_is_certain(changed: dict[str, str], dead: bool) -> None:
    ended = replace(ProcessName.own(), pid=2**22 + 1, start="1", **changed)
    assert is_dead(cycle_of(ended)) is dead


def test_cycles_of_dags_are_never_dead() -> None:
    ended = replace(ProcessName.own(), pid=2**22 + 1, start="1")
    assert is_dead(cycle_of(ended))
    assert not is_dead(cycle_of(ended, dag="land_orders"))


@pytest.mark.parametrize("run", ["", "cli", "cli|x", "manual__2026-01-01", "cli|a|b|c|pid|1|x", "cli|a|b|c|1|1"])
def test_a_run_that_is_not_named_so_is_not_dead(run: str) -> None:
    assert not is_dead(Cycle(commit_id=uuid4(), dag=CLI, run=run, number=0, slot=0))


def test_a_process_name_is_read_back() -> None:
    own = ProcessName.own()
    assert ProcessName.parse(str(own)) == own


def test_a_living_process_that_an_earlier_release_named_is_not_dead(child: subprocess.Popen[bytes]) -> None:
    """Its start was the 22nd field of /proc/<pid>/stat, and is."""
    ticks = Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    assert started(child.pid) == ticks
    assert not is_dead(cycle_of(replace(name_of(child.pid), start=ticks)))
    assert is_dead(cycle_of(replace(name_of(child.pid), start=str(int(ticks) - 2))))


def test_a_clock_that_is_set_makes_no_process_a_dead_one(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    cycle = cycle_of(name_of(child.pid))
    epoch = psutil.boot_time()
    shifts = iter([0.0, 7.0])

    class Shifted(psutil.Process):
        def create_time(self) -> float:
            return float(super().create_time()) + 7.0

    monkeypatch.setattr(psutil, "boot_time", lambda: epoch + next(shifts, 7.0))
    monkeypatch.setattr(psutil, "Process", Shifted)
    assert is_dead(cycle) is False


@pytest.mark.parametrize("start", ["Sun-Nov-22-17:52:40-2026", ""])
def test_a_start_that_cannot_be_compared_is_no_certainty(child: subprocess.Popen[bytes], start: str) -> None:
    cycle = cycle_of(replace(name_of(child.pid), start=start))
    assert not is_dead(cycle)
    child.kill()
    child.wait()
    assert is_dead(cycle)
