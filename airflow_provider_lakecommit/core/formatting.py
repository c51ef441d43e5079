# SPDX-License-Identifier: Apache-2.0
"""Numbers, durations and partitions formatted for users; nothing parses them."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.core.offsets import SourcePartition

MOST_NUMBERS = 4
"""Partitions named per topic."""
MOST_TOPICS = 3
_UNITS = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


def short_number(number: float) -> str:
    """Format 240000 as 240k."""
    for unit, suffix in _UNITS:
        if round(number) >= unit:
            scaled = number / unit
            return f"{scaled:.1f}{suffix}" if scaled < 10 and round(scaled, 1) % 1 else f"{scaled:.0f}{suffix}"
    return f"{number:.0f}"


def duration_text(seconds: float) -> str:
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 5400 else f"{whole / 3600:.1f} h"


def partitions_text(partitions: Iterable[SourcePartition]) -> str:
    """Format ``orders[0,4] clicks[1]``; of many the first, and how many more."""
    numbers: dict[str, list[int]] = {}
    for p in sorted(set(partitions)):
        numbers.setdefault(p.topic, []).append(p.partition)
    parts = [f"{topic}[{_numbers(of)}]" for topic, of in list(numbers.items())[:MOST_TOPICS]]
    more = len(numbers) - MOST_TOPICS
    return " ".join([*parts, *([f"and {more} topics"] if more > 0 else [])])


def _numbers(of: list[int]) -> str:
    parts = ",".join(map(str, of[:MOST_NUMBERS]))
    return parts if len(of) <= MOST_NUMBERS else f"{parts}, {len(of) - MOST_NUMBERS} more"
