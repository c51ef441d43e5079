# SPDX-License-Identifier: Apache-2.0
"""The source of a backfill: the landing's topics, limited to its range.

Contract: the interface of :class:`~airflow_provider_lakecommit.cycle.session.ports.SourcePort`. Other partitions do not
exist in it, and its own end where the backfill ends, so planning, reports and checks need not know of backfills. A
recreated topic is passed on unchanged, for the plan to detect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from airflow_provider_lakecommit.core import ReadPosition, Retention, SourcePartition, Span, Truncation
from airflow_provider_lakecommit.cycle import SourcePort
from airflow_provider_lakecommit.kafka import First, SourceState


class BoundedSource:
    """:param ends: end of the backfill, for each of its partitions"""

    def __init__(self, source: SourcePort, ends: Mapping[SourcePartition, int]) -> None:
        self._source = source
        self._ends = dict(ends)
        self._partitions = {(p.topic, p.partition) for p in ends}

    def of(self, topics: tuple[str, ...]) -> SourcePort:
        return self._source.of(topics)

    def watermarks(self, *, missing_ok: bool = False) -> SourceState:
        found = self._source.watermarks(missing_ok=missing_ok)
        own = {p: m for p, m in found.partitions.items() if (p.topic, p.partition) in self._partitions}
        ends = {p: self._ends.get(p, m.high) for p, m in own.items()}
        marks = {p: replace(m, stable=min(m.stable, ends[p]), high=min(m.high, ends[p])) for p, m in own.items()}
        return replace(found, partitions=marks)

    def request_retention(self) -> None:
        self._source.request_retention()

    def retentions(self, seconds: float) -> dict[str, Retention]:
        return self._source.retentions(seconds)

    def request_first_since(
        self, times: Iterable[tuple[SourcePartition, datetime]]
    ) -> Callable[[float], list[tuple[SourcePartition, datetime, First]]]:
        return self._source.request_first_since(times)

    def diverged(self, positions: Iterable[tuple[SourcePartition, ReadPosition]]) -> list[Truncation]:
        """Return those that concern the backfill's range: records before the end of a log's old ones are unchanged."""
        found = self._source.diverged(positions)
        return [t for t in found if t.partition in self._ends and (t.end or 0) < self._ends[t.partition]]

    def first_value(self, span: Span) -> int | None:
        return self._source.first_value(span)

    def close(self) -> None:
        """Close nothing: the owner of the landing's session closes the source."""
