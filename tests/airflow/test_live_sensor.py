# SPDX-License-Identifier: Apache-2.0
"""The sensor in a live Airflow with a triggerer: skip, fail and wait, with the states that its grid shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dev.airflow_stack import WITH_TRIGGERER
from tests.airflow.live import RUN_SECONDS, Live, live_airflow, until
from tests.support.coordinator import Coordinator, write_guard

pytestmark = [pytest.mark.airflow, pytest.mark.airflow_long, pytest.mark.integration]


@pytest.fixture(scope="module")
def live(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_airflow(tmp_path_factory.mktemp("live-sensor"), bootstrap, WITH_TRIGGERER) as running:
        yield running


def guards(live: Live, name: str, connector: Coordinator, **options: object) -> None:
    known = {"control_topic": connector.topic, "control_group_id": connector.group}
    write_guard(live.folder, name, **{**known, **options})
    live.client.await_dag(name, RUN_SECONDS)


def test_a_stall_skips_fails_and_is_waited_for(live: Live, bootstrap: str, make_topic: Callable[..., str]) -> None:
    connector = Coordinator(bootstrap, make_topic(2))
    last = connector.stall()
    ways = ("skip", "fail", "wait")
    for on_stall in ways:
        guards(live, f"guard_{on_stall}", connector, on_stall=on_stall)
    for on_stall in ways:
        live.client.trigger(f"guard_{on_stall}", "stalled")

    assert live.ended("guard_skip", "stalled") == ("success", {"guard": "skipped", "work": "skipped"})
    assert live.ended("guard_fail", "stalled") == ("failed", {"guard": "failed", "work": "upstream_failed"})
    live.await_state("guard_wait", "stalled", "guard", "deferred")
    assert "STALLED: 3 cycles in a row began and did not complete; cleared by a COMMIT_COMPLETE" in _log(live, "wait")

    connector.complete(last)
    assert live.ended("guard_wait", "stalled") == ("success", {"guard": "success", "work": "success"})
    until("the trigger's word", lambda: "Trigger fired event" in _log(live, "wait"))
    assert live.run("guard_skip", "recovered") == ("success", {"guard": "success", "work": "success"})


def test_a_wait_ends_at_its_timeout(live: Live, bootstrap: str, make_topic: Callable[..., str]) -> None:
    connector = Coordinator(bootstrap, make_topic(1))
    connector.stall()
    guards(live, "guard_timeout", connector, on_stall="wait", timeout=3.0, retries=2)
    assert live.run("guard_timeout", "late") == ("failed", {"guard": "failed", "work": "upstream_failed"})


def _log(live: Live, on_stall: str) -> str:
    found = (live.airflow.home / "logs").glob(f"dag_id=guard_{on_stall}/run_id=stalled/task_id=guard/**/*.log*")
    return "\n".join(path.read_text(errors="replace") for path in sorted(found))
