# SPDX-License-Identifier: Apache-2.0
"""Change the columns of a landing's tables on an operator's request, outside of any window.

Contract: :func:`evolve_now` reads the records that no table has yet, or, if there are none, all that the source has,
and changes the table like a window of an evolving landing, whatever the landing's ``evolve`` is. The table's history
keeps the user. It plans and lands nothing.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.plan.evolving`.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_lakecommit.core import Coverage, Decision, OffsetRange
from airflow_provider_lakecommit.cycle.plan.column_look import column_look
from airflow_provider_lakecommit.cycle.plan.evolving import evolve
from airflow_provider_lakecommit.cycle.plan.tables import prepare
from airflow_provider_lakecommit.cycle.plan.unbelieved import missing_or_told
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.formats import Change
from airflow_provider_lakecommit.kafka import SourceState


def evolve_now(
    session: LandingSession, decision: Decision | None
) -> tuple[tuple[str, ...], dict[str, tuple[Change, ...]]]:
    """Return the findings as lines, and the changes by table.

    :param session: of a landing whose ``evolve`` limits the changes
    :param decision: the operator's decision; ``None``: write nothing
    :raises LakecommitError: an error that would keep a window from being planned
    """
    source = session.source.watermarks()
    session.control.ensure()
    prepared = prepare(session, source, dry=decision is None)
    folded = session.read_state(prepared.ledgers)
    missing = missing_or_told(session, folded.state, source, folded.state.claims(session.now(), ()))
    look = column_look(session, prepared, folded, missing.coverage or _all(source), missing)
    if decision is None or look.waits or not look.changes:
        return look.lines, {}
    changes = [f"{one.table}: {c}" if one.named else str(c) for one in look.tables for c in one.found.changes]
    said = replace(decision, what="; ".join(changes))
    return look.not_made, evolve(session, look, said)


def _all(source: SourceState) -> Coverage:
    marks = source.partitions.items()
    return Coverage.of((p, OffsetRange(w.start, w.stable)) for p, w in marks if w.start < w.stable)
