# SPDX-License-Identifier: Apache-2.0
"""What helps now: at most three commands that fit how a landing stands, ready to be copied.

Contract: pure, and a table. A command changes nothing that it does not preview first. Names come from control records,
where anybody may have put them, and commands are pasted into shells: each is quoted, and one that cannot be printed on
one line is left out with all that would name it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from shlex import quote

from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.reset_commands import RESET_BLOCKED
from airflow_provider_lakecommit.stall.verdict import Verdict

__all__ = ["Remedy", "remedies"]

MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A command, and what it does."""

    command: str
    does: str


@dataclass(frozen=True, slots=True)
class _Offer:
    """A command for rows that ``fits``; ``{whose}`` is what names the landing."""

    fits: Callable[[LandingRow], bool]
    command: str
    does: str


def _is(*verdicts: Verdict) -> Callable[[LandingRow], bool]:
    return lambda row: row.found.verdict in verdicts


_LANDING: tuple[_Offer, ...] = (
    _Offer(
        lambda r: bool(r.state.blocked),
        f"{RESET_BLOCKED} {{whose}} --retry",
        "reads the blocked ranges again, once records, table or spec are mended",
    ),
    _Offer(
        lambda r: bool(r.state.blocked),
        f"{RESET_BLOCKED} {{whose}} --skip",
        "shows which bad records would be given up, and goes on without them after a yes",
    ),
    _Offer(
        lambda r: r.running > 0 and r.found.verdict is Verdict.HEALTHY,
        "lakecommit publish-now {whose}",
        "ends the windows under way behind the record in hand, and publishes them",
    ),
    _Offer(
        _is(Verdict.STALLED, Verdict.SLOWING),
        "lakecommit doctor {whose}",
        "checks brokers, catalog, storage and tables, and says what does not answer",
    ),
    _Offer(lambda _: True, "lakecommit status {whose}", "says how far the tables are, and what waits"),
    _Offer(_is(Verdict.HEALTHY), "lakecommit verify {whose}", "checks that every offset is in the tables exactly once"),
)
_CONNECTOR: tuple[_Offer, ...] = (
    _Offer(
        _is(Verdict.LOSING, Verdict.DEAD, Verdict.STALLED),
        "lakecommit rescue --connector {whose}",
        "lists files that were announced and never committed, and commits them after a yes",
    ),
)


def remedies(row: LandingRow) -> tuple[Remedy, ...]:
    """Those that fit, the most useful first."""
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
