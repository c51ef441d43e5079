# SPDX-License-Identifier: Apache-2.0
"""Questions to a cluster: which topics are there, under which ids, from which offset to which.

Contract: every question is answered by the brokers now, never from a cache, within `timeout`. Answers that a change
in the cluster explains (an election, a broker that restarts, metadata still on its way) are asked for again until
then.

Failure story: brokers that give no answer end in the `away` error, with the cause; brokers that do not allow the
question in the `refused` error, with the remedy; refused credentials at once. A topic that vanished or changed
between two questions is :class:`StaleTopicError`, on which :meth:`ClusterAdmin.steadily` looks again from the
start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, and exported without saying so
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.kafka.config import Trouble, bootstrap_servers, made, unreachable

__all__ = ["Asked", "ClusterAdmin", "Edge", "StaleTopicError", "TopicFacts", "TopicRights", "topic_id_text"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

LOOK_SECONDS = 0.1
PAUSE_SECONDS = 0.05

_AGAIN = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_CACHE,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    }
)
# "No leaders found" is what a question about offsets gets for a topic that is not, or not yet, in the metadata.
_STALE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._NOENT})

_DENIED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


class StaleTopicError(Exception):
    """The topic is not what it was a moment ago: what was learned of it must be asked for again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic as the brokers describe it."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRights:
    """A topic, and what this principal may do with it. ``replicas`` is that of the partition with the fewest."""

    partitions: int
    replicas: int
    operations: frozenset[AclOperation]


class Edge(Enum):
    """A border of a partition's log. The last two are one past the last record that can be read, and that there is."""

    START = "log start"
    STABLE = "last stable offset"
    HIGH = "high watermark"


class Asked(Generic[K, V]):
    """Questions that are on their way while the caller does something else. Nothing is asked again: what has no answer
    by the time it is wanted, or a refusal, is simply not known.
    """

    def __init__(self, futures: Mapping[K, Future[Any]], read: Callable[[Any], V]) -> None:
        self._futures = futures
        self._read = read

    def within(self, seconds: float) -> dict[K, V]:
        """What is answered after at most that time."""
        wait(self._futures.values(), timeout=max(0.0, seconds))
        done = {key: f for key, f in self._futures.items() if f.done() and f.exception() is None}
        return {key: self._read(f.result()) for key, f in done.items()}


def topic_id_text(topic_id: Uuid) -> str:
    """A topic id as Kafka's own tools print it: base64 of the file-name safe kind, where librdkafka uses the other."""
    return str(topic_id).replace("+", "-").replace("/", "_")


