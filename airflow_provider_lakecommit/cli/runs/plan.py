# SPDX-License-Identifier: Apache-2.0
"""`lakecommit plan`: show the next cycle's window and the reasons. Creates the control topic, writes nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.cycle import LandingSession, Opened, preview
from airflow_provider_lakecommit.formats import registry_lines
from airflow_provider_lakecommit.landing import LandingSpec


def plan(spec: LandingSpec, output: Output, *, explain: bool) -> int:
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        opened = preview(session)
        opened = replace(opened, explain=(*opened.explain, *registry_lines(spec.landing, spec.kafka)))
    output.answer(to_dict(opened), text_of(opened, explain=explain))
    return Exit.REFUSED if opened.plan.stopped else Exit.DONE


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
