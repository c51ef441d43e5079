# SPDX-License-Identifier: Apache-2.0
"""A walk over the page in Chromium while a real landing runs, rejects records, loses its catalog and gets it back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from dev import page
from dev.airflow_stack import WITH_TRIGGERER
from dev.browser import Browser
from tests.airflow.live import Live, live_airflow, until
from tests.airflow.test_page_seen import FRAME, open_entry, shot
from tests.fixtures.kafka import create_topic, unique
from tests.support import waiting
from tests.support.coordinator import write_guard
from tests.support.narrator import Narrator
from tests.support.story import P0

pytestmark = [pytest.mark.airflow, pytest.mark.ui, pytest.mark.integration]

PATH, WALK, GUARD = "/af", "orders", "revenue"
SCRIPT = "<script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>"
HOSTILE = ("\u202emoc.live", "\x00\x07nul", b"\xff\xfe{", '{"id": "' + "x" * 4_000 + '"}', json.dumps({"id": SCRIPT}))
PAGE_SECONDS = 120.0


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    page.build()


@pytest.fixture(scope="module")
def live(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    more = {"AIRFLOW__LAKECOMMIT__CONTROL_TOPIC": unique("control"), "AIRFLOW__LAKECOMMIT__PAGE_ACTIONS": "True"}
    with live_airflow(tmp_path_factory.mktemp("live-walk"), bootstrap, WITH_TRIGGERER, more, PATH) as running:
        yield running


@pytest.fixture
def browser(live: Live) -> Iterator[Browser]:
    with Browser(1280, 1400) as found:
        found.set_cookie(live.airflow.url, "_token", live.client.token)
        yield found


class Catalog:
    """The file of the catalog's database, which is taken away and brought back."""

    def __init__(self, live: Live) -> None:
        self._file = live.folder.parent / "catalog.db"
        self._kept = self._file.with_suffix(".kept")

    def stop(self) -> None:
        self._file.rename(self._kept)
        # SQLite would make a new one.
        self._file.mkdir()

    def start(self) -> None:
        self._file.rmdir()
        self._kept.rename(self._file)