class ClusterAdmin:
    """One admin client, made at the first question.

    :param away: the error when the brokers do not answer.
    :param refused: the error when they do not allow it.
    :param remedy: what helps then.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        timeout: float,
        away: type[LakecommitError],
        refused: type[LakecommitError],
        remedy: Callable[[], str],
    ) -> None:
        self._config = config
        self._timeout = timeout
        self._away = away
        self._refused = refused
        self._remedy = remedy
        self._trouble = Trouble(config.get("error_cb"))
        self._made: AdminClient | None = None

    @property
    def _client(self) -> AdminClient:
        if self._made is None:
            self._made = made(AdminClient, self._config, self._trouble)
        return self._made

    def close(self) -> None:
        """Let go of the connections; a later question makes new ones."""
        self._made = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        """Id of the cluster that answers now."""
        doing = "asking for the cluster id"
        answer = self._ask(doing, lambda left: {"": self._client.describe_cluster(request_timeout=left)})[""]
        return str(self._granted(doing, answer).cluster_id or "")

    def topics(self, names: Sequence[str]) -> dict[str, TopicFacts | None]:
        """What the brokers know of these topics; None for one that does not exist."""
        doing = f"describing {_listed(names)}"
        asked = TopicCollection(list(dict.fromkeys(names)))
        answers = self._ask(doing, lambda left: self._client.describe_topics(asked, request_timeout=left))
        return {name: self._facts(name, answer) for name, answer in answers.items()}

    def offsets(self, places: Iterable[tuple[str, int]], edge: Edge) -> dict[tuple[str, int], int]:
        """Where that border is in each partition.

        :raises StaleTopicError: one of them is not, or not yet, known
        """
        level = IsolationLevel.READ_UNCOMMITTED if edge is Edge.HIGH else IsolationLevel.READ_COMMITTED
        which = OffsetSpec.earliest if edge is Edge.START else OffsetSpec.latest
        spec = which()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, partition): spec for topic, partition in places}
        if not asked:
            return {}
        doing = f"asking for the {edge.value} of {_listed({place.topic for place in asked})}"
        answers = self._ask(
            doing, lambda left: self._client.list_offsets(asked, isolation_level=level, request_timeout=left)
        )
        return {(place.topic, place.partition): self._offset(place, edge, a) for place, a in answers.items()}

    def settings(self, topic: str) -> dict[str, str] | None:
        """The topic's settings; None when we may not look at them."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        answers = self._ask(
            f"reading the settings of topic {topic!r}",
            lambda left: self._client.describe_configs([resource], request_timeout=left),
        )
        entries = answers[resource]
        return None if isinstance(entries, KafkaError) else {key: str(entry.value) for key, entry in entries.items()}

    def ask_settings(self, topics: Iterable[str]) -> Asked[str, dict[str, str]]:
        """Ask for the settings of topics, in one go, without waiting."""
        asked = {ConfigResource(ResourceType.TOPIC, topic): topic for topic in topics}
        futures = self._client.describe_configs(list(asked), request_timeout=self._timeout)
        return Asked({asked[r]: f for r, f in futures.items()}, lambda e: {k: str(v.value) for k, v in e.items()})

    def ask_first_since(self, times: Mapping[tuple[str, int], int]) -> Asked[tuple[str, int], tuple[int, int] | None]:
        """Ask, without waiting, for the first offset at or after a time of each partition (milliseconds), and its
        timestamp; ``None`` where there is none.
        """
        asked = {TopicPartition(*place): OffsetSpec.for_timestamp(ms) for place, ms in times.items()}
        if not asked:
            return Asked({}, lambda _: None)
        futures = self._client.list_offsets(asked, request_timeout=self._timeout)
        return Asked(
            {(place.topic, place.partition): f for place, f in futures.items()},
            lambda found: None if found.offset < 0 else (int(found.offset), int(found.timestamp)),
        )

    def rights(self, topic: str) -> TopicRights | None:
        """What we may do with a topic; None when it does not exist, or may not even be described."""
        asked = TopicCollection([topic])
        answer = self._ask(
            f"asking for the rights on topic {topic!r}",
            lambda left: self._client.describe_topics(asked, include_authorized_operations=True, request_timeout=left),
        )[topic]
        if isinstance(answer, KafkaError):
            if answer.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, *_DENIED):
                return None
            answer = self._granted(f"describing topic {topic!r}", answer)
        return TopicRights(
            partitions=len(answer.partitions),
            replicas=min((len(p.replicas) for p in answer.partitions), default=0),
            operations=frozenset(answer.authorized_operations or ()),
        )

    def broker_settings(self) -> dict[str, str] | None:
        """The settings of one broker; None when we may not look at them."""
        doing = "asking for the brokers"
        answer = self._ask(doing, lambda left: {"": self._client.describe_cluster(request_timeout=left)})[""]
        node = self._granted(doing, answer).nodes[0]
        resource = ConfigResource(ResourceType.BROKER, str(node.id))
        answers = self._ask(
            "reading the settings of a broker",
            lambda left: self._client.describe_configs([resource], request_timeout=left),
        )
        entries = answers[resource]
        return None if isinstance(entries, KafkaError) else {key: str(entry.value) for key, entry in entries.items()}

    def create(
        self,
        topic: str,
        *,
        partitions: int,
        replication: int | None,
        settings: Mapping[str, str],
        trial: bool = False,
    ) -> KafkaError | None:
        """Create a topic; the brokers' objection, if they have one. Without *replication* their default is taken, as a
        *trial* nothing is made.
        """
        wanted = NewTopic(topic, partitions, -1 if replication is None else replication, config=dict(settings))
        answers = self._ask(
            f"creating topic {topic!r}",
            lambda left: self._client.create_topics([wanted], request_timeout=left, validate_only=trial),
        )
        answer = answers[topic]
        return answer if isinstance(answer, KafkaError) else None

    # -- patience -----------------------------------------------------------------------------------------------------

    def steadily(self, doing: str, look: Callable[[], T]) -> T:
        """What *look* finds, once the topics hold still while it looks."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return look()
            except StaleTopicError as changed:
                if time.monotonic() >= deadline:
                    detail = f"the topic kept changing or has no leader: {changed}"
                    raise unreachable(self._away, doing, self._config, self._trouble, self._timeout, detail) from None
            self.serve(LOOK_SECONDS)

    def serve(self, seconds: float) -> None:
        """Wait, and hear what the client has to say meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._client.poll(left)

    def _ask(self, doing: str, request: Callable[[float], Mapping[K, Future[V]]]) -> dict[K, V | KafkaError]:
        """The answers, each a value or an objection that trying again will not change."""
        self._trouble.forget()
        deadline = time.monotonic() + self._timeout
        while True:
            futures = request(max(deadline - time.monotonic(), LOOK_SECONDS))
            self._await(doing, futures.values())
            answers: dict[K, V | KafkaError] = {key: _outcome(future) for key, future in futures.items()}
            hopeful = [a for a in answers.values() if isinstance(a, KafkaError) and a.code() in _AGAIN]
            if not hopeful:
                return answers
            if time.monotonic() + PAUSE_SECONDS >= deadline:
                raise unreachable(self._away, doing, self._config, self._trouble, self._timeout, hopeful[0].str())
            self.serve(PAUSE_SECONDS)

    def _await(self, doing: str, futures: Iterable[Future[Any]]) -> None:
        pending = set(futures)
        while pending:
            pending = wait(pending, timeout=LOOK_SECONDS).not_done
            self._client.poll(0)
            if pending and self._trouble.denied:
                raise unreachable(self._away, doing, self._config, self._trouble, self._timeout)

    def _facts(self, name: str, answer: TopicDescription | KafkaError) -> TopicFacts | None:
        if isinstance(answer, KafkaError) and answer.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        described = self._granted(f"describing topic {name!r}", answer)
        ids = tuple(sorted(partition.id for partition in described.partitions))
        return TopicFacts(name=name, topic_id=topic_id_text(described.topic_id), partitions=ids)

    def _offset(self, place: TopicPartition, edge: Edge, answer: Any) -> int:
        where = f"{place.topic}[{place.partition}]"
        if isinstance(answer, KafkaError) and answer.code() in _STALE:
            raise StaleTopicError(f"{where}: {answer.str()}")
        return int(self._granted(f"asking for the {edge.value} of {where}", answer).offset)

    def _granted(self, doing: str, answer: V | KafkaError) -> V:
        if not isinstance(answer, KafkaError):
            return answer
        remedy = self._remedy() if answer.code() in _DENIED else "check the name"
        raise self._refused(f"{doing}: Kafka at {bootstrap_servers(self._config)} says: {answer.str()}; {remedy}")


def _outcome(future: Future[Any]) -> Any:
    """The value, or the broker's objection; anything else is a defect and is raised."""
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return error.args[0]
    raise error


def _listed(names: Iterable[str]) -> str:
    return "topic " + ", ".join(repr(name) for name in sorted(names))
