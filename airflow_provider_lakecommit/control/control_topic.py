# SPDX-License-Identifier: Apache-2.0
"""The control topic: reading and writing the records of the commit protocol.

A read returns the committed records of one partition from an offset to the last stable offset, with both ends of the
log, so that callers notice a truncated log (`begin` above their start) or a recreated one (`end` below it, another
topic id). The end is found by position: transaction markers have offsets too. The records of a transaction may be split
over two reads if another transaction holds the last stable offset between them. All landings of a group write to one
partition: its order is the protocol's order. Concurrent calls are serialised. If the settings have a key, sent records
are signed, and read ones are checked.

A topic that is missing, compacted or may not be created raises :class:`ControlTopicError` with the command to run;
restarting brokers are waited for within `timeout`; a topic that is recreated during a read is read from the start.
After :meth:`ControlTopic.close` nothing is requested any more, also by threads that still run.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Self

from confluent_kafka import KafkaError, Message

from airflow_provider_lakecommit.control.bounded_records import FETCH, ObservedRecords, gathered, offset_of
from airflow_provider_lakecommit.control.control_log import (
    ControlLog,
    ControlRecord,
    ControlTopicInfo,
    Recent,
    checked,
    control_record,
    corrupt_record,
    recent_records,
)
from airflow_provider_lakecommit.control.control_topic_settings import (
    NOT_EVERYWHERE,
    PARTITIONS,
    TOPIC_SETTINGS,
    create_command,
    no_partition,
    partition_of,
    tool,
)
from airflow_provider_lakecommit.control.control_writer import ControlWriter
from airflow_provider_lakecommit.core import Retention, Watermark
from airflow_provider_lakecommit.exceptions import ClosedError, ControlTopicError
from airflow_provider_lakecommit.kafka import (
    ClusterAdmin,
    CorruptBatch,
    PartitionTail,
    StaleTopicError,
    TopicFacts,
    bootstrap_servers,
)
from airflow_provider_lakecommit.signing import SigningKeys

log = logging.getLogger(__name__)

POLL_SECONDS = 0.02
CLOSE_SECONDS = 1.0
"""For which a close waits for another thread's question."""
ENSURED_SECONDS = 60.0
"""After which the settings of a topic that was found to be right are looked at again."""