def fetch(live: Live, path: str) -> Any:
    login = {"Authorization": f"Bearer {live.client.token}"}
    answer = httpx.get(f"{live.airflow.url}/lakecommit/api/v1/landings{path}", headers=login, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def own_row(live: Live) -> Any:
    return next(r for r in fetch(live, "")["landings"] if r["name"] == WALK)


def serious(browser: Browser) -> list[tuple[str, str]]:
    browser.evaluate((page.SOURCE / "node_modules" / "axe-core" / "axe.min.js").read_text())
    found = json.loads(browser.evaluate("axe.run().then((r) => JSON.stringify(r.violations))"))
    return [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]


def values(*numbers: int) -> list[str]:
    return [json.dumps({"id": n, "note": f"order {n}"}) for n in numbers]


def test_a_walk(live: Live, bootstrap: str, browser: Browser, admin: AdminClient, produce: Callable[..., Any]) -> None:
    topic, catalog = unique("orders"), Catalog(live)
    create_topic(admin, topic, 2)
    produce(topic, [("k", v) for v in values(*range(50))], partition=0)
    produce(topic, [("k", v) for v in HOSTILE], partition=1, headers=[(SCRIPT, b"")])
    dead: dict[str, Any] = {"dead_letter_table": "shop.orders_dead", "dead_letter_max_ratio": 1.0}
    faults = live.armed(WALK, topic, **dead)
    assert live.run(WALK, "first")[0] == "success"
    waiting.until(lambda: own_row(live)["control_topic"], PAGE_SECONDS, "its cycles")
    own = own_row(live)
    for name, runs in (("clicks", 30), ("payments", 12)):
        other = Narrator({"bootstrap.servers": bootstrap}, own["control_topic"], name, "land", "another")
        for n in range(runs):
            other.lands(f"run-{n}", ((P0, 10 * n, 10 * n + 1 + n % 9),))

    browser.visit(f"{live.airflow.url}/plugin/lakecommits")
    browser.wait_for("3 ● HEALTHY")
    check_dead_letters(live, browser)
    see_a_stall_and_its_end(live, browser, faults, catalog, lambda n: produce(topic, values(n), partition=0))


def check_dead_letters(live: Live, browser: Browser) -> None:
    """Dead letters are counted by kind, their reasons are texts, and the page names the command that shows them."""
    browser.evaluate("window.loaded = 1")
    browser.evaluate(f"[...{FRAME}.querySelectorAll('a.entry')].find((a) => /^{WALK}/.test(a.innerText)).click()")
    browser.wait_for("Dead letters by kind")
    browser.evaluate(f"{FRAME}.querySelectorAll('details').forEach((d) => (d.open = true))")
    browser.wait_for("lakecommit dead-letters --dag orders --landing orders --values")
    browser.wait_for("max_pending_files")
    assert browser.evaluate(f"[window, {FRAME}.defaultView].every((w) => w.hostile === undefined)")
    row = own_row(live)
    assert row["budget"] == {"open_cycles": 16, "slices": 8000, "files": 100_000, "bytes": 1 << 40}
    assert sum(r["records"] for r in fetch(live, f"/{row['id']}")["rejects"]) == 5


def see_a_stall_and_its_end(
    live: Live, browser: Browser, faults: Any, catalog: Catalog, more: Callable[[int], object]
) -> None:
    """The catalog stops while a run is under way, until three commits failed, and comes again."""
    browser.evaluate(f"{FRAME}.querySelector('nav a').click()")
    browser.wait_for("HEALTHY")
    assert browser.evaluate(f"{FRAME}.activeElement.className") == "entry", "where it was before"
    more(100)
    faults.hold("commit.before")
    live.client.trigger(WALK, "cut")
    until("its commit", lambda: live.states(WALK, "cut").get("commit") == "running")
    catalog.stop()
    faults.let_go("commit.before")
    until("the end of its commit", lambda: live.states(WALK, "cut").get("commit") == "failed")
    started = time.monotonic()
    browser.wait_for("SLOWING")
    browser.wait_for("catalog lake")
    assert time.monotonic() - started < 20, "within one cycle"
    for n, run in enumerate(("second", "third")):
        more(101 + n)
        assert live.run(WALK, run)[0] == "failed"
    browser.wait_for("STALLED")
    write_guard(live.folder, GUARD, landing=WALK, on_stall="wait")
    live.client.await_dag(GUARD, 600)
    live.client.trigger(GUARD, "held")
    live.await_state(GUARD, "held", "guard", "deferred")
    browser.wait_for("1 sensor waiting")
    browser.resize(1280, 560)
    shot(browser, "walk-stalled")
    at_every_size(live, browser)

    browser.wait_for("1 sensor waiting")
    browser.evaluate("window.loaded = 2")
    catalog.start()
    more(200)
    assert live.run(WALK, "mended")[0] == "success"
    browser.wait_for("3 ● HEALTHY")
    live.await_state(GUARD, "held", "guard", "success")
    assert "STALLED" not in browser.text()
    assert browser.evaluate("window.loaded") == 2, "nobody loaded the page again"
    assert live.run(WALK, "next")[0] == "success", "the one before published what waited, and planned nothing"
    assert live.lake.ids(f"shop.{WALK}") == [*range(50), 100, 101, 102, 200]


def at_every_size(live: Live, browser: Browser) -> None:
    """The page of the stalled landing by itself: small and large, light and dark, in another time zone."""
    for zone, expected in (("Asia/Tokyo", "GMT+9"), ("America/New_York", "E")):
        browser.move_to(zone)
        for size, dark in (((1280, 1400), False), ((390, 844), True)):
            browser.resize(*size, dark=dark)
            browser.visit(f"{live.airflow.url}/lakecommit/")
            browser.wait_for("STALLED")
            titles = browser.evaluate("[...document.querySelectorAll('time')].map((t) => t.title).join()")
            assert expected in titles
            assert serious(browser) == []
            open_entry(browser, WALK)
            browser.wait_for("Dead letters by kind")
            browser.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
            assert serious(browser) == []
            assert browser.evaluate("document.documentElement.scrollWidth") <= size[0], "one way to scroll"
            shot(browser, f"walk-{size[0]}-{'dark' if dark else 'light'}")
    browser.resize(1280, 1400)
    browser.visit(f"{live.airflow.url}/plugin/lakecommits")
    browser.wait_for("1 sensor waiting")
    link = f"[...{FRAME}.querySelectorAll('ul.sensors a')][0]"
    assert browser.evaluate(f"{link}.innerText") == f"{GUARD}.guard"
    browser.evaluate(f"{link}.click()")
    path = f"{PATH}/dags/{GUARD}/runs/held/tasks/guard"
    waiting.until(lambda: str(browser.evaluate("location.pathname")).startswith(path), 60, "the task's own page")
    browser.wait_for("guard")
    browser.visit(f"{live.airflow.url}/plugin/lakecommits")
