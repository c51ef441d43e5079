# SPDX-License-Identifier: Apache-2.0
"""The page in every state that a landing may be in, on a desk and on a phone, in light and in dark: what a user on
call reads there, and that it can be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.core.identity import group_id
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.page.declared_landings import DeclaredLanding
from airflow_provider_lakecommit.page.operations import KnownDag, Operation
from airflow_provider_lakecommit.page.sensors import HeldSensor
from dev import page
from dev.browser import Browser
from tests.airflow.page_server import PageServer, page_server
from tests.airflow.test_page_seen import open_entry, shot
from tests.fixtures.kafka import create_topic, unique
from tests.support.narrator import Narrator
from tests.support.story import P0, P1

pytestmark = [pytest.mark.airflow, pytest.mark.ui, pytest.mark.integration]

MANY = 1_000
AWAY = (
    "shop.orders: ConnectionError: HTTPConnectionPool(host='catalog.internal', port=8181): Max retries exceeded with "
    "url: /v1/namespaces/shop/tables/orders (Caused by NewConnectionError('<urllib3.connection.HTTPConnection object "
    "at 0x7f2d18b7c3d0>: Failed to establish a new connection: [Errno 111] Connection refused'))"
)
REFUSED = (
    "[LC6250] landing audited: 2 of 3 checks refuse 1,204 rows, which stay on branch audit; main is as before: ids are "
    "unique: 4 wrong rows of shop.orders; SELECT id, amount FROM added_rows WHERE amount < 0: 12 wrong rows of "
    "shop.orders. The next commit checks again; `lakecommit reset blocked SPEC --release` publishes them all the same, "
    "`--drop` takes them off the branch"
)
OVER = (
    "missing_required id (99 rejected records): slice orders[1] [{0}, {1}): 99 rejected records of 100 are over "
    "dead_letters.max_ratio=0.05, the rest was not read; first: orders[1]@{0}: the record has no 'id', it has 'idx', "
    "'note', 'amount', 'created_at'"
)
DEBT = (
    "compaction debt: shop.orders has 2,412 small data files, of 1,000 that it may have; cleared by compaction of "
    "shop.orders, which each run does after its commit, and `lakecommit maintain SPEC --only compact --yes`"
)
BUDGET = PendingBudget(open_cycles=16, slices=8000, files=100_000, bytes=1 << 40)


class Narrated:
    """Landings of one control topic, told in a few words."""

    def __init__(self, bootstrap: str, admin: AdminClient) -> None:
        self.topic = unique("control")
        create_topic(admin, self.topic, 1)
        self._kafka = {"bootstrap.servers": bootstrap}
        self._producer = Producer({**self._kafka, "max.in.flight": 1})

    def landing(self, name: str, cycles: int = 12, every: float = 300.0, since: float = 0.0) -> Narrator:
        """One that has landed so often, the last time so long ago."""
        made = Narrator(self._kafka, self.topic, name, f"land_{name}", producer=self._producer)
        end = 0
        for n in range(cycles):
            made.ago, size = since + every * (cycles - 1 - n), 400 + 350 * (n % 4)
            run, ranges = (
                f"scheduled__2026-11-28T0{n % 10}:00:00+00:00-{n}",
                ((P0, end, end + size), (P1, 10 * n, 10 * n + 10)),
            )
            made.lands(run, ranges, ends={P0: end + size, P1: 10 * n + 10})
            end += size
        made.ago = 0.0
        return made


def stalls(narrator: Narrator, cycles: int, reason: str) -> None:
    for n in range(cycles):
        narrator.ago, run = 300.0 * (cycles - n), f"scheduled__2026-11-28T09:0{n}:00+00:00"
        narrator.opens(run, ((P0, 20_000 + 500 * n, 20_500 + 500 * n),), ends={P0: 22_000, P1: 120})
        narrator.reports(run)
        narrator.fails(run, reason)
    narrator.ago = 0.0


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """The page as its source is now."""
    page.build()


@pytest.fixture(scope="module")
def boards(bootstrap: str, admin: AdminClient) -> Mapping[str, str]:
    calm, all_states = (Narrated(bootstrap, admin) for _ in range(2))
    for name in ("orders", "clicks", "payments"):
        calm.landing(name)
    all_states.landing("healthy")
    slowing = all_states.landing("slowing", since=600)
    stalls(slowing, 1, AWAY)
    stalls(all_states.landing("stalled", since=1500), 4, AWAY)
    stalls(all_states.landing("audited", since=900), 1, REFUSED)
    blocked = all_states.landing("blocked", since=600)
    ranges = ((P0, 20_000, 20_400), *((P1, n, n + 100) for n in (200, 300, 400)))
    blocked.opens("manual__2026-11-28T09:10:00+00:00", ranges, ends={P0: 20_400, P1: 500})
    blocked.reports("manual__2026-11-28T09:10:00+00:00", slice(0, 1))
    for n in range(3):
        more = {"rejects": {"missing_required id": 99}, "reject_reason": "the record has 'idx'"}
        blocked.reports(
            "manual__2026-11-28T09:10:00+00:00",
            slice(n + 1, n + 2),
            blocked=OVER.format(200 + 100 * n, 300 + 100 * n),
            **more,
        )
    blocked.completes("manual__2026-11-28T09:10:00+00:00", ranges=((P0, 20_000, 20_400),))
    blocked.opens("manual__2026-11-28T09:15:00+00:00", (), ends={P0: 20_400, P1: 500})
    blocked.completes("manual__2026-11-28T09:15:00+00:00", ())
    indebted = all_states.landing("indebted", since=600)
    indebted.opens("manual__debt", (), ends={P0: 21_000}, refused=RefusalState.DEBT, left=1000, reason=DEBT)
    indebted.completes("manual__debt", ())
    begun = all_states.landing("begun", cycles=0)
    begun.opens("first", ((P0, 0, 500), (P1, 0, 200)), ends={P0: 500, P1: 200}, groups=2)
    begun.reports("first", slice(0, 1))
    fresh = Narrated(bootstrap, admin)
    return {"calm": calm.topic, "all": all_states.topic, "fresh": fresh.topic}


@pytest.fixture
def server(bootstrap: str, boards: Mapping[str, str]) -> Iterator[PageServer]:
    with page_server({"bootstrap.servers": bootstrap}, boards) as running:
        running.known.sensors = tuple(held("stalled", boards["all"]))
        names = ("healthy", "slowing", "stalled", "blocked", "audited", "indebted", "begun")
        declared = [DeclaredLanding(n, f"shop.{n}", f"land_{n}", True, BUDGET) for n in names]
        declared.append(DeclaredLanding("future", "shop.future", "land_future", False, BUDGET))
        running.known.declared = tuple(declared)
        running.known.dags = {
            "land_stalled": KnownDag(paused=False),
            "land_blocked": KnownDag(paused=False),
            "decide_blocked": KnownDag(
                paused=False,
                operations=(Operation(kind="retry_blocked", landing="blocked", dag="decide_blocked", asks=True),),
            ),
            "verify_stalled": KnownDag(
                paused=False, operations=(Operation(kind="verify", landing="stalled", dag="verify_stalled"),)
            ),
        }
        yield running


def held(landing: str, topic: str) -> Iterator[HeldSensor]:
    for n, state in enumerate(("deferred", "deferred", "skipped")):
        yield HeldSensor(
            dag=f"revenue_report_{n}",
            run="scheduled__2026-11-28T09:00:00+00:00",
            task="wait_for_orders",
            map_index=-1,
            state=state,
            since=datetime.now(UTC) - timedelta(minutes=12 + n),
            group=group_id(landing),
            control_topic=topic,
            reason="3 cycles in a row failed",
        )


@pytest.fixture
def browser() -> Iterator[Browser]:
    with Browser(1280, 800) as found:
        yield found


SIZES = (
    ((1280, 1400), False, "1280-light"),
    ((1280, 1400), True, "1280-dark"),
    ((390, 844), False, "390-light"),
    ((390, 844), True, "390-dark"),
)


LONG_BLOCKS = """
[...document.querySelectorAll("p, dt, dd, td, th, li, summary, figcaption, h1, h2, button, strong, div")]
  .filter((e) => e.checkVisibility())
  .filter((e) => !e.querySelector("p, dd, td, li, ul, div, details, table, section, svg, button"))
  .map((e) => {
    const style = getComputedStyle(e), text = document.createRange()
    text.selectNodeContents(e)
    return [Math.round(text.getBoundingClientRect().height / parseFloat(style.lineHeight)), e.innerText.slice(0, 200)]
  })
  .filter(([lines]) => lines > 3)
  .map(([lines, text]) => `${lines} lines: ${text}`).join("\\n")
