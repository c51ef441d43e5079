# SPDX-License-Identifier: Apache-2.0
"""`lakecommit plan SET.yaml`: the next cycle of each landing of a set, a line each.

Topics without a landing, and landings that cannot be planned, are listed and affect the exit code.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_provider_lakecommit.cli.runs.opened_set import opened_set
from airflow_provider_lakecommit.cli.runs.plan import text_of, to_dict
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.cycle import Expansion, SetPlans, format_former, plans_of, preview
from airflow_provider_lakecommit.landing import LandingSetSpec


def plan_set(spec: LandingSetSpec, output: Output, *, explain: bool) -> int:
    with opened_set(spec) as (expansion, tables, connections):
        plans = plans_of(spec.landing_set, expansion, connections, spec.kafka, tables, preview, output.log)
    output.answer(_as_dict(spec, expansion, plans), _lines(expansion, plans, explain=explain))
    return Exit.REFUSED if plans.failed or expansion.troubles else Exit.DONE


def _as_dict(spec: LandingSetSpec, expansion: Expansion, plans: SetPlans) -> dict[str, object]:
    return {
        "landing_set": spec.landing_set.name,
        "plans": [to_dict(each) for each in plans.opened.values()],
        "nothing": dict(plans.nothing),
        "failed": {name: str(each) for name, each in plans.failed.items()},
        **expansion.left_out,
        "gone": {each.name: list(each.landing.topic_names) for each in plans.former.found if each.topics_missing},
        "former": [each.to_dict() for each in plans.former.found],
    }


def _lines(expansion: Expansion, plans: SetPlans, *, explain: bool) -> Iterator[str]:
    for opened in plans.opened.values():
        yield from text_of(opened, explain=explain, short=True)
    yield from (f"{name}: {why}" for name, why in plans.nothing.items())
    yield from (f"FAILED {name}: {each}" for name, each in plans.failed.items())
    yield from (f"NO LANDING {trouble}" for trouble in expansion.troubles)
    yield from map(format_former, plans.former.found)
    yield from (f"ignored: topic {topic} matches no rule" for topic in expansion.ignored)
    slices = [s for each in plans.opened.values() for s in each.slices]
    yield (
        f"{len(expansion.landings)} landings: {sum(map(len, slices))} offsets in {len(slices)} slices of "
        f"{sum(bool(each.slices) for each in plans.opened.values())} landings; {len(plans.failed)} cannot be planned; "
        f"{sum(len(t.topics) for t in expansion.troubles)} topics have no landing, {len(expansion.ignored)} are ignored"
    )
