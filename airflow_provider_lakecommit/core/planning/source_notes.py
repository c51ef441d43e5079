# SPDX-License-Identifier: Apache-2.0
"""Warnings on topics that have fewer records than their offsets say, before the first of them is landed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark


def source_notes(
    watermarks: Mapping[SourcePartition, Watermark], landed: Coverage, compacted: Collection[str], *, earliest: bool
) -> Iterator[str]:
    """Yield one warning per topic of which nothing is landed, if there is one.

    :param compacted: names of compacted topics
    :param earliest: the landing reads topics from their beginning
    """
    known = {p.topic for p in landed.parts}
    for topic in sorted({p.topic for p in watermarks} - known):
        of_topic = [mark for p, mark in watermarks.items() if p.topic == topic]
        removed, end = sum(m.start for m in of_topic), sum(m.high for m in of_topic)
        rows = (
            (not end, "is empty: nothing was produced to it; check the topic's name and the cluster"),
            (
                earliest and removed == end,
                f"has no records: its retention removed all {end:,} offsets before they were landed; produce them "
                "again, or raise retention.ms before the next ones",
            ),
            (
                topic in compacted,
                "is compacted: Kafka keeps the newest record of each key, so the table lacks the records that were "
                "replaced before they were landed",
            ),
            (
                earliest and removed > 0,
                f"begins late: its retention removed {removed:,} of {end:,} offsets before they were landed, and the "
                "table lacks them",
            ),
        )
        if (note := next((text for applies, text in rows if applies), None)) is not None:
            yield f"topic {topic} {note}"
