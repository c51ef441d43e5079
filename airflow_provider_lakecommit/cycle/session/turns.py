# SPDX-License-Identifier: Apache-2.0
"""Which run of a DAG follows a landing now: the one that began last; one that it took over from ends.

Contract: a turn is the place in the control log at which a run began to follow, and is told in the START of each of its
cycles, but for the first ones, before it has shown that it can land. Who sees a START with a later one, or with the
same one of a run whose id sorts after its own, has been taken over from. So of any runs exactly one stays, whatever
they have seen of each other, and no clock is asked. Only runs of one DAG in one deployment are compared: what another
DAG, another Airflow or a command line lands ends nobody's work.

Failure story: a turn is no lock. Until the earlier run has seen the later one both land, as any two runs may. A retry
of a run that was taken over from takes over again. Where the control topic is made anew its offsets begin anew: a run
from before then takes a turn in it, and so takes over from those that have begun in it by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import Cycle, CycleOpened
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND, LandingSession, RunIdentity

__all__ = ["LogPlace", "cycles_since", "log_end", "successor_of", "turn_at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """Where a run looks on for those after it."""

    partition: int
    offset: int


def log_end(session: LandingSession, partition: int) -> LogPlace:
    """Where a partition of the control log ends now.

    :raises ControlTopicError: the control topic cannot be read
    """
    return LogPlace(partition=partition, offset=session.control.read(partition, BEYOND).end)


def turn_at(place: LogPlace) -> int:
    """The turn of a run that began there; above zero."""
    return 1 + place.offset


def cycles_since(session: LandingSession, place: LogPlace) -> tuple[list[Cycle], LogPlace]:
    """Those that were opened from a place of the log on, and where it ends now: before that place, where the control
    topic was made anew.

    :raises ControlTopicError: the control topic cannot be read
    """
    log = session.control.read(place.partition, place.offset)
    entries = read_entries(log.records, session.landing.name, session.lane)
    return [e.cycle for e in entries if isinstance(e, CycleOpened)], replace(place, offset=log.end)


def successor_of(cycles: Iterable[Cycle], run: RunIdentity) -> str | None:
    """Id of the run that has taken over from this one; ``None``: none has, or this one takes no turns."""
    if not run.turn:
        return None
    place = run.deployment, run.dag_id
    later = ((c.turn, c.run) for c in cycles if c.turn and c.run != run.run_id and (c.deployment, c.dag) == place)
    turn, run_id = max(later, default=(0, ""))
    return run_id if (turn, run_id) > (run.turn, run.run_id) else None
