# SPDX-License-Identifier: Apache-2.0
"""Requests to a cluster: its topics, their ids, and their first and last offsets.

Contract: the brokers answer every request, never a cache. As in
:mod:`~airflow_provider_lakecommit.kafka.admin_requests`, a request is repeated if a change in the cluster explains its
answer, and raises the same errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, and exported without saying so
    AclOperation,
    ConfigResource,
    DescribeClusterResult,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from airflow_provider_lakecommit.core import Watermark
from airflow_provider_lakecommit.kafka.admin_requests import DENIED, AdminRequests, PendingAnswers, StaleTopicError

# "No leaders found" is what a question about offsets gets for a topic that is not, or not yet, in the metadata.
_STALE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._NOENT})


MOST_NAMED = 5
"""Topics that a message names."""
NAMES_SECONDS = 3.0
"""For which the names of all topics are waited for; they are for a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic as the brokers describe it. If its rights were requested, ``operations`` are those of this principal;
    ``replicas`` are those of the partition with the fewest.
    """

    name: str
    topic_id: str
    partitions: tuple[int, ...]
    replicas: int = 0
    operations: frozenset[AclOperation] = frozenset()


class Edge(Enum):
    """A border of a partition's log. The last two are one past the last record that can be read, and that there is."""

    START = "log start"
    STABLE = "last stable offset"
    HIGH = "high watermark"


def topic_id_text(topic_id: Uuid) -> str:
    """A topic id as Kafka's own tools print it: base64 of the file-name safe kind, where librdkafka uses the other."""
    return str(topic_id).replace("+", "-").replace("/", "_")


