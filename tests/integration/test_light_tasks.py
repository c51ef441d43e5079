# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a running landing load: a plan and a commit live for a second, and loading Arrow takes another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.declared import changed_landing
from tests.support.world import World, records

pytestmark = [pytest.mark.integration]

PROGRAM = """
import json, sys
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.landing import Landing

given = json.loads(sys.argv[1])
run = RunIdentity(deployment="test", dag_id="test", run_id=given["run"])
landing = Landing.from_flat(given["landing"])
with LandingSession.connect(landing, given["kafka"], given["catalog"], log=lambda _: None) as session:
    opened = open_cycle(session, run)
    planned = set(sys.modules)
    if given["close"]:
        close_cycle(session, run, opened.ticket)
heavy = ("pyarrow", "pandas", "pyspark")
print(json.dumps([len(opened.slices), [m for m in heavy if m in planned], [m for m in heavy if m in sys.modules]]))
"""


def loaded(world: World, run: str, *, close: bool) -> tuple[int, list[str], list[str]]:
    """Slices that a plan in a process of its own makes, and the heavy modules after it and after the commit."""
    given = {
        "landing": world.landing.to_flat(),
        "kafka": dict(world.kafka),
        "catalog": dict(world.catalog),
        "run": run,
        "close": close,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(given)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    slices, planned, closed = json.loads(done.stdout.splitlines()[-1])
    return slices, planned, closed


@pytest.fixture
def world(make_world: Callable[..., World], produce: Callable[..., object]) -> World:
    made = make_world(partitions=1)
    produce(made.landing.topics, records(0, 50))
    return made


@pytest.mark.heavy
def test_plan_and_commit_of_a_table_in_use_load_neither_arrow_nor_pandas(
    world: World, produce: Callable[..., object]
) -> None:
    world.run()
    produce(world.landing.topics, records(50, 50))
    slices, planned, _ = loaded(world, "second", close=False)
    assert slices
    assert planned == []
    opened = world.open("second", retry=True)
    world.write(opened)
    _, _, closed = loaded(world, "second", close=True)
    assert closed == []
    world.settle()
    assert len(world.rows()) == 100


@pytest.mark.heavy
def test_what_no_finished_slice_has_printed_is_checked_before_anything_is_read(world: World) -> None:
    _, planned, _ = loaded(world, "first", close=False)
    assert "pyarrow" in planned
    world.run()
    changed = replace(world, landing=changed_landing(world.landing, unknown_fields="dead_letter"))
    _, planned, _ = loaded(changed, "changed", close=False)
    assert "pyarrow" in planned, "another spec may decode otherwise"
