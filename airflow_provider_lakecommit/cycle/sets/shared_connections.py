# SPDX-License-Identifier: Apache-2.0
"""The connections that all landings of a set share.

Contract: one admin client and one read of the topics, one reader of the control topic and a writer for each of its
partitions, the clients of the catalog. :meth:`SetConnections.session` returns a landing's session on them, which
behaves like any other. Nothing is contacted before it is needed.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.sets.shared_source` and
:mod:`~airflow_provider_lakecommit.cycle.sets.shared_control`. A closed session leaves the connections to the others.

:func:`for_all` does one step of all landings (a plan, a preview, a commit): each runs in its own session and thread,
and its result or exception is kept by name.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.session.concurrent`: a landing that fails or hangs
affects no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Self, TypeVar

from airflow_provider_lakecommit.control import ControlTopic, Recent
from airflow_provider_lakecommit.core import SourcePartition
from airflow_provider_lakecommit.cycle.session.concurrent import ConcurrentLandings
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.sets.expansion import Expansion, expand, matches_nothing
from airflow_provider_lakecommit.cycle.sets.shared_control import SharedControl
from airflow_provider_lakecommit.cycle.sets.shared_source import SharedSource
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.kafka import ClusterAdmin, SourceTopics
from airflow_provider_lakecommit.landing import Landing, LandingSet


class SetConnections:
    """A context manager.

    :param kafka: librdkafka settings
    :param tables: the catalog of all landings; its maker closes it
    :param deployment: the owner of the transactional ids
    :param catalog_key: key of the catalog in this process
    """

    def __init__(
        self,
        declared: LandingSet,
        expansion: Expansion,
        kafka: Mapping[str, Any],
        tables: Tables,
        *,
        deployment: str,
        catalog_key: str = "",
    ) -> None:
        self.expansion = expansion
        self._kafka, self._tables, self._catalog_key = kafka, tables, catalog_key
        self._topics = SourceTopics(kafka, expansion.topics)
        self._control_topic = ControlTopic(declared.control_topic_name, kafka)
        self._source = SharedSource(self._topics)
        self._control = SharedControl(self._control_topic, declared.name, deployment, len(expansion.landings))

    def session(self, landing: Landing, log: Callable[[str], None]) -> LandingSession:
        """Return one landing's session, for its own thread. A landing that left the set brings its own topics."""
        topics = landing.topic_names
        shared = {*topics} <= {*self.expansion.topics}
        return LandingSession(
            landing=landing,
            kafka=self._kafka,
            tables=self._tables,
            control=self._control.of(landing.name),
            source=self._source.of(topics) if shared else self._topics.of(topics),
            log=log,
            catalog_key=self._catalog_key,
            lent=True,
        )

    def marks(self, landing: Landing) -> Mapping[SourcePartition, int]:
        """Return how far the landing's topics can be read, by the newest read, which stays for the landing to use."""
        return self._source.stable(landing.topic_names)

    def recent(self) -> Recent:
        """Return the newest control records of all landings, by name; none where there is no control topic yet.

        :raises ControlTopicError: the topic cannot be read
        """
        return self._control.recent() if self._control.topic.exists() else {}

    def close(self) -> None:
        self._control.close()
        self._control_topic.close()
        self._topics.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def found_landings(declared: LandingSet, kafka: Mapping[str, Any], timeout: float = 15.0) -> Expansion:
    """Return the landings of a set, by the brokers' current topics.

    :raises SourceError: there is no topic for any
    :raises SourceUnavailableError: the brokers do not answer
    """
    admin = ClusterAdmin(
        kafka,
        timeout=timeout,
        away=SourceUnavailableError,
        refused=SourceError,
        remedy=lambda: "grant this principal DESCRIBE on the topics",
    )
    try:
        known = admin.listed() if declared.topics_pattern is not None else declared.topic_names
    finally:
        admin.close()
    found = expand(declared, known)
    if not found.landings and not found.troubles and not found.ignored:
        raise SourceError("LC6229", matches_nothing(declared, known))
    return found


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
