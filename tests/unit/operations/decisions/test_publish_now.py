# SPDX-License-Identifier: Apache-2.0
"""A user does not wait for windows: what is under way ends, and what is reported is published, by whom ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from airflow_provider_lakecommit.core.log import EndRequested
from airflow_provider_lakecommit.exceptions import CatalogError, LedgerError, TableError
from airflow_provider_lakecommit.operations.decisions import publish_now as module
from airflow_provider_lakecommit.operations.decisions.publish_now import publish_now
from tests.fakes.session import FakeLanding

SECONDS = 30.0


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)


def now(landing: FakeLanding, wait: float = 0.0) -> dict[str, Any]:
    return publish_now(landing.session, landing.run_identity("person"), "Ada wants it now", wait=wait)


def test_where_nothing_is_under_way_nothing_is_requested(landing: FakeLanding) -> None:
    landing.cycle()
    done = now(landing)
    assert not done["asked"]
    assert not done["published"]
    assert landing.printed("no window is open, and no reported slice waits to be published")
    assert "EndRequested" not in landing.kinds()


def test_a_landing_that_never_ran_is_unknown(landing: FakeLanding) -> None:
    with pytest.raises(TableError, match="LC6013"):
        now(landing)
    landing.cycle()
    other = landing.connect(name="row")
    with pytest.raises(LedgerError, match="LC7023"):
        publish_now(other, landing.run_identity("person"), "Ada wants it now", wait=0.0)


def test_where_the_catalog_is_away_it_is_unknown_too(landing: FakeLanding) -> None:
    opened = landing.open("dead")
    landing.report(opened)
    landing.catalog.away = True
    with pytest.raises(CatalogError):
        now(landing)


def test_what_a_dead_run_has_reported_is_published_here(landing: FakeLanding) -> None:
    opened = landing.open("dead")
    landing.report(opened, lambda s: s is opened.slices[0])
    done = now(landing)
    assert done["asked"] == [str(opened.ticket.commit_id)]
    assert not done["closed"]
    assert sum(p["rows"] for p in done["published"]) == 10
    assert sum(map(len, landing.open("next").slices)) == 20, "its claim has ended"


def test_slices_behind_missing_offsets_are_named(landing: FakeLanding) -> None:
    opened = landing.open("dead")
    landing.report(opened, lambda s: s is opened.slices[2])
    now(landing)
    done = now(landing)
    assert done["published"] == []
    (waiting,) = done["waiting"]
    assert "orders[0] [10, 20)" in waiting
    assert not landing.printed("no reported slice waits")


def test_a_run_that_lives_publishes_its_window_itself(landing: FakeLanding) -> None:
    opened = landing.open("alive")
    landing.report(opened, lambda s: s is opened.slices[0])

    def close_on_request() -> None:
        while not any(isinstance(e, EndRequested) for e in landing.session.read_state(()).entries):
            threading.Event().wait(0.01)
        landing.close("alive", opened)

    run = threading.Thread(target=close_on_request, daemon=True)
    run.start()
    done = now(landing, wait=SECONDS)
    run.join(SECONDS)
    assert done["closed"] == [str(opened.ticket.commit_id)]
    assert not done["published"]


def test_asking_twice_requests_once(landing: FakeLanding) -> None:
    landing.open("dead")
    now(landing)
    now(landing)
    assert landing.kinds().count("EndRequested") == 1
