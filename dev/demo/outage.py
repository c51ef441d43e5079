# SPDX-License-Identifier: Apache-2.0
"""The demo's outage: the catalog goes in mid-window, commits stall, runs hold back; it returns, and all is drained.

Contract: only a catalog on SQLite is taken away, by a folder in the place of its file; one that is not ours is left
alone, and the step says so. The catalog is put back however the step ends.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dev.demo.context import Demo
from dev.demo.screen import number

EVENTS = 40_000
"""Sent before the outage, and as many while it lasts."""
IN_VAIN = ("demo-5", "demo-6", "demo-7")
DRAINS, LANDS = "demo-8", "demo-9"
VERDICT_SECONDS = 60.0
SHOWN = 64
"""Characters of a reason."""


def stall_and_drain(demo: Demo) -> None:
    """Three runs without a catalog, and two with it."""
    if demo.stack.has_foreign_catalog:
        demo.screen.fact("left out", "the catalog is not ours to stop")
        return
    demo.send(EVENTS)
    with _no_catalog_from_mid_window(demo, IN_VAIN[0]):
        states = [demo.await_run(IN_VAIN[0])]
        demo.send(EVENTS)
        states += [demo.run(run) for run in IN_VAIN[1:]]
        cycles = [demo.cycle(run) for run in IN_VAIN]
        slices = f"{len(cycles[0].reported)} of {len(cycles[0].planned)} slices written without a catalog"
        holds = len(cycles[0].reported) == len(cycles[0].planned) > 0 and states == ["failed"] * len(IN_VAIN)
        demo.screen.check("run 5", f"{states[0]} at its commit; {slices}", holds)
        held = cycles[1:]
        text = f"{', '.join(states[1:])}; nothing planned, {number(EVENTS)} events wait"
        demo.screen.check("runs 6 and 7", text, not any(cycle.planned for cycle in held))
        demo.screen.fact("their reason", (held[-1].opened.plan.reason or "none").partition(":")[0])
        _check_verdict(demo, "stalled")
    _drain(demo)


def _drain(demo: Demo) -> None:
    began = time.monotonic()
    state = demo.run(DRAINS)
    took = time.monotonic() - began
    drained = demo.cycle(DRAINS)
    closed = [name for name in drained.events if name == "COMMIT_COMPLETE"]
    events = sum(len(p.coverage) for p in drained.published if p.table == demo.landing.table)
    text = f"{state}; {len(closed)} COMMIT_COMPLETE, {number(events)} events drained in {took:.0f} s"
    demo.screen.check("run 8", text, state == "success" and len(closed) == 1 and events == EVENTS)
    state = demo.run(LANDS)
    landed = demo.cycle(LANDS)
    demo.screen.check("run 9", f"{state}; {len(landed.reported)} slices written", state == "success")
    _check_verdict(demo, "healthy")
    demo.check_table()
    demo.check_asset_events(demo.gave_rows(*IN_VAIN, DRAINS, LANDS))


@contextmanager
def _no_catalog_from_mid_window(demo: Demo, run: str) -> Iterator[None]:
    """Trigger a run, and take the catalog away when its window is planned."""
    database = demo.stack.directory / "catalog.db"
    away = database.with_name("catalog.away")
    demo.begin(run, lambda cycle: True)
    database.rename(away)
    database.mkdir()
    try:
        yield
    finally:
        database.rmdir()
        away.rename(database)


def _check_verdict(demo: Demo, due: str) -> None:
    """`lakecommit connect watch`, which looks at nothing but the control topic."""
    landing = demo.landing
    where = ["--bootstrap", demo.stack.broker.bootstrap, "--control-topic", landing.control_topic_name]
    asked = ["connect", "watch", "--json", *where, "--group", landing.group_id]
    _, lines = demo.lakecommit(f"stall-{due}", *asked, timeout=VERDICT_SECONDS)
    told = [line for line in lines if line.startswith("{")]
    found = json.loads(told[-1]) if told else {}
    text = textwrap.shorten(f"{str(found.get('verdict')).upper()}: {found.get('reason')}", SHOWN, placeholder=" …")
    demo.screen.check("lakecommit connect watch", text, found.get("verdict") == due)
