# SPDX-License-Identifier: Apache-2.0
"""One step of all landings of a set, side by side: a plan, a preview, a commit.

Contract: each landing's step is done in its own session, in a thread of its own, and how it ended is known by its name:
the step's result, or what it raised. Few are done at a time (:data:`AT_ONCE`), so that as many share each request; a
landing that takes long makes room for another one.

Failure story: that of :mod:`~airflow_provider_lakecommit.session.concurrent`: a landing that fails or hangs is that
landing's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.many.connections import SetConnections
from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["AT_ONCE", "CLIENTS", "MOST", "for_all"]

AT_ONCE = 96
"""Landings at a time."""
MOST = 192
"""Those that hang included."""

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
    with ConcurrentLandings(threads=AT_ONCE, most=MOST) as own:
        return own.run(works)
