# SPDX-License-Identifier: Apache-2.0
"""One step of all landings of a set, side by side: a plan, a preview, a commit.

Contract: each landing's step is done in its own session, in a thread of its own, and how it ended is known by its name:
the step's result, or what it raised.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.session.concurrent`: a landing that fails or hangs is
that landing's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from airflow_provider_lakecommit.cycle.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.sets.connections import SetConnections
from airflow_provider_lakecommit.landing import Landing

__all__ = ["CLIENTS", "for_all"]

CLIENTS = 6
"""Of the catalog, for a set; see :class:`~airflow_provider_lakecommit.iceberg.catalog.Tables`."""

T = TypeVar("T")


def for_all(
    connections: SetConnections,
    landings: Iterable[Landing],
    step: Callable[[LandingSession], T],
    log: Callable[[str], None],
    *,
    concurrent: ConcurrentLandings | None = None,
) -> Mapping[str, T | BaseException]:
    """Do a step of each landing; how each ended.

    :param log: gets each line with the landing's name before it
    :param concurrent: where others work too
    :raises BaseException: what interrupts the caller
    """

    def one(landing: Landing) -> T:
        with connections.session(landing, lambda line: log(f"{landing.name}: {line}")) as session:
            return step(session)

    works = {landing.name: partial(one, landing) for landing in landings}
    if concurrent is not None:
        return concurrent.run(works)
    with ConcurrentLandings() as own:
        return own.run(works)
