# SPDX-License-Identifier: Apache-2.0
"""The page as a user on call sees it: in Chromium, in a live Airflow, while commits stall and come again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from dev import page
from dev.airflow_stack import WITH_TRIGGERER
from dev.browser import Browser
from tests.airflow.live import RUN_SECONDS, Live, live_airflow
from tests.fixtures.kafka import create_topic, unique
from tests.support import waiting
from tests.support.coordinator import Coordinator, write_guard
from tests.support.narrator import Narrator
from tests.support.story import P0, P1

pytestmark = [pytest.mark.airflow, pytest.mark.ui, pytest.mark.integration]

DAG, PATH = "guard_orders", "/af"
HOSTILE = "<script>window.hostile = 1</script><img src=x onerror='window.hostile = 1'>"


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The page as its source is now."""
    page.build()


@pytest.fixture(scope="module")
def control(admin: AdminClient) -> str:
    name = unique("control")
    create_topic(admin, name, 1)
    return name


@pytest.fixture(scope="module")
def live(bootstrap: str, control: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    more = {"AIRFLOW__LAKECOMMIT__CONTROL_TOPIC": control, "AIRFLOW__LAKECOMMIT__PAGE_ACTIONS": "True"}
    with live_airflow(tmp_path_factory.mktemp("live-page"), bootstrap, WITH_TRIGGERER, more, PATH) as running:
        yield running


def shot(browser: Browser, name: str) -> None:
    """For a user to check, where a folder for that is named."""
    if folder := os.environ.get("LAKECOMMIT_SHOTS"):
        (Path(folder) / f"{name}.png").write_bytes(browser.picture())


@pytest.fixture
def browser(live: Live) -> Iterator[Browser]:
    with Browser(1280, 800) as found:
        found.set_cookie(live.airflow.url, "_token", live.client.token)
        yield found


def test_a_stall_is_observed_with_what_it_holds_and_so_is_its_end(
    live: Live, bootstrap: str, control: str, browser: Browser
) -> None:
    kafka = {"bootstrap.servers": bootstrap}
    orders = Narrator(kafka, control, "orders", DAG)
    for n in range(12):
        orders.lands(f"good-{n}")
    Narrator(kafka, control, "clicks", DAG).lands("first")
    Narrator(kafka, control, HOSTILE, DAG).lands("first")
    Coordinator(bootstrap, control).healthy()
    orders.stalls()
    write_guard(live.folder, DAG, landing="orders", on_stall="wait")
    live.client.await_dag(DAG, RUN_SECONDS)
    live.client.trigger(DAG, "held")
    live.await_state(DAG, "held", "guard", "deferred")

    browser.visit(f"{live.airflow.url}/lakecommit/")
    for size, dark, name in (((1280, 800), False, "light"), ((390, 844), True, "390-dark")):
        browser.resize(*size, dark=dark)
        browser.wait_for("STALLED")
        shot(browser, f"list-{name}")
    browser.evaluate("document.querySelector('a.entry').click()")
    for size, dark, name in (((1280, 800), True, "dark"), ((390, 844), False, "390")):
        browser.resize(*size, dark=dark)
        browser.wait_for("What to do")
        shot(browser, f"landing-{name}")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390, "a phone scrolls one way"

    browser.resize(1280, 800)
    browser.visit(f"{live.airflow.url}/plugin/lakecommits")
    for text in ("STALLED", "catalog answers 503", "1 sensor waiting", f"{DAG}.guard"):
        browser.wait_for(text)
    shot(browser, "in-airflow")
    orders.lands("mended")
    browser.wait_for("4 ● HEALTHY")
    assert "STALLED" not in browser.text(), "nobody loaded the page again"
    live.await_state(DAG, "held", "guard", "success")


def open_entry(browser: Browser, name: str) -> None:
    """Follow the link of a landing in the list."""
    entries = "[...document.querySelectorAll('a.entry')]"
    browser.evaluate(f"{entries}.find((a) => a.innerText.startsWith({name!r})).click()")


def check_page(browser: Browser, live: Live, name: str, text: str, shots: str) -> None:
    """The page of one landing, at the sizes and in the colours that pictures are taken of."""
    for size, dark, kind in (((1280, 1600), False, "light"), ((1280, 1600), True, "dark"), ((390, 2400), True, "390")):
        browser.resize(*size, dark=dark)
        browser.visit(f"{live.airflow.url}/lakecommit/")
        browser.wait_for(name)
        open_entry(browser, name)
        browser.wait_for(text)
        shot(browser, f"{shots}-{kind}")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390, "a phone scrolls one way"


def test_a_window_under_way_is_observed_slice_by_slice_and_then_in_the_curves(
    live: Live, bootstrap: str, control: str, browser: Browser
) -> None:
    busy = Narrator({"bootstrap.servers": bootstrap}, control, "busy", DAG)
    end = 0
    for n in range(30):
        busy.ago, size = 60.0 * (30 - n), 1000 + 900 * (n % 4)
        busy.lands(f"before-{n}", ((P0, end, end + size),), ends={P0: end + 3 * size, P1: 100})
        end += size
    busy.ago = 0.0
    ranges = tuple((P0, end + 100 * n, end + 100 * (n + 1)) for n in range(12))
    busy.opens("now", (*ranges, (P1, 0, 50)), groups=3, ends={P0: 400_000, P1: 100})
    busy.reports("now", slice(0, 5))
    busy.reports("now", slice(2, 3))
    busy.reports("now", slice(6, 7), blocked="7 of 100 records were rejected, 1 % is allowed")
    check_page(browser, live, "busy", "5 of 13 slices", "window")
    for text in (
        "group 2",
        "1 redundant",
        "1 with errors",
        "500 offsets read = 500 landed",
        "One partition is several times further behind",
        "Records per second",
    ):
        browser.wait_for(text)
    drawn = "[...document.querySelectorAll('.chart canvas')].filter((c) => c.width > 100).length"
    assert browser.evaluate(drawn) >= 3, "curves"
    busy.reports("now")
    browser.wait_for("13 of 13 slices")
    busy.completes("now")
    waiting.until(lambda: "Open windows" not in browser.text(), 60, "its end, which nobody loads the page for")
    browser.wait_for("accounting")


def test_a_sink_is_observed_with_its_tasks_and_the_files_that_wait(
    live: Live, bootstrap: str, control: str, browser: Browser
) -> None:
    sink = Coordinator(bootstrap, control, "connect-clicks")
    sink.healthy(3)
    sink.announce(sink.start(), "shop.clicks", 4)
    check_page(browser, live, "connect-clicks", "Uncommitted files", "sink")
    for text in ("4 files for shop.clicks", "they wait for the next commit", "orders[0]"):
        browser.wait_for(text)


def test_a_landing_that_never_ran_is_observed_once_its_dag_is_parsed(live: Live, browser: Browser) -> None:
    live.declare("future", "orders")
    browser.visit(f"{live.airflow.url}/lakecommit/")
    browser.wait_for("NEVER RAN")
    shot(browser, "never-ran")
    open_entry(browser, "future")
    browser.wait_for("DAG has no run yet")
    shot(browser, "never-ran-own")


def test_rejected_records_are_observed_by_kind_with_a_reason(
    live: Live, bootstrap: str, control: str, browser: Browser
) -> None:
    live.declare("rejecting", "orders")
    narrator = Narrator({"bootstrap.servers": bootstrap}, control, "rejecting", "rejecting")
    narrator.opens("more")
    narrator.reports("more", rejects={"missing_required id": 3}, reject_reason="the record has 'idx'")
    check_page(browser, live, "rejecting", "Dead letters by kind", "rejects")
    browser.wait_for("the record has 'idx'")


OPERATIONS = """
from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from airflow_provider_lakecommit.operators.verify import VerifyOperator

acted = Landing(name="acted", topics="orders", table="shop.acted")
with DAG("acted_publish", schedule=None):
    LandingOperationOperator(task_id="publish_now", landing=acted, operation="publish-now")
with DAG("acted_verify", schedule=None):
    VerifyOperator(task_id="verify", landing=acted)
"""
FRAME = "document.querySelector('iframe').contentDocument"


def press(browser: Browser, title: str) -> None:
    """A button of the page in Airflow's frame, once it is there."""
    enabled = f"b.innerText === {title!r} && b.ariaDisabled !== 'true'"
    found = f"[...{FRAME}.querySelectorAll('button')].findLast((b) => {enabled})"
    waiting.until(lambda: browser.evaluate(f"{found} !== undefined"), 60, f"the button {title}")
    browser.evaluate(f"{FRAME}.defaultView.focus(); ((b) => {{ b.focus(); b.click() }})({found})")


def has_focus(browser: Browser, text: str) -> None:
    """Within the frame, and soon."""
    focused = f"{FRAME}.activeElement.innerText"
    waiting.until(lambda: browser.evaluate(focused) == text, 60, f"the focus at {text}")


def test_what_is_requested_is_requested_back_and_then_done_by_airflow_in_the_users_name(
    live: Live, bootstrap: str, control: str, browser: Browser
) -> None:
    acted = Narrator({"bootstrap.servers": bootstrap}, control, "acted", "acted")
    acted.lands("before")
    acted.opens("now", ((P0, 1000, 1100),))
    live.declare("acted", "orders")
    (live.folder / "acted_operations.py").write_text(OPERATIONS)
    for dag in ("acted_publish", "acted_verify"):
        live.client.await_dag(dag, RUN_SECONDS)
    browser.visit(f"{live.airflow.url}/plugin/lakecommits")
    browser.wait_for("acted")
    browser.evaluate(f"[...{FRAME}.querySelectorAll('a.entry')].find((a) => a.innerText.startsWith('acted')).click()")
    browser.wait_for("1 window open")
    shot(browser, "actions")

    press(browser, "Verify …")
    browser.wait_for("trigger a run of DAG acted_verify")
    shot(browser, "actions-asked")
    press(browser, "Cancel")
    assert live.runs("acted_verify") == []
    press(browser, "Verify …")
    press(browser, "Verify")
    browser.wait_for("Open the run")
    waiting.until(lambda: len(live.runs("acted_verify")) == 1, 60, "the run of the check")
    events = live.client.told("/eventLogs?dag_id=acted_verify&event=trigger_dag_run")["event_logs"]
    assert [event["owner"] for event in events] == ["admin"]

    press(browser, "Pause …")
    press(browser, "Pause")
    has_focus(browser, "Resume …")
    assert live.client.told("/dags/acted")["is_paused"] is True
    browser.press("Enter")
    browser.wait_for("unpause DAG acted")
    press(browser, "Resume")
    has_focus(browser, "Pause …")
    assert live.client.told("/dags/acted")["is_paused"] is False
    browser.evaluate(f"{FRAME}.querySelector('input, nav a').focus()")
    live.client.pause("acted", paused=True)
    browser.wait_for("unpause DAG acted")
    has_focus(browser, "← all landings")


LONG = "acted_check." + "x" * 200
CHECK = """
from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.verify import VerifyOperator

keyed = Landing(name="keyed", topics="orders", table="shop.keyed")
with DAG("{dag}", schedule=None):
    VerifyOperator(task_id="verify", landing=keyed)
"""
FOCUSED = "document.activeElement.innerText"
WHILE_CONFIRMING = """
window.asked = 0
const ask = window.fetch
window.fetch = (place, how) =>
  /dagRuns/.test(place) ? (window.asked++, new Promise((answer) => (window.answer = answer)))
  : /actions$/.test(place) && window.away ? Promise.resolve(new Response("", { status: 500 })) : ask(place, how)
"""
"""Airflow takes its time over a run, and the page's own server is away when that is said."""


def test_an_action_is_requested_by_the_keyboard_once_and_outlives_a_server_that_is_away(
    live: Live, bootstrap: str, control: str, browser: Browser
) -> None:
    Narrator({"bootstrap.servers": bootstrap}, control, "keyed", LONG).lands("before")
    (live.folder / "keyed_check.py").write_text(CHECK.format(dag=LONG))
    live.client.await_dag(LONG, RUN_SECONDS)
    live.client.pause(LONG, paused=False)
    browser.resize(390, 844)
    browser.visit(f"{live.airflow.url}/lakecommit/")
    browser.wait_for("keyed")
    open_entry(browser, "keyed")
    browser.wait_for("Verify …")
    browser.evaluate(WHILE_CONFIRMING)
    browser.evaluate("[...document.querySelectorAll('button')].find((b) => b.innerText === 'Verify …').focus()")

    browser.press("Enter")
    browser.wait_for("trigger a run of DAG")
    shot(browser, "actions-asked-390")
    assert browser.evaluate("(d => d.scrollWidth <= d.clientWidth)(document.querySelector('dialog'))"), "all is seen"
    axe = (page.SOURCE / "node_modules" / "axe-core" / "axe.min.js").read_text()
    browser.evaluate(axe)
    assert json.loads(browser.evaluate("axe.run().then((r) => JSON.stringify(r.violations))")) == []
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('dialog')") is None
    assert browser.evaluate(FOCUSED) == "Verify …", "where it was before"

    browser.press("Enter")
    browser.evaluate("window.away = true")
    browser.wait_for("The API server reports")
    assert browser.evaluate("document.querySelector('dialog').open"), "what is asked stays"
    browser.press("Tab")
    assert browser.evaluate(FOCUSED) == "Verify"
    yes = "[...document.querySelectorAll('dialog button')].find((b) => b.innerText === 'Verify')"
    browser.evaluate(f"((b) => {{ b.click(); b.click() }})({yes})")
    browser.wait_for("sending the request to Airflow")
    assert browser.evaluate(FOCUSED) == "Verify …"
    browser.press("Enter")
    browser.evaluate('window.answer(new Response(\'{"detail": "not today"}\', { status: 409 }))')
    browser.wait_for("not today")
    assert browser.evaluate("window.asked") == 1
    assert browser.evaluate("document.querySelector('dialog')") is None


def test_a_link_leads_the_window_around_the_page_to_the_task(live: Live, browser: Browser) -> None:
    write_guard(live.folder, DAG, landing="orders", on_stall="skip", max_valid_through_age=1)
    live.client.trigger(DAG, "skipped")
    live.await_state(DAG, "skipped", "guard", "skipped")
    browser.visit(f"{live.airflow.url}/dags/{DAG}/plugin/lakecommits-dag")
    browser.wait_for("HEALTHY")
    browser.evaluate("document.querySelector('iframe').contentDocument.querySelector('a.entry').click()")
    browser.wait_for("Cycles")
    browser.evaluate(
        "[...document.querySelector('iframe').contentDocument.querySelectorAll('a')]"
        f".find((a) => a.href.endsWith('/dags/{DAG}')).click()"
    )
    waiting.until(lambda: browser.evaluate("location.pathname") == f"{PATH}/dags/{DAG}", 60, "the DAG's own page")


def test_nothing_hostile_runs_and_nothing_of_elsewhere_is_requested(live: Live, browser: Browser) -> None:
    browser.visit(f"{live.airflow.url}/lakecommit/")
    browser.wait_for("<script>")
    assert browser.evaluate("window.hostile === undefined")
    loaded = browser.evaluate("performance.getEntriesByType('resource').map((r) => r.name).join('\\n')")
    assert [a for a in loaded.split("\n") if not a.startswith(live.airflow.url)] == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_fault(live: Live, browser: Browser, dark: bool) -> None:
    browser.resize(1280, 800, dark=dark)
    browser.visit(f"{live.airflow.url}/lakecommit/")
    browser.wait_for("HEALTHY")
    axe = (page.SOURCE / "node_modules" / "axe-core" / "axe.min.js").read_text()
    for name in ("", "busy", "connect-clicks"):
        browser.visit(f"{live.airflow.url}/lakecommit/")
        browser.wait_for("rejected 24 h")
        if name:
            open_entry(browser, name)
            browser.wait_for("Cycles")
            browser.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        browser.evaluate(axe)
        found = json.loads(browser.evaluate("axe.run().then((r) => JSON.stringify(r.violations))"))
        serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
        assert serious == []
