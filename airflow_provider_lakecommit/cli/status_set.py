# SPDX-License-Identifier: Apache-2.0
"""`lakecommit status SET.yaml`: the state of every landing of a set, a line each, worst first. Writes nothing.

The exit code is that of the worst: 1 if one cannot be read or topics have no landing, otherwise that of `status`; 6 if
a landing that the set no longer has is unfinished. A topic without records, whose table does not exist yet, is well.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping

from airflow_provider_lakecommit.cli.runs.plan import opened_set
from airflow_provider_lakecommit.cli.status import CODES
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.cycle import (
    Expansion,
    Formers,
    LandingSession,
    for_all,
    format_former,
    former_landings,
    has_no_record,
    without_records,
)
from airflow_provider_lakecommit.landing import LandingSetSpec
from airflow_provider_lakecommit.status import Status, StatusLimits, StatusVerdict, read_status, status_verdict, to_dict

Standing = tuple[StatusVerdict, str, Status | None]
"""The verdict on one landing, the reason, and its status; ``None`` if it has no table yet and needs none."""


def status_set(spec: LandingSetSpec, options: Namespace, output: Output) -> int:
    allowed = StatusLimits(lag=options.max_lag, age=options.max_age)
    with opened_set(spec) as (expansion, tables, connections):

        def step(session: LandingSession) -> Standing:
            landing = session.landing
            made = spec.landing_set.missing_table == "create"
            if made and has_no_record(landing, connections) and tables.find(landing.table) is None:
                return StatusVerdict.WELL, without_records(landing), None
            found = read_status(session, options.every)
            return *status_verdict(found, allowed), found

        ended = for_all(connections, expansion.landings, step, output.log)
        former = former_landings(spec.landing_set, connections, output.log)
    ended = {**former.failed, **ended}
    order = list(StatusVerdict)
    failed = {name: str(each) for name, each in ended.items() if isinstance(each, BaseException)}
    statuses = {name: each for name, each in ended.items() if not isinstance(each, BaseException)}
    statuses = dict(sorted(statuses.items(), key=lambda item: order.index(item[1][0])))
    output.answer(_as_dict(spec, expansion, statuses, failed, former), _lines(expansion, statuses, failed, former))
    if failed or expansion.troubles:
        return Exit.REFUSED
    worst = [verdict for verdict, _, _ in statuses.values()][:1]
    worst += [StatusVerdict.BEHIND for each in former.found if each.is_open]
    return CODES[min(worst, key=order.index, default=StatusVerdict.WELL)]


def _as_dict(
    spec: LandingSetSpec,
    expansion: Expansion,
    statuses: Mapping[str, Standing],
    failed: Mapping[str, str],
    former: Formers,
) -> dict[str, object]:
    return {
        "landing_set": spec.landing_set.name,
        "landings": [
            {**(to_dict(found) if found else {"landing": name}), "standing": verdict, "why": why}
            for name, (verdict, why, found) in statuses.items()
        ],
        "failed": dict(failed),
        "former": [each.to_dict() for each in former.found],
        **expansion.left_out,
    }


def _lines(
    expansion: Expansion, statuses: Mapping[str, Standing], failed: Mapping[str, str], former: Formers
) -> Iterator[str]:
    yield from (f"FAILED {name}: {why}" for name, why in failed.items())
    yield from (f"NO LANDING {trouble}" for trouble in expansion.troubles)
    yield from map(format_former, former.found)
    for name, (verdict, why, found) in statuses.items():
        behind = f"; {found.lag} offsets behind" if found and found.lag else ""
        is_so = "all is well" if verdict is StatusVerdict.WELL else verdict.upper()
        yield f"{name}: {is_so}{f': {why}' if why else ''}{behind}"
    counts = Counter(verdict for verdict, _, _ in statuses.values())
    counted = [f"{counts[v]} {v}" for v in StatusVerdict if counts[v]]
    lag = sum(found.lag for _, _, found in statuses.values() if found)
    landings, numbers = len(statuses) + len(failed), ", ".join([*counted, f"{len(failed)} failed"])
    yield f"{landings} landings: {numbers}; {lag} offsets behind"
