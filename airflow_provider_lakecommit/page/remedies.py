# SPDX-License-Identifier: Apache-2.0
"""What helps now: at most three commands for the state of a landing, ready to be copied.

Contract: pure, and a table. A command changes nothing that it does not preview first. Names come from control records,
so any writer chooses them, and commands are pasted into shells: each name is quoted, and if one cannot be printed on
one line, all commands with it are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote

from airflow_provider_lakecommit.core import (
    CONNECT_RESCUE,
    DEAD_LETTERS,
    DOCTOR,
    PUBLISH_NOW,
    RESET_BLOCKED,
    STATUS,
    VERIFY,
)
from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.stall import Verdict

MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A command, and its effect."""

    command: str
    does: str


@dataclass(frozen=True, slots=True)
class _Offer:
    """A command for rows that ``fits``; ``{whose}`` are the arguments that name the landing."""

    fits: Callable[[LandingRow], bool]
    command: str
    does: str


def _is(*verdicts: Verdict) -> Callable[[LandingRow], bool]:
    return lambda row: row.found.verdict in verdicts


_LANDING: tuple[_Offer, ...] = (
    _Offer(
        lambda r: bool(r.state.blocked),
        f"{RESET_BLOCKED} {{whose}} --retry",
        "shows the blocked ranges; with --yes it reads them again, once records, table or spec are fixed",
    ),
    _Offer(
        lambda r: bool(r.state.blocked),
        f"{RESET_BLOCKED} {{whose}} --skip",
        "shows which bad records would be given up; with --yes it continues without them",
    ),
    _Offer(
        lambda r: r.running > 0 and r.found.verdict is Verdict.HEALTHY,
        f"{PUBLISH_NOW} {{whose}}",
        "ends open windows at the current record, and publishes them",
    ),
    _Offer(
        _is(Verdict.STALLED, Verdict.SLOWING),
        f"{DOCTOR} {{whose}}",
        "checks brokers, catalog, storage and tables, and reports what does not answer",
    ),
    _Offer(lambda _: True, f"{STATUS} {{whose}}", "shows how far the tables are, and what waits"),
    _Offer(
        lambda r: any(kind.records for kind in r.cycles.notes.rejects),
        f"{DEAD_LETTERS} {{whose}} --values",
        "shows open dead letters with their values",
    ),
    _Offer(_is(Verdict.HEALTHY), f"{VERIFY} {{whose}}", "checks that every offset is in the tables exactly once"),
)
_CONNECTOR: tuple[_Offer, ...] = (
    _Offer(
        _is(Verdict.LOSING, Verdict.DEAD, Verdict.STALLED),
        f"{CONNECT_RESCUE} --connector {{whose}} --dry-run",
        "lists files that were announced and never committed; without --dry-run it commits them",
    ),
)


def remedies(row: LandingRow) -> tuple[Remedy, ...]:
    """Return the matching remedies, the most useful first."""
    if row.state.landing:
        whose = f"--dag {quote(row.dags[0])} --landing {quote(row.name)}" if row.dags else "SPEC.yaml"
        offers, names = _LANDING, (*row.dags[:1], row.name)
    else:
        whose = quote(row.group.removeprefix("connect-"))
        offers, names = _CONNECTOR, (row.group,)
    if not all(name.isprintable() for name in names):
        return ()
    fitting = [o for o in offers if o.fits(row)][:MOST]
    return tuple(Remedy(command=o.command.format(whose=whose), does=o.does) for o in fitting)
