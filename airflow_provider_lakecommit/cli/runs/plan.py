# SPDX-License-Identifier: Apache-2.0
"""`lakecommit plan`: show the next cycle's window and the reasons, of a set a line for each landing.

Creates the control topic, writes nothing else. Topics without a landing, and landings that cannot be planned, are
listed and affect the exit code.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.cycle import (
    CLIENTS,
    Expansion,
    LandingSession,
    Opened,
    SetConnections,
    SetPlans,
    format_former,
    found_landings,
    plans_of,
    preview,
)
from airflow_provider_lakecommit.formats import registry_lines
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.landing import LandingSetSpec, LandingSpec
from airflow_provider_lakecommit.spark import CLI


def plan(spec: LandingSpec, options: Namespace, output: Output) -> int:
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        opened = preview(session)
        opened = replace(opened, explain=(*opened.explain, *registry_lines(spec.landing, spec.kafka)))
    output.answer(to_dict(opened), text_of(opened, explain=_explains(options)))
    return Exit.REFUSED if opened.plan.stopped else Exit.DONE


def _explains(options: Namespace) -> bool:
    """Return False for `land --dry-run`, which has no such option."""
    return bool(getattr(options, "explain", False))


def to_dict(opened: Opened) -> dict[str, Any]:
    found = opened.plan
    return {
        "landing": found.landing,
        "window_id": str(found.window_id),
        "asked_at": found.requested_at.isoformat(),
        "offsets": found.coverage.to_dict(),
        "records": sum(len(s) for s in opened.slices),
        "left": found.left,
        "reason": found.reason,
        "groups": [{"group": g.group, "slices": g.slices, "records": g.records} for g in opened.groups],
        "slices": [
            {"slice_id": str(s.slice_id), "group": s.group, "tables": list(s.tables), "offsets": s.coverage.to_dict()}
            for s in opened.slices
        ],
        "ends": {str(p): end for p, end in sorted(found.ends.items())},
        "explain": list(opened.explain),
    }


def text_of(opened: Opened, *, explain: bool, short: bool = False) -> Iterable[str]:
    """Yield the plan as text.

    :param short: one line per plan
    """
    found = opened.plan
    if opened.slices:
        records = sum(len(s) for s in opened.slices)
        yield f"{found.landing}: {records} offsets in {len(opened.slices)} slices, {len(opened.groups)} groups"
    else:
        yield f"{found.landing}: {found.reason}"
    if opened.slices and found.stopped:
        yield f"  not all is planned: {found.stopped}"
    for ticket in () if short else opened.groups:
        yield f"  group {ticket.group}: {ticket.records} offsets in {ticket.slices} slices"
    if found.left:
        yield f"  left for a later window: {found.left} offsets"
    if explain:
        yield from (f"  {line}" for line in opened.explain)
        yield from (f"  slice of group {s.group}: {s} for {', '.join(s.tables)}" for s in opened.slices)


def plan_set(spec: LandingSetSpec, options: Namespace, output: Output) -> int:
    with opened_set(spec) as connections:
        expansion = connections.expansion
        plans = plans_of(spec.landing_set, connections, preview, output.log)
    values = {
        "landing_set": spec.landing_set.name,
        "plans": [to_dict(each) for each in plans.opened.values()],
        "nothing": dict(plans.nothing),
        "failed": {name: str(each) for name, each in plans.failed.items()},
        **expansion.left_out,
        "gone": {each.name: list(each.landing.topic_names) for each in plans.former if each.topics_missing},
        "former": [each.to_dict() for each in plans.former],
    }
    output.answer(values, _lines(expansion, plans, explain=_explains(options)))
    return Exit.REFUSED if plans.failed or expansion.troubles else Exit.DONE


def _lines(expansion: Expansion, plans: SetPlans, *, explain: bool) -> Iterator[str]:
    for opened in plans.opened.values():
        yield from text_of(opened, explain=explain, short=True)
    yield from (f"{name}: {why}" for name, why in plans.nothing.items())
    yield from (f"FAILED {name}: {each}" for name, each in plans.failed.items())
    yield from (f"NO LANDING {trouble}" for trouble in expansion.troubles)
    yield from map(format_former, plans.former)
    yield from (f"ignored: topic {topic} matches no rule" for topic in expansion.ignored)
    slices = [s for each in plans.opened.values() for s in each.slices]
    yield (
        f"{len(expansion.landings)} landings: {sum(map(len, slices))} offsets in {len(slices)} slices of "
        f"{sum(bool(each.slices) for each in plans.opened.values())} landings; {len(plans.failed)} cannot be planned; "
        f"{sum(len(t.topics) for t in expansion.troubles)} topics have no landing, {len(expansion.ignored)} are ignored"
    )


@contextmanager
def opened_set(spec: LandingSetSpec) -> Iterator[SetConnections]:
    expansion = found_landings(spec.landing_set, spec.kafka)
    tables = Tables(spec.catalog, few=CLIENTS)
    try:
        with SetConnections(spec.landing_set, expansion, spec.kafka, tables, deployment=CLI) as connections:
            yield connections
    finally:
        tables.close()
