# SPDX-License-Identifier: Apache-2.0
"""`lakecommit status SET.yaml`: the state of every landing of a set, a line each, worst first. Writes nothing.

The exit code is that of the worst: 1 if one cannot be read or topics have no landing, otherwise that of `status`; 6 if
a landing that the set no longer has is unfinished. A topic without records, whose table does not exist yet, is well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """The state of one landing; without ``found`` it has no table yet and needs none."""

    verdict: StatusVerdict
    why: str
    found: Status | None = None


def status_set(spec: LandingSetSpec, output: Output, *, every: timedelta | None, allowed: StatusLimits) -> int:
    with opened_set(spec) as (expansion, tables, connections):

        def step(session: LandingSession) -> _Standing:
            landing = session.landing
            made = spec.landing_set.missing_table == "create"
            if made and has_no_record(landing, connections) and tables.find(landing.table) is None:
                return _Standing(verdict=StatusVerdict.WELL, why=without_records(landing))
            found = read_status(session, every)
            verdict, why = status_verdict(found, allowed)
            return _Standing(verdict=verdict, why=why, found=found)

        ended = for_all(connections, expansion.landings, step, output.log)
        former = former_landings(spec.landing_set, connections, output.log)
    ended = {**former.failed, **ended}
    order = list(StatusVerdict)
    statuses = {name: each for name, each in ended.items() if isinstance(each, _Standing)}
    statuses = dict(sorted(statuses.items(), key=lambda item: order.index(item[1].verdict)))
    failed = {name: str(each) for name, each in ended.items() if isinstance(each, BaseException)}
    output.answer(_as_dict(spec, expansion, statuses, failed, former), _lines(expansion, statuses, failed, former))
    if failed or expansion.troubles:
        return Exit.REFUSED
    worst = [each.verdict for each in statuses.values()][:1]
    worst += [StatusVerdict.BEHIND for each in former.found if each.is_open]
    return CODES[min(worst, key=order.index, default=StatusVerdict.WELL)]


def _as_dict(
    spec: LandingSetSpec,
    expansion: Expansion,
    statuses: Mapping[str, _Standing],
    failed: Mapping[str, str],
    former: Formers,
) -> dict[str, object]:
    return {
        "landing_set": spec.landing_set.name,
        "landings": [
            {**(to_dict(each.found) if each.found else {"landing": name}), "standing": each.verdict, "why": each.why}
            for name, each in statuses.items()
        ],
        "failed": dict(failed),
        "former": [each.to_dict() for each in former.found],
        **expansion.left_out,
    }


def _lines(
    expansion: Expansion, statuses: Mapping[str, _Standing], failed: Mapping[str, str], former: Formers
) -> Iterator[str]:
    yield from (f"FAILED {name}: {why}" for name, why in failed.items())
    yield from (f"NO LANDING {trouble}" for trouble in expansion.troubles)
    yield from map(format_former, former.found)
    for name, each in statuses.items():
        behind = f"; {each.found.lag} offsets behind" if each.found and each.found.lag else ""
        is_so = "all is well" if each.verdict is StatusVerdict.WELL else each.verdict.upper()
        yield f"{name}: {is_so}{f': {each.why}' if each.why else ''}{behind}"
    counts = Counter(each.verdict for each in statuses.values())
    counted = [f"{counts[v]} {v}" for v in StatusVerdict if counts[v]]
    lag = sum(each.found.lag for each in statuses.values() if each.found)
    landings, numbers = len(statuses) + len(failed), ", ".join([*counted, f"{len(failed)} failed"])
    yield f"{landings} landings: {numbers}; {lag} offsets behind"
