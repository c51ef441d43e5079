# SPDX-License-Identifier: Apache-2.0
"""`lakecommit ledger prune`: what of the tables' ledgers is gone for good, and taking it out.

Contract: only shows until it is given `--yes`; on a terminal it asks.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.repair.prune import Prunable, look, prune
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.terminal.confirm import asked, at_a_terminal, decision_of
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["ledger_prune"]


def ledger_prune(spec: LandingSpec, output: Output, *, yes: bool, reason: str = "") -> int:
    """Show what would be taken out, and take it out if *yes*.

    :raises LakecommitError: a part that is needed is away, or a ledger needs something else first
    """
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        found = look(session)
        shown = any(f.gone for f in found) and not yes and not output.as_json and at_a_terminal()
        if shown:
            output.lines(_text(found, {}))
            yes = asked(output)
        told = decision_of("ledger prune", spec.landing.name, reason)
        after = {f.table: prune(session, f, told).share for f in found if f.gone} if yes else {}
    if output.as_json:
        output.result({"tables": [_to_dict(f, after.get(f.table)) for f in found], "written": yes})
        return Exit.DONE
    if not shown or after:
        output.lines(_text(found, after))
    if after:
        output.lines(["written"])
    elif not shown and any(f.gone for f in found):
        output.lines(["nothing is written: the same with --yes writes it; what is pending is read again then"])
    return Exit.DONE


def _to_dict(found: Prunable, after: float | None) -> dict[str, object]:
    gone = [
        {"landing": landing, "lane": lane, "partitions": sorted(f"{p} of topic id {p.topic_id}" for p in parts)}
        for (landing, lane), parts in sorted(found.gone.items())
    ]
    return {"table": found.table, "share": found.state.share, "gone": gone, "share_after": after}


def _text(found: Iterable[Prunable], after: dict[str, float]) -> Iterable[str]:
    for f in found:
        now = f", {after[f.table]:.1%} now" if f.table in after else ""
        yield f"{f.table}: its ledger takes {f.state.share:.1%} of its room{now}"
        for (landing, lane), parts in sorted(f.gone.items()):
            yield f"  landing {landing}, lane {lane}:"
            for p in sorted(parts):
                landed = f.landed((landing, lane), p)
                yield f"    {p} of topic id {p.topic_id}, which is gone: {landed} landed offsets"
        if not f.gone:
            yield "  nothing of it is gone"
