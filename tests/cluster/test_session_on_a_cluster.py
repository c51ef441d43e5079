# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land` whose tasks run on a real cluster, and what is killed of it meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

from dev.servers.standalone import StandaloneCluster
from tests.cluster.backlog import SLICES, TOTAL, Backlog
from tests.support.cli import run
from tests.support.cluster_gate import ClusterGate
from tests.support.declared import nested
from tests.support.waiting import until

pytestmark = pytest.mark.cluster

Make = Callable[..., Backlog]


def test_a_backlog_lands_by_the_workers_of_a_cluster(
    cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make
) -> None:
    backlog = make_backlog({"master": cluster.url})
    gate.open()
    answer = backlog.land()
    assert answer.code == 0, answer.err
    assert answer.value["rows"] == TOTAL
    assert set(gate.begun.values()) == {1}
    assert len(gate.begun) == SLICES
    assert len({note.pid for note in gate.notes}) == 2, "not both workers had work"
    assert all(".zip/" in note.package for note in gate.notes), "the package is not the one that was sent"
    backlog.check()


def test_a_backlog_lands_with_the_libraries_of_an_archive(
    cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make, archive_conf: dict[str, str]
) -> None:
    backlog = make_backlog({"master": cluster.url, "conf": archive_conf})
    gate.open()
    answer = backlog.land()
    assert answer.code == 0, answer.err
    assert len(gate.begun) == SLICES
    assert all(note.from_archive for note in gate.notes)
    backlog.check()


def test_the_doctor_finds_a_cluster_that_has_the_package_only_as_it_is_sent_in_order(
    cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make, archive_conf: dict[str, str]
) -> None:
    backlog = make_backlog({"master": cluster.url, "conf": archive_conf})
    answer = run("doctor", str(backlog.spec))
    assert "a task ran on" in answer.out
    assert not [
        line for line in answer.out.splitlines() if line.startswith(("FAIL", "warn")) and "executor lib" in line
    ]


@pytest.fixture(params=["executor", "worker"])
def kill(request: pytest.FixtureRequest, cluster: StandaloneCluster) -> Callable[[], None]:
    """Of one worker its executor, or all of it, as when its machine is missing."""
    victim = cluster.workers[0]
    return {"executor": lambda: victim.kill_executors() or pytest.fail("no executor"), "worker": victim.kill}[
        request.param
    ]


def test_the_death_of_an_executor_or_a_worker_costs_the_slice_in_its_hands(
    cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make, kill: Callable[[], None]
) -> None:
    backlog = make_backlog({"master": cluster.url})
    with backlog.landing() as landing:
        held = gate.hold_after_first()
        kill()
        until(lambda: gate.dead(held) != set(), what="the death of a task")
        dead = gate.dead(held)
        assert len(dead) == 1
        gate.open()
        answer = landing.end()
    assert answer.code == 0, answer.err
    assert gate.again == dead
    assert max(gate.begun.values()) <= 2
    backlog.check()


@pytest.mark.parametrize("field", ["replicas", "speculation"])
def test_a_task_that_hangs_holds_up_no_window_whose_slices_are_done_a_second_time(
    cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make, field: str
) -> None:
    backlog = make_backlog({"master": cluster.url})
    backlog.spec.write_text(json.dumps(nested(**{**backlog.values, field: 2})))
    with backlog.landing() as landing:
        held = gate.hold_after_first()
        hangs = next(note for note in gate.notes if note.first in held)
        os.kill(hangs.pid, signal.SIGSTOP)
        try:
            gate.open()
            answer = landing.end(timeout=180)
        finally:
            # Its executor may have ended it.
            with suppress(ProcessLookupError):
                os.kill(hangs.pid, signal.SIGKILL)
    assert answer.code == 0, answer.err
    assert "abandoned replica" in answer.err
    assert hangs.first in gate.again
    backlog.check()


def test_a_worker_that_leaves_in_order_finishes_what_it_has_in_hand(
    cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make
) -> None:
    backlog = make_backlog({"master": cluster.url, "conf": {"spark.decommission.enabled": "true"}})
    leaving = cluster.workers[0]
    with backlog.landing() as landing:
        gate.await_begun(2)
        leaving.decommission()
        until(lambda: cluster.alive == 1, what="a worker that the master gives nothing to any more")
        gate.open()
        answer = landing.end()
    leaving.stop()
    assert answer.code == 0, answer.err
    assert gate.again == set()
    backlog.check()


def test_without_its_master_a_cluster_goes_on_with_what_it_has_in_hand(
    cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make
) -> None:
    backlog = make_backlog({"master": cluster.url})
    with backlog.landing() as landing:
        gate.await_begun(2)
        cluster.master.kill()
        gate.open()
        answer = landing.end()
    assert answer.code == 0, answer.err
    assert (gate.again, len(gate.begun)) == (set(), SLICES)
    backlog.check()


@pytest.mark.parametrize("dies", ["process", "driver"])
def test_the_death_of_the_driver_costs_the_slices_in_hand(
    cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make, dies: str
) -> None:
    """The process that runs the driver, or the driver's Java alone, of which the process has another one made."""
    backlog = make_backlog({"master": cluster.url})
    with backlog.landing() as landing:
        held = gate.hold_after_first()
        if dies == "process":
            landing.kill()
        else:
            landing.kill_children("org.apache.spark.deploy.SparkSubmit")
        until(lambda: gate.dead(held) == held, what="the end of its tasks")
        gate.open()
        answer = landing.end()
    assert answer.code == (-9 if dies == "process" else 0), answer.err
    if dies == "process":
        answer = backlog.land()
        assert answer.code == 0, answer.err
    assert gate.again == held
    backlog.check()
