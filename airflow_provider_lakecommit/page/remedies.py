# SPDX-License-Identifier: Apache-2.0
"""At most three commands that help a landing now, ready to be copied.

A command previews what it changes. Names come from control records and commands are pasted into shells, so each name is
quoted, and commands with an unprintable name are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote

from airflow_provider_lakecommit.core import (
    CONNECT_RESCUE,
    DEAD_LETTERS,
    DOCTOR,
    MAINTAIN,
    PUBLISH_NOW,
    RESET_BLOCKED,
    STATUS,
    VERIFY,
)
from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.stall import Verdict

MOST = 3


def _is(*verdicts: Verdict) -> Callable[[LandingRow], bool]:
    return lambda row: row.found.verdict in verdicts


_Offer = tuple[Callable[[LandingRow], bool], str, str]
"""Which rows the command fits, the command with ``{target}`` for the landing, and its effect."""

_REFUSED = "[LC6250]"
"""The code of the error of a commit whose rows are refused by checks."""

_LANDING: tuple[_Offer, ...] = (
    (
        lambda r: _REFUSED in r.found.reason,
        f"{RESET_BLOCKED} {{target}} --drop",
        "shows the refused rows; with --yes it takes them off their branch, and the next run reads them again",
    ),
    (
        lambda r: _REFUSED in r.found.reason,
        f"{RESET_BLOCKED} {{target}} --release",
        "shows the refused rows; with --yes it publishes them without their checks",
    ),
    (
        lambda r: bool(r.state.blocked),
        f"{RESET_BLOCKED} {{target}} --retry",
        "shows the blocked ranges; with --yes it reads them again, once records, table or spec are fixed",
    ),
    (
        lambda r: bool(r.state.blocked),
        f"{RESET_BLOCKED} {{target}} --skip",
        "shows which bad records would be given up; with --yes it continues without them",
    ),
    (
        lambda r: r.running > 0 and r.found.verdict is Verdict.HEALTHY,
        f"{PUBLISH_NOW} {{target}}",
        "ends open windows at the current record, and publishes them",
    ),
    (
        lambda r: r.state.deferred is not None,
        f"{MAINTAIN} {{target}} --only compact --yes",
        "compacts the tables now; the next run plans again",
    ),
    (
        _is(Verdict.STALLED, Verdict.SLOWING),
        f"{DOCTOR} {{target}}",
        "checks brokers, catalog, storage and tables, and reports what does not answer",
    ),
    (lambda _: True, f"{STATUS} {{target}}", "shows how far the tables are, and what waits"),
    (
        lambda r: any(kind.records for kind in r.cycles.notes.rejects),
        f"{DEAD_LETTERS} {{target}} --values",
        "shows open dead letters with their values",
    ),
    (_is(Verdict.HEALTHY), f"{VERIFY} {{target}}", "checks that every offset is in the tables exactly once"),
)
_CONNECTOR: tuple[_Offer, ...] = (
    (
        _is(Verdict.LOSING, Verdict.DEAD, Verdict.STALLED),
        f"{CONNECT_RESCUE} --connector {{target}} --dry-run",
        "lists files that were announced and never committed; without --dry-run it commits them",
    ),
)


def remedies(row: LandingRow) -> list[tuple[str, str]]:
    """Return the matching commands with their effects, the most useful first."""
    if row.state.landing:
        target = f"--dag {quote(row.dags[0])} --landing {quote(row.name)}" if row.dags else "SPEC.yaml"
        offers, names = _LANDING, (*row.dags[:1], row.name)
    else:
        target = quote(row.group.removeprefix("connect-"))
        offers, names = _CONNECTOR, (row.group,)
    if not all(name.isprintable() for name in names):
        return []
    return [(command.format(target=target), does) for fits, command, does in offers if fits(row)][:MOST]
