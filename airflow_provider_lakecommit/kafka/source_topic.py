# SPDX-License-Identifier: Apache-2.0
"""The current source topics of a landing: ids, partitions, and how far they can be read.

Contract: one :class:`SourceState` is consistent: all offsets belong to the topic ids in it, `start <= stable <= high`,
and every record below `stable` is decided. `stable` is the last stable offset, the only end to which a window may be
planned; a `high` above it is an open transaction, not "nothing new". Nothing is consumed and no group is used.

Failure story: a topic that is missing or may not be read is a :class:`SourceError` with the remedy; brokers that do not
answer within `timeout` are a :class:`SourceUnavailableError` with the cause.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from airflow_provider_lakecommit.core import ReadPosition, Retention, SourcePartition, Span, Truncation, Watermark
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka.admin import ClusterAdmin, TopicFacts
from airflow_provider_lakecommit.kafka.admin_requests import PendingAnswers, StaleTopicError
from airflow_provider_lakecommit.kafka.config import bootstrap_servers
from airflow_provider_lakecommit.kafka.log_truncation import diverged
from airflow_provider_lakecommit.kafka.partition_tail import CorruptBatch, PartitionTail
from airflow_provider_lakecommit.kafka.record import bounded_time
from airflow_provider_lakecommit.landing import meant

SETTINGS_SECONDS = 300.0
"""For how long the settings of a topic are taken to be what they were."""

First = tuple[int, datetime] | None
"""The first offset at or after some time, and its timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The source topics at `requested_at`, a time before any of the offsets was requested."""

    cluster_id: str
    requested_at: datetime
    partitions: Mapping[SourcePartition, Watermark]
    missing_topics: tuple[str, ...] = ()

    @property
    def topic_ids(self) -> dict[str, str]:
        return {p.topic: p.topic_id for p in self.partitions}


class SourceTopics:
    """The topics of one landing. Usable as a context manager."""

    def __init__(self, config: Mapping[str, Any], topics: tuple[str, ...], timeout: float = 15.0) -> None:
        self._config = config
        self._timeout = timeout
        self._topics = topics
        self._settings: PendingAnswers[str, dict[str, str]] | None = None
        self._requested_at = 0.0
        self._admin = ClusterAdmin(
            config,
            timeout=timeout,
            away=SourceUnavailableError,
            refused=SourceError,
            remedy=lambda: "grant this principal DESCRIBE and READ on it",
        )

    def of(self, topics: tuple[str, ...]) -> SourceTopics:
        """Return other topics of the same cluster; the caller closes them."""
        return SourceTopics(self._config, topics, self._timeout)

    def beside(self, topics: tuple[str, ...]) -> SourceTopics:
        """Return other topics that use the client of these and are closed with these."""
        other = self.of(topics)
        other._admin = self._admin
        return other

    def watermarks(self, *, missing_ok: bool = False) -> SourceState:
        """How far all partitions of all topics reach.

        :param missing_ok: name topics that do not exist in the answer.
        :raises SourceError: a topic does not exist, or may not be read
        :raises SourceUnavailableError: the brokers did not answer, or refused the login
        """
        return self._admin.steadily("asking for the source's offsets", lambda: self._read_state(missing_ok))

    def request_retention(self) -> None:
        """Request the topics' settings, unless this was done a moment ago; does not wait."""
        if self._settings is None or time.monotonic() - self._requested_at > SETTINGS_SECONDS:
            self._requested_at = time.monotonic()
            self._settings = self._admin.request_settings(self._topics)

    def retentions(self, seconds: float) -> dict[str, Retention]:
        """Return each topic's settings about removal, if they are known after at most that time."""
        self.request_retention()
        found = self._settings.within(seconds) if self._settings else {}
        out: dict[str, Retention] = {}
        for topic, settings in found.items():
            with contextlib.suppress(KeyError, ValueError):
                out[topic] = Retention.of(settings)
        if len(out) < len(self._topics):
            self._settings = None
        return out

    def request_first_since(
        self, times: Iterable[tuple[SourcePartition, datetime]]
    ) -> Callable[[float], list[tuple[SourcePartition, datetime, First]]]:
        """Request the first offset at or after a time, for any number of partitions and times, without waiting.

        The answer waits for at most the given seconds; unanswered ones are left out.
        """
        rounds: list[
            tuple[dict[SourcePartition, datetime], PendingAnswers[tuple[str, int], tuple[int, int] | None]]
        ] = []
        left = list(times)
        while left:
            now: dict[SourcePartition, datetime] = {}
            rest = [(p, t) for p, t in left if now.setdefault(p, t) is not t]
            moments = {(p.topic, p.partition): int(t.timestamp() * 1000) for p, t in now.items()}
            rounds.append((now, self._admin.request_first_since(moments)))
            left = rest

        def answers(seconds: float) -> list[tuple[SourcePartition, datetime, First]]:
            deadline = time.monotonic() + seconds
            out: list[tuple[SourcePartition, datetime, First]] = []
            for moments, answer in rounds:
                found = answer.within(deadline - time.monotonic())
                out += [
                    (p, t, _first(found[p.topic, p.partition]))
                    for p, t in moments.items()
                    if (p.topic, p.partition) in found
                ]
            return out

        return answers

    def diverged(self, positions: Iterable[tuple[SourcePartition, ReadPosition]]) -> list[Truncation]:
        """Return the positions at which the logs have other records than those that were read.

        :raises SourceUnavailableError: the brokers did not answer in time
        """
        return diverged(self._config, positions, self._timeout)

    def first_value(self, span: Span) -> int | None:
        """Where the first record of a span is that has a value; ``None``: there is none, or the source has removed it.

        :raises SourceUnavailableError: the brokers did not answer
        """
        p, timeout, away = span.partition, self._timeout, SourceUnavailableError
        with (
            contextlib.closing(PartitionTail(self._config, p.topic, p.partition, timeout=timeout, away=away)) as tail,
            contextlib.suppress(StaleTopicError),
        ):
            for found in tail.read(span.range.start, span.range.end):
                if isinstance(found, CorruptBatch):
                    # It may have held one.
                    return found.start
                if found.value() is not None:
                    return found.offset()
        return None

    def close(self) -> None:
        self._admin.close()
        self._settings = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read_state(self, missing_ok: bool) -> SourceState:
        requested_at = datetime.now(UTC)
        cluster_id = self._admin.cluster_id()
        described = self._admin.topics(self._topics)
        missing = tuple(name for name in self._topics if described[name] is None)
        if missing and not missing_ok:
            raise self._missing(missing)
        topics = [facts for facts in described.values() if facts is not None]
        partitions = self._offsets(topics)
        if self._admin.topics(self._topics) != described:
            raise StaleTopicError(f"{', '.join(self._topics)}: recreated or given more partitions while being read")
        return SourceState(
            cluster_id=cluster_id, requested_at=requested_at, partitions=partitions, missing_topics=missing
        )

    def _offsets(self, topics: list[TopicFacts]) -> dict[SourcePartition, Watermark]:
        partitions = [(facts.name, partition) for facts in topics for partition in facts.partitions]
        found = self._admin.borders(partitions)
        return {
            SourcePartition(facts.name, partition, facts.topic_id): found[facts.name, partition]
            for facts in topics
            for partition in facts.partitions
        }

    def _missing(self, names: tuple[str, ...]) -> SourceError:
        known = self._admin.names()
        listed = ", ".join(f"{name!r}{meant(name, known)}" for name in names)
        return SourceError(
            "LC2006",
            f"topic {listed} does not exist in Kafka at {bootstrap_servers(self._config)}: correct `topics` of the "
            "landing or create it; you get the same message for a topic that this principal may not describe",
        )


def _first(found: tuple[int, int] | None) -> First:
    return None if found is None else (found[0], bounded_time(found[1]))
