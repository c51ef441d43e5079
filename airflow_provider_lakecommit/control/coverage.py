# SPDX-License-Identifier: Apache-2.0
"""Coverage, spans and offsets as JSON: ``[[topic, topic id, {partition: [start, end, start, end, ...]}], ...]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_provider_lakecommit.control.packed_text import CORRUPTION, count, text
from airflow_provider_lakecommit.core import Coverage, OffsetRange, RangeSet, ReadPosition, SourcePartition, Span
from airflow_provider_lakecommit.exceptions import WireError

_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


def _by_topic(values: Mapping[SourcePartition, Any]) -> list[Any]:
    topics: dict[tuple[str, str], dict[str, Any]] = {}
    for p in sorted(values):
        topics.setdefault((p.topic, p.topic_id), {})[str(p.partition)] = values[p]
    return [[topic, topic_id, parts] for (topic, topic_id), parts in topics.items()]


def _partitions(values: Any) -> list[tuple[SourcePartition, Any]]:
    try:
        found = [
            (SourcePartition(topic=text(topic), partition=_partition(p), topic_id=text(topic_id)), v)
            for topic, topic_id, parts in values
            for p, v in parts.items()
        ]
        if len(found) > 1 and len({p for p, _ in found}) != len(found):
            raise ValueError("a partition is listed twice")
    except CORRUPTION as e:
        raise WireError("LC2337", f"offset ranges are corrupt: {e}") from e
    return found


def _partition(name: str) -> int:
    """Parse the number of a partition; only our own spelling is valid."""
    if not _PARTITION.fullmatch(name) or (found := int(name)) >= 1 << 31:
        raise ValueError(f"{name!r:.80} is no partition")
    return found


def _ranges(flat: Any) -> list[OffsetRange]:
    try:
        if len(flat) % 2:
            raise ValueError("odd number of bounds")
        if len(flat) == 2:
            return [OffsetRange(count(flat[0]), count(flat[1]))]
        return [OffsetRange(count(a), count(b)) for a, b in zip(flat[::2], flat[1::2], strict=True)]
    except CORRUPTION as e:
        raise WireError("LC2337", f"offset ranges are corrupt: {e}") from e


def coverage_to_json(coverage: Coverage) -> list[Any]:
    return _by_topic({p: [b for r in s for b in (r.start, r.end)] for p, s in coverage.parts.items()})


def coverage_from_json(values: Any) -> Coverage:
    return Coverage({p: RangeSet.of(*_ranges(flat)) for p, flat in _partitions(values)})


def offsets_to_json(offsets: Mapping[SourcePartition, int]) -> list[Any]:
    return _by_topic(offsets)


def offsets_from_json(values: Any) -> dict[SourcePartition, int]:
    try:
        return {p: count(v) for p, v in _partitions(values)}
    except (TypeError, ValueError) as e:
        raise WireError("LC2338", f"offsets are corrupt: {e}") from e


def positions_to_json(positions: Mapping[SourcePartition, ReadPosition]) -> list[Any]:
    """Return offsets, then leader epochs."""
    offsets = {p: at.offset for p, at in positions.items()}
    return [offsets_to_json(offsets), offsets_to_json({p: at.leader_epoch for p, at in positions.items()})]


def positions_from_json(values: Any) -> dict[SourcePartition, ReadPosition]:
    try:
        offsets, epochs = map(offsets_from_json, values)
        return {p: ReadPosition(offset=offsets[p], leader_epoch=epoch) for p, epoch in epochs.items()}
    except (LookupError, TypeError, ValueError) as e:
        raise WireError("LC2339", f"positions are corrupt: {type(e).__name__} {e}") from e


def spans_to_json(spans: Iterable[Span]) -> list[Any]:
    """Return spans with their borders: two adjacent spans stay two."""
    lists: dict[SourcePartition, list[int]] = {}
    for s in sorted(spans):
        lists.setdefault(s.partition, []).extend((s.range.start, s.range.end))
    return _by_topic(lists)


def spans_from_json(values: Any) -> tuple[Span, ...]:
    return tuple(sorted(Span(p, r) for p, flat in _partitions(values) for r in _ranges(flat)))
