# SPDX-License-Identifier: Apache-2.0
"""Which continuous run of a DAG stays for a landing: the one that began last; it ends the others.

Contract: a turn is the log position at which a run began, sent in the START of each of its cycles, except the first
ones, before it has shown that it can land. A run that reads a START with a later turn, or with the same turn and a
greater run id, has been replaced. So of any runs exactly one stays, whatever they have read, and no clock is used. Only
runs of one DAG in one deployment are compared: other DAGs, other Airflows and command lines end no run.

Failure story: a turn is no lock. Until the earlier run reads the later one's START both land, as any two runs may. A
retry of a replaced run takes over again. If the control topic is recreated, its offsets begin anew: an older run takes
a turn in it, and so takes over from those that began in it by then.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import Cycle, CycleOpened
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession, RunIdentity


def log_end(session: LandingSession, partition: int) -> int:
    """Return the current end of a partition of the control topic.

    :raises ControlTopicError: the control topic cannot be read
    """
    return session.control.read(partition, BEYOND).end


def turn_at(offset: int) -> int:
    """Return the turn of a run that began there; above zero."""
    return 1 + offset


def cycles_since(session: LandingSession, partition: int, offset: int) -> tuple[list[Cycle], int]:
    """Return the cycles opened since a log offset, and the log's end: before that offset, if the control topic was
    recreated.

    :raises ControlTopicError: the control topic cannot be read
    """
    log = session.control.read(partition, offset)
    entries = read_entries(log.records, session.landing.name, session.lane)
    return [e.cycle for e in entries if isinstance(e, CycleOpened)], log.end


def successor_of(cycles: Iterable[Cycle], run: RunIdentity) -> str | None:
    """Return the id of the run that replaced this one; ``None`` if none has, or this one takes no turns."""
    if not run.turn:
        return None
    key = run.deployment, run.dag_id
    later = ((c.turn, c.run) for c in cycles if c.turn and c.run != run.run_id and (c.deployment, c.dag) == key)
    turn, run_id = max(later, default=(0, ""))
    return run_id if (turn, run_id) > (run.turn, run.run_id) else None
