# SPDX-License-Identifier: Apache-2.0
"""`lakecommit plan SET.yaml`: what the next cycle of each landing of a set would do, one line each.

Contract: that of :mod:`~airflow_provider_lakecommit.runs.plan`, for all of them at once. Topics without a landing, and
landings that cannot be planned, are told with their reason, and the exit code says that there are some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_provider_lakecommit.cycle.open import preview
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.engines.process import CLI
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing_set import LandingSetSpec
from airflow_provider_lakecommit.many.connections import SetConnections, found_landings
from airflow_provider_lakecommit.many.expansion import Expansion
from airflow_provider_lakecommit.many.schemas import with_schema
from airflow_provider_lakecommit.many.steps import CLIENTS, for_all
from airflow_provider_lakecommit.runs.plan import text_of, to_dict
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["plan_set"]

Previews = Mapping[str, Opened | BaseException]


def plan_set(spec: LandingSetSpec, output: Output, *, explain: bool) -> int:
    """Show all plans; the exit code.

    :raises SourceError: there is no topic for any landing
    :raises SourceUnavailableError: the brokers do not answer
    """
    expansion = found_landings(spec.landing_set, spec.kafka)
    tables = Tables(spec.catalog, few=CLIENTS)

    def look(session: LandingSession) -> Opened:
        session.landing = with_schema(spec.landing_set, session.landing, spec.kafka, tables)
        return preview(session)

    try:
        with SetConnections(spec.landing_set, expansion, spec.kafka, tables, deployment=CLI) as connections:
            found: Previews = for_all(connections, expansion.landings, look, output.log)
    finally:
        tables.close()
    if output.as_json:
        output.result(_as_dict(spec, expansion, found))
    else:
        output.lines(_lines(expansion, found, explain=explain))
    failed = any(isinstance(each, BaseException) for each in found.values())
    return Exit.REFUSED if failed or expansion.troubles else Exit.DONE


def _as_dict(spec: LandingSetSpec, expansion: Expansion, found: Previews) -> dict[str, object]:
    return {
        "landing_set": spec.landing_set.name,
        "plans": [to_dict(each) for each in found.values() if not isinstance(each, BaseException)],
        "failed": {name: str(each) for name, each in found.items() if isinstance(each, BaseException)},
        "without_landing": [{"topics": list(t.topics), "table": t.table, "why": t.why} for t in expansion.troubles],
        "ignored": list(expansion.ignored),
    }


def _lines(expansion: Expansion, found: Previews, *, explain: bool) -> Iterator[str]:
    plans = {name: each for name, each in found.items() if not isinstance(each, BaseException)}
    for opened in plans.values():
        yield from text_of(opened, explain=explain, short=True)
    yield from (f"FAILED {name}: {each}" for name, each in found.items() if name not in plans)
    yield from (f"NO LANDING {trouble}" for trouble in expansion.troubles)
    yield from (f"ignored: topic {topic} matches no rule" for topic in expansion.ignored)
    slices = [s for each in plans.values() for s in each.slices]
    yield (
        f"{len(found)} landings: {sum(map(len, slices))} offsets in {len(slices)} slices of "
        f"{sum(bool(each.slices) for each in plans.values())} landings; {len(found) - len(plans)} cannot be planned; "
        f"{sum(len(t.topics) for t in expansion.troubles)} topics have no landing, {len(expansion.ignored)} are ignored"
    )
