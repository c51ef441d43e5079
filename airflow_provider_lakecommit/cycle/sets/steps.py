# SPDX-License-Identifier: Apache-2.0
"""One step of all landings of a set, concurrently: a plan, a preview, a commit.

Contract: each landing's step runs in its own session and thread, and its result or exception is kept by name.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.session.concurrent`: a landing that fails or hangs
affects no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from airflow_provider_lakecommit.cycle.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.sets.connections import SetConnections
from airflow_provider_lakecommit.landing import Landing

CLIENTS = 6
"""Catalog clients of a set; see :class:`~airflow_provider_lakecommit.iceberg.catalog.Tables`."""

T = TypeVar("T")


def for_all(
    connections: SetConnections,
    landings: Iterable[Landing],
    step: Callable[[LandingSession], T],
    log: Callable[[str], None],
    *,
    concurrent: ConcurrentLandings | None = None,
) -> Mapping[str, T | BaseException]:
    """Do a step of each landing; return the result or exception of each.

    :param log: takes each line after the landing's name
    :param concurrent: runs the landings together with others
    :raises BaseException: an interruption of the caller
    """

    def one(landing: Landing) -> T:
        with connections.session(landing, lambda line: log(f"{landing.name}: {line}")) as session:
            return step(session)

    works = {landing.name: partial(one, landing) for landing in landings}
    if concurrent is not None:
        return concurrent.run(works)
    with ConcurrentLandings() as own:
        return own.run(works)