"""
"""Texts that are seen, and are longer than a user on call reads."""
WIDE = """
document.documentElement.scrollWidth <= innerWidth ? "" : [...document.body.querySelectorAll("*")]
  .filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest(".scroll"))
  .map((e) => `${e.tagName} ${e.className}`).join("\\n") || "wide"
"""
"""What is wider than the screen."""


def see(browser: Browser, url: str, text: str, name: str, entry: str = "") -> None:
    """One page in every size and colour: nothing is wider than the screen, and no text is long."""
    for size, dark, kind in SIZES:
        browser.resize(*size, dark=dark)
        browser.visit("about:blank")
        browser.visit(url)
        browser.wait_for(entry or text)
        if entry:
            open_entry(browser, entry)
            browser.wait_for(text)
        tall = int(browser.evaluate("document.documentElement.scrollHeight"))
        browser.resize(size[0], max(size[1], min(tall + 20, 4000)), dark=dark)
        shot(browser, f"{name}-{kind}")
        assert browser.evaluate(WIDE) == "", f"{kind}: a phone scrolls one way"
        assert browser.evaluate(LONG_BLOCKS) == "", kind


@pytest.mark.parametrize("name", ["healthy", "slowing", "stalled", "blocked", "audited", "indebted", "begun", "future"])
def test_a_landing(server: PageServer, browser: Browser, name: str) -> None:
    see(browser, server.page("all"), "Cycles" if name != "future" else "its first run", f"own-{name}", name)


@pytest.mark.parametrize("board", ["calm", "all", "fresh"])
def test_a_list(server: PageServer, browser: Browser, board: str) -> None:
    if board != "all":
        server.known.declared = server.known.declared[-1:] if board == "fresh" else ()
    see(browser, server.page(board), "as of", f"list-{board}")


def test_a_thousand_landings(bootstrap: str, admin: AdminClient, browser: Browser) -> None:
    many = Narrated(bootstrap, admin)
    for n in range(MANY):
        one = many.landing(f"team{n % 20:02}_topic_{n:04}", cycles=1 + n % 2, since=60.0 + n % 500)
        if n % 97 == 0:
            stalls(one, 1 + n % 4, AWAY)
    with page_server({"bootstrap.servers": bootstrap}, {"many": many.topic}) as server:
        see(browser, server.page("many"), f"of {MANY}", "list-many")