class ControlTopic:
    """One control topic; a context manager.

    :param timeout: seconds for the brokers to answer, over a restart
    :param groups: control groups whose records are kept whole; more can be added
    """

    def __init__(self, name: str, config: Mapping[str, Any], timeout: float = 30.0, groups: Iterable[str] = ()) -> None:
        self.name = name
        self.groups = set(groups)
        self._config = config
        self._timeout = timeout
        self._keys = SigningKeys.of(config)
        self._admin = ClusterAdmin(
            config, timeout=timeout, away=ControlTopicError, refused=ControlTopicError, remedy=self._grant_or_create
        )
        self._tails: dict[int, tuple[str, PartitionTail, ObservedRecords]] = {}
        self._lock = threading.RLock()
        self._settings: Mapping[str, str] | None = None
        self._known = ("", "")
        self._ensured = ("", 0.0)
        self._closed = False

    def other(self, name: str) -> ControlTopic:
        """Return another topic of the same cluster; the caller closes it."""
        return ControlTopic(name, self._config, self._timeout, self.groups)

    # -- the topic ----------------------------------------------------------------------------------------------------

    def ensure(self, partitions: int = PARTITIONS, replication: int | None = None) -> ControlTopicInfo:
        """Create the topic if it is missing, and return its state. Concurrent callers all succeed.

        :param replication: the broker's default by default
        :raises ControlTopicError: it may not be created, with the command for an administrator; or it is compacted
        """
        with self._alone():
            facts = self._facts()
            if facts is not None and facts.topic_id == self._ensured[0] and time.monotonic() < self._ensured[1]:
                return self._info(facts)
            if facts is None:
                self._create(partitions, replication)
            self._refuse_compaction()
            info = self._admin.steadily(f"waiting for topic {self.name!r}", self._appeared)
            self._ensured = info.topic_id, time.monotonic() + ENSURED_SECONDS
            return info

    def describe(self) -> ControlTopicInfo:
        with self._alone():
            facts = self._facts()
            if facts is None:
                raise ControlTopicError(
                    "LC2323",
                    f"control topic {self.name!r} does not exist in Kafka at {bootstrap_servers(self._config)}: "
                    f"create it with `{create_command(self.name, self._config)}`",
                )
            return self._info(facts)

    def exists(self) -> bool:
        with self._alone():
            return self._facts() is not None

    def answers(self) -> bool:
        with self._alone():
            return bool(self._admin.names())

    def partition_for(self, group_id: str) -> int:
        """Return the partition of a group, which is stable while the topic keeps its number of partitions."""
        return partition_of(group_id, self.describe().partitions)

    def kept_for(self) -> timedelta | None:
        """Return the cached retention time; ``None`` is for ever, or unreadable settings."""
        with self._alone():
            if self._settings is None:
                self._settings = self._admin.settings(self.name) or {}
            return Retention.of(self._settings).time if self._settings else None

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, partition: int, start: int | None = None, *, until: int | None = None) -> ControlLog:
        """Return the committed records from an offset, or from the first, to the last stable offset.

        :param until: wait until the record at this offset is readable, such as an own one that was just sent
        """
        doing = f"reading {self.name}[{partition}]"
        with self._alone():
            return self._admin.steadily(doing, lambda: self._read({partition: start or 0}, until))[partition]

    def read_together(self, starts: Mapping[int, int]) -> dict[int, ControlLog]:
        """Return the logs of partitions from their starts, for as many requests as one costs."""
        with self._alone():
            return self._admin.steadily(f"reading {self.name}", lambda: self._read(starts))

    def first_since(self, partition: int, moment: datetime) -> int | None:
        """Return the first offset at or after a time by the records' timestamps; 0 if brokers do not support it,
        ``None`` if there is none.
        """
        key = (self.name, partition)
        with self._alone():
            answers = self._admin.request_first_since({key: int(moment.timestamp() * 1000)})
            found = answers.within(self._timeout).get(key, (0, 0))
            return None if found is None else found[0]

    def read_all(self) -> Iterator[ControlRecord]:
        """Return all committed records of all partitions as of now, by time; within a partition in its order."""
        info = self.describe()
        streams = [self._stream(partition, info) for partition in range(info.partitions)]
        return heapq.merge(*streams, key=lambda record: record.timestamp)

    def recent(self, prefix: str = "") -> Recent:
        """Return the newest records of the landings whose names begin with the prefix."""
        return recent_records(self, prefix)

    def writer(self, transactional_id: str, partition: int, transaction_timeout: float = 10.0) -> ControlWriter:
        """Return a writer to one partition, which connects at its first use."""
        return ControlWriter(
            self.name,
            self._config,
            transactional_id,
            partition,
            transaction_timeout=transaction_timeout,
            timeout=self._timeout,
        )

    def close(self) -> None:
        """Close the connections; a thread that is waiting for an answer closes them afterwards."""
        self._closed = True
        if self._lock.acquire(timeout=CLOSE_SECONDS):
            try:
                self._let_go()
            finally:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- how ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise ClosedError(
                    "LC2324", f"control topic {self.name} was closed: this attempt ends, the next one continues"
                )
            try:
                yield
            finally:
                if self._closed:
                    self._let_go()

    def _let_go(self) -> None:
        for _, tail, _ in self._tails.values():
            tail.close()
        self._tails.clear()
        self._admin.close()

    def _read(self, starts: Mapping[int, int], until: int | None = None) -> dict[int, ControlLog]:
        info = self.describe()
        if (missing := next((p for p in starts if not 0 <= p < info.partitions), None)) is not None:
            raise ControlTopicError("LC2325", no_partition(self.name, self._config, info.partitions, missing))
        borders = self._borders(starts, until)
        found = {
            partition: self._log(partition, start, borders[partition], info) for partition, start in starts.items()
        }
        if self.describe() != info:
            raise StaleTopicError(f"{self.name} was recreated while it was read")
        return found

    def _log(self, partition: int, start: int, borders: Watermark, info: ControlTopicInfo) -> ControlLog:
        first = max(borders.start, start)
        records = self._kept(partition, info).read(first, borders.stable) if first < borders.stable else ()
        return ControlLog(
            records=records,
            begin=borders.start,
            end=borders.stable,
            high=borders.high,
            cluster_id=info.cluster_id,
            topic_id=info.topic_id,
            partition=partition,
            partitions=info.partitions,
        )

    def _borders(self, partitions: Iterable[int], until: int | None = None) -> dict[int, Watermark]:
        """Return the ends of the partitions' logs, once the record at ``until`` is readable."""
        deadline, keys = time.monotonic() + self._timeout, [(self.name, partition) for partition in partitions]
        while True:
            found = {partition: mark for (_, partition), mark in self._admin.borders(keys).items()}
            behind = {p: mark.stable for p, mark in found.items() if until is not None and mark.stable <= until}
            if not behind:
                return found
            if time.monotonic() >= deadline:
                partition, stable = next(iter(behind.items()))
                raise ControlTopicError(
                    "LC2326",
                    f"{self.name}[{partition}] can be read to offset {stable} only, not to {until}: after "
                    f"{self._timeout:.0f} s an open transaction still blocks it "
                    f"(`{tool('kafka-transactions', self._config)} find-hanging --topic {self.name} --partition "
                    f"{partition}`), or the topic was recreated",
                )
            self._admin.serve(POLL_SECONDS)

    def _kept(self, partition: int, info: ControlTopicInfo) -> ObservedRecords:
        known = self._tails.get(partition)
        if known is not None and known[0] == info.topic_id:
            return known[2]
        if known is not None:
            known[1].close()
        tail = self._new_tail(partition)

        def fetch(start: int, end: int) -> list[ControlRecord]:
            # Corruption is reported before the records in front of it.
            found = (self._record(each, partition, info) for each in tail.read(start, end))
            return sorted(gathered(found, self.groups), key=offset_of)

        kept = ObservedRecords(fetch)
        self._tails[partition] = info.topic_id, tail, kept
        return kept

    def _new_tail(self, partition: int) -> PartitionTail:
        return PartitionTail(
            self._config, self.name, partition, timeout=self._timeout, away=ControlTopicError, settings=FETCH
        )

    def _stream(self, partition: int, info: ControlTopicInfo) -> Iterator[ControlRecord]:
        doing = f"reading {self.name}[{partition}]"
        borders = self._admin.steadily(doing, lambda: self._borders([partition]))[partition]
        begin, end = borders.start, borders.stable
        tail = self._new_tail(partition)
        try:
            while begin < end:
                try:
                    for found in tail.read(begin, end):
                        record = self._record(found, partition, info)
                        if not isinstance(found, CorruptBatch):
                            begin = record.offset + 1
                        yield record
                    return
                except StaleTopicError:
                    # Retention ran past us: what is gone cannot be shown, what is left can.
                    first = self._admin.steadily(doing, lambda: self._borders([partition]))[partition].start
                    if first <= begin:
                        raise ControlTopicError(
                            "LC2327", f"{self.name}[{partition}] was recreated while it was read"
                        ) from None
                    begin = first
        finally:
            tail.close()

    def _record(self, found: Message | CorruptBatch, partition: int, info: ControlTopicInfo) -> ControlRecord:
        if isinstance(found, CorruptBatch):
            return corrupt_record(partition, found)
        return checked(control_record(found), self._keys, self.name, info)

    def _info(self, facts: TopicFacts) -> ControlTopicInfo:
        if self._known[0] != facts.topic_id:
            # A topic id is of one cluster.
            self._known = facts.topic_id, self._admin.cluster_id()
        return ControlTopicInfo(cluster_id=self._known[1], topic_id=facts.topic_id, partitions=len(facts.partitions))

    def _facts(self) -> TopicFacts | None:
        return self._admin.topics([self.name])[self.name]

    def _appeared(self) -> ControlTopicInfo:
        if self._facts() is None:
            raise StaleTopicError(f"{self.name} was created, but not all brokers know it yet")
        return self.describe()

    def _create(self, partitions: int, replication: int | None) -> None:
        settings = dict(TOPIC_SETTINGS)
        objection = self._admin.create(self.name, partitions=partitions, replication=replication, settings=settings)
        if objection is not None and objection.code() == KafkaError.INVALID_CONFIG:
            del settings[NOT_EVERYWHERE]
            objection = self._admin.create(self.name, partitions=partitions, replication=replication, settings=settings)
        if objection is None:
            log.info("Created control topic %s with %s partitions", self.name, partitions)
        elif objection.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise ControlTopicError(
                "LC2328",
                f"control topic {self.name!r} does not exist and could not be created: {objection.str()}; have it "
                f"created with `{create_command(self.name, self._config, partitions, replication)}`",
            )

    def _refuse_compaction(self) -> None:
        settings = self._admin.settings(self.name)
        if settings is None:
            log.debug("The settings of topic %s may not be read", self.name)
        elif "compact" in settings.get("cleanup.policy", ""):
            raise ControlTopicError(
                "LC2329",
                f"control topic {self.name!r} has cleanup.policy={settings['cleanup.policy']}, which deletes records "
                f"that are still needed: correct it with `{tool('kafka-configs', self._config)} --alter "
                f"--entity-type topics --entity-name {self.name} --add-config cleanup.policy=delete`",
            )

    def _grant_or_create(self) -> str:
        return (
            "grant this principal DESCRIBE, READ and WRITE on it; a topic that does not exist looks the same: create "
            f"it with `{create_command(self.name, self._config)}`"
        )
