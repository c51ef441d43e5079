# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory in place of brokers, for all that connects to Kafka.

Contract: :func:`plugged_in` gives every session that is connected in its block, and every task that runs there, this
cluster. Producers of control records and readers of source records are fakes; everything between them is the package's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Message

from airflow_provider_lakecommit.control import control_topic
from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.cycle.session import landing_session
from airflow_provider_lakecommit.cycle.sets import shared_connections
from airflow_provider_lakecommit.exceptions import ClosedError
from airflow_provider_lakecommit.formats.evolution import sampled_columns as evolve_records
from airflow_provider_lakecommit.kafka import consumer_group
from airflow_provider_lakecommit.operations.kafka_connect import connector as adopt_connector
from airflow_provider_lakecommit.operations.kafka_connect import hand_back, rescue, sink_preview
from airflow_provider_lakecommit.spark import slices
from tests.fakes.broker import MemoryAdmin, MemoryBroker, MemoryReader, MemoryRecord, MemorySource
from tests.fakes.kafka import FakeControl

__all__ = ["plugged_in"]


def _sampled(broker: MemoryBroker, ranges: Coverage, value_of: Callable[[Any], bytes | None]) -> list[Any]:
    # A method of the client's class takes no other record.
    value_of = MemoryRecord.value if value_of is Message.value else value_of
    found = [m for p, some in sorted(ranges.parts.items()) for r in some for m in broker.log(p).between(r.start, r.end)]
    return [(f"{m.topic()}[{m.partition()}]@{m.offset()}", value_of(m)) for m in found]


@dataclass(frozen=True, slots=True)
class MemoryLog:
    """Records of one partition, as :class:`~airflow_provider_lakecommit.kafka.copied.PartitionLog` reads them."""

    broker: MemoryBroker
    partition: SourcePartition

    def records(self, start: int, end: int) -> list[MemoryRecord]:
        return self.broker.log(self.partition).between(start, end)


class _Connection:
    """One connection to a control topic: what is asked of it once it is closed fails, as it does with brokers."""

    def __init__(self, control: FakeControl) -> None:
        self._control, self._closed = control, False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._control, name)
        if self._closed and callable(found):
            raise ClosedError("LC9999", f"control topic {self._control.name} was closed")
        return found

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def plugged_in(broker: MemoryBroker) -> Iterator[MemoryBroker]:
    """All that connects to Kafka in this block connects to this cluster."""

    def control(name: str, *_: object, **__: object) -> _Connection:
        return _Connection(broker.control(name))

    def source(_: object, topics: Collection[str], *__: object) -> MemorySource:
        return broker.source(topics)

    def reader(_: object, spans: Sequence[Span], **options: Any) -> MemoryReader:
        return MemoryReader(broker, spans, **options)

    def sample_of(_: object, ranges: Coverage, records: int, *, seconds: float, value_of: Any) -> list[Any]:
        return _sampled(broker, ranges, value_of)[:records]

    def records_at(_: object, places: Coverage, *, seconds: float, value_of: Any) -> list[Any]:
        return _sampled(broker, places, value_of)

    def group(_: object, name: str, *__: object, **___: object) -> dict[tuple[str, int], int]:
        return dict(broker.groups.get(name, {}))

    def set_group(_: object, name: str, offsets: Mapping[tuple[str, int], int], *__: object) -> None:
        broker.groups.setdefault(name, {}).update(offsets)

    with pytest.MonkeyPatch.context() as patch:
        for module in (rescue, adopt_connector, hand_back):
            patch.setattr(module, "offsets_of_group", group)
        patch.setattr(consumer_group, "members_of", lambda _, name: broker.members.get(name, ()))
        for module in (adopt_connector, hand_back):
            patch.setattr(module, "set_group_offsets", set_group)
        patch.setattr(shared_connections, "ClusterAdmin", lambda *_, **__: MemoryAdmin(broker))
        patch.setattr(shared_connections, "ControlTopic", control)
        patch.setattr(shared_connections, "SourceTopics", source)
        patch.setattr(rescue, "ControlTopic", control)
        patch.setattr(sink_preview, "SourceTopics", source)
        patch.setattr(sink_preview, "PartitionLog", lambda *, partition, **_: MemoryLog(broker, partition))
        patch.setattr(landing_session, "ControlTopic", control)
        patch.setattr(landing_session, "SourceTopics", source)
        patch.setattr(control_topic, "ControlTopic", control)
        patch.setattr(slices, "SliceReader", reader)
        patch.setattr(evolve_records, "sample_of", sample_of)
        patch.setattr(evolve_records, "records_at", records_at)
        yield broker
