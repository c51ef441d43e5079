# SPDX-License-Identifier: Apache-2.0
"""What a landing needs of its connections to Kafka, and no more: any object that does this will do.

Contract: :class:`~airflow_provider_lakecommit.kafka.control_topic.ControlTopic` and
:class:`~airflow_provider_lakecommit.kafka.source_topic.SourceTopics` do it on brokers, the fakes of the unit tests in
memory; one contract test holds both to the same. The tables are no port: what a cycle asks of them is pyiceberg's
metadata, which the same :class:`~airflow_provider_lakecommit.iceberg.catalog.Tables` has from any catalog.

Failure story: each method raises what the class above raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol

from airflow_provider_lakecommit.core.headroom import Retention
from airflow_provider_lakecommit.core.model import ReadPosition, Span
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.truncation import Truncation
from airflow_provider_lakecommit.kafka.control_log import ControlLog, ControlRecord, ControlTopicInfo
from airflow_provider_lakecommit.kafka.source_topic import First, SourceState
from airflow_provider_lakecommit.kafka.transaction import Record

__all__ = ["ControlPort", "SlotHolder", "SourcePort", "WriterPort"]


class SlotHolder(Protocol):
    """A cycle, or the ticket of one: what its transactional ids are made of."""

    @property
    def deployment(self) -> str: ...
    @property
    def slot(self) -> int: ...


class WriterPort(Protocol):
    """Transactions of one transactional id on one partition."""

    def send(self, records: Sequence[Record]) -> tuple[int, ...]: ...


class ControlPort(Protocol):
    """The control topic."""

    name: str

    def other(self, name: str) -> ControlPort: ...
    def exists(self) -> bool: ...
    def answers(self) -> bool: ...
    def ensure(self) -> ControlTopicInfo: ...
    def describe(self) -> ControlTopicInfo: ...
    def partition_for(self, group_id: str) -> int: ...
    def kept_for(self) -> timedelta | None: ...
    def read(self, partition: int, start: int | None = None, *, until: int | None = None) -> ControlLog: ...
    def read_all(self) -> Iterator[ControlRecord]: ...
    def writer(self, transactional_id: str, partition: int) -> AbstractContextManager[WriterPort]: ...
    def close(self) -> None: ...


class SourcePort(Protocol):
    """The source topics."""

    def of(self, topics: tuple[str, ...]) -> SourcePort: ...
    def watermarks(self, *, missing_ok: bool = False) -> SourceState: ...
    def ask_retention(self) -> None: ...
    def retentions(self, seconds: float) -> dict[str, Retention]: ...
    def ask_first_since(
        self, times: Iterable[tuple[SourcePartition, datetime]]
    ) -> Callable[[float], list[tuple[SourcePartition, datetime, First]]]: ...
    def diverged(self, places: Iterable[tuple[SourcePartition, ReadPosition]]) -> list[Truncation]: ...
    def first_value(self, span: Span) -> int | None: ...
    def close(self) -> None: ...