class ClusterAdmin(AdminRequests):
    """Requests to a cluster."""

    def cluster_id(self) -> str:
        """Id of the cluster that answers now."""
        return str(self._cluster("asking for the cluster id").cluster_id or "")

    def names(self) -> tuple[str, ...]:
        """Return all topics that this principal may see; none if the brokers do not answer at once."""
        with contextlib.suppress(KafkaException):
            return tuple(self._client.list_topics(timeout=NAMES_SECONDS).topics)
        return ()

    def listed(self) -> tuple[str, ...]:
        """Return all topics that this principal may see, by name.

        :raises LakecommitError: the brokers do not answer in time; the kind is that of this admin
        """
        self._trouble.forget()
        try:
            return tuple(sorted(self._client.list_topics(timeout=self._timeout).topics))
        except KafkaException as e:
            raise self._unanswered("listing the topics", e.args[0].str()) from None

    def topics(self, names: Sequence[str]) -> dict[str, TopicFacts | None]:
        """Return the brokers' facts about these topics; None for a missing one."""
        doing = f"describing {_listed(names)}"
        request = TopicCollection(list(dict.fromkeys(names)))
        answers = self._request(doing, lambda left: self._client.describe_topics(request, request_timeout=left))
        return {name: self._facts(name, answer) for name, answer in answers.items()}

    def borders(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Watermark]:
        """Return the first and last offsets of each partition.

        :raises StaleTopicError: one of them is not, or not yet, known
        """
        if not partitions:
            return {}
        request = [TopicPartition(*partition) for partition in partitions]
        where = _listed({topic for topic, _ in partitions})
        answers = self._request_together(
            {f"asking for the {e.value} of {where}": self._about(e, request) for e in Edge}
        )
        found = [
            {(p.topic, p.partition): self._offset(p, edge, answer) for p, answer in of_edge.items()}
            for edge, of_edge in zip(Edge, answers, strict=True)
        ]
        marks = {}
        for partition in partitions:
            start, stable, high = (of_edge[partition] for of_edge in found)
            # Requested together, and each only grows: a record may be after the first and before the second.
            reach = max(start[0], stable[0])
            marks[partition] = Watermark(start=start[0], stable=reach, high=max(reach, high[0]), leader_epoch=high[1])
        return marks

    def _about(self, edge: Edge, request: Sequence[TopicPartition]) -> Callable[[float], Mapping[TopicPartition, Any]]:
        level = IsolationLevel.READ_UNCOMMITTED if edge is Edge.HIGH else IsolationLevel.READ_COMMITTED
        which = OffsetSpec.earliest if edge is Edge.START else OffsetSpec.latest
        spec: OffsetSpec = which()  # type: ignore[no-untyped-call]
        specs = dict.fromkeys(request, spec)
        return lambda left: self._client.list_offsets(specs, isolation_level=level, request_timeout=left)

    def settings(self, topic: str) -> dict[str, str] | None:
        """Return the topic's settings; None without the right to read them."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return self._settings(f"reading the settings of topic {topic!r}", resource)

    def request_settings(self, topics: Iterable[str]) -> PendingAnswers[str, dict[str, str]]:
        """Ask for the settings of topics, in one go, without waiting."""
        request = {ConfigResource(ResourceType.TOPIC, topic): topic for topic in topics}
        futures = self._client.describe_configs(list(request), request_timeout=self._timeout)
        return PendingAnswers(
            {request[r]: f for r, f in futures.items()}, lambda e: {k: str(v.value) for k, v in e.items()}
        )

    def request_first_since(
        self, times: Mapping[tuple[str, int], int]
    ) -> PendingAnswers[tuple[str, int], tuple[int, int] | None]:
        """Ask, without waiting, for the first offset at or after a time of each partition (milliseconds), and its
        timestamp; ``None`` where there is none.
        """
        request = {TopicPartition(*partition): OffsetSpec.for_timestamp(ms) for partition, ms in times.items()}
        if not request:
            return PendingAnswers({}, lambda _: None)
        futures = self._client.list_offsets(request, request_timeout=self._timeout)
        return PendingAnswers(
            {(partition.topic, partition.partition): f for partition, f in futures.items()},
            lambda found: None if found.offset < 0 else (int(found.offset), int(found.timestamp)),
        )

    def request_stable_ends(self, partitions: Iterable[tuple[str, int]]) -> PendingAnswers[tuple[str, int], int]:
        """Ask, without waiting, for the last stable offset of each partition."""
        request = [TopicPartition(*partition) for partition in partitions]
        futures = self._about(Edge.STABLE, request)(self._timeout) if request else {}
        return PendingAnswers({(p.topic, p.partition): f for p, f in futures.items()}, lambda found: int(found.offset))

    def rights(self, topic: str) -> TopicFacts | None:
        """Return our rights on a topic; None if it does not exist. A topic that may not be described has no partitions,
        whether it exists or not.
        """
        request = TopicCollection([topic])
        answer = self._request(
            f"asking for the rights on topic {topic!r}",
            lambda left: self._client.describe_topics(
                request, include_authorized_operations=True, request_timeout=left
            ),
        )[topic]
        if isinstance(answer, KafkaError) and answer.code() in DENIED:
            return TopicFacts(name=topic, topic_id="", partitions=())
        facts = self._facts(topic, answer)
        if facts is None or isinstance(answer, KafkaError):
            return None
        return replace(
            facts,
            replicas=min((len(p.replicas) for p in answer.partitions), default=0),
            operations=frozenset(answer.authorized_operations or ()),
        )

    def broker_settings(self) -> dict[str, str] | None:
        """Return the settings of one broker; None without the right to read them."""
        node = self._cluster("asking for the brokers").nodes[0]
        resource = ConfigResource(ResourceType.BROKER, str(node.id))
        return self._settings("reading the settings of a broker", resource)

    def create(
        self, topic: str, *, partitions: int, replication: int | None, settings: Mapping[str, str], trial: bool = False
    ) -> KafkaError | None:
        """Create a topic; the brokers' objection, if they have one. Without *replication* their default is taken, as a
        *trial* nothing is made.
        """
        topic_to_create = NewTopic(topic, partitions, -1 if replication is None else replication, config=dict(settings))
        answers = self._request(
            f"creating topic {topic!r}",
            lambda left: self._client.create_topics([topic_to_create], request_timeout=left, validate_only=trial),
        )
        answer = answers[topic]
        return answer if isinstance(answer, KafkaError) else None

    def _cluster(self, doing: str) -> DescribeClusterResult:
        answer = self._request(doing, lambda left: {"": self._client.describe_cluster(request_timeout=left)})[""]
        found: DescribeClusterResult = self._granted(doing, answer)
        return found

    def _settings(self, doing: str, resource: ConfigResource) -> dict[str, str] | None:
        answers = self._request(doing, lambda left: self._client.describe_configs([resource], request_timeout=left))
        entries = answers[resource]
        return None if isinstance(entries, KafkaError) else {key: str(entry.value) for key, entry in entries.items()}

    def _facts(self, name: str, answer: TopicDescription | KafkaError) -> TopicFacts | None:
        if isinstance(answer, KafkaError) and answer.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        described = self._granted(f"describing topic {name!r}", answer)
        ids = tuple(sorted(partition.id for partition in described.partitions))
        return TopicFacts(name=name, topic_id=topic_id_text(described.topic_id), partitions=ids)

    def _offset(self, partition: TopicPartition, edge: Edge, answer: Any) -> tuple[int, int | None]:
        where = f"{partition.topic}[{partition.partition}]"
        if isinstance(answer, KafkaError) and answer.code() in _STALE:
            raise StaleTopicError(f"{where}: {answer.str()}")
        found = self._granted(f"asking for the {edge.value} of {where}", answer)
        epoch = found.leader_epoch
        return int(found.offset), None if epoch is None or epoch < 0 else int(epoch)


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return "topic " + ", ".join(map(repr, found[:MOST_NAMED])) + more
