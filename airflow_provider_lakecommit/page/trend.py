# SPDX-License-Identifier: Apache-2.0
"""The activity of a landing: by minute for two hours, by quarter of an hour for two days.

Each measure is a ring of buckets of four bytes. Amounts are summed; lags and seconds are the maximum of a bucket.
Values older than the oldest bucket are dropped; a time in the future counts as now.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Mapping
from math import isnan, nan

STEPS = ((60, 120), (900, 192))
AMOUNTS = ("read", "committed")
PEAKS = ("read_lag", "commit_lag", "read_lag_seconds", "table_lag_seconds", "commit_seconds")
MEASURES = AMOUNTS + PEAKS
EMPTY = -1

Values = Mapping[str, list[float | None]]
"""The values of each measure, bucket by bucket. Missing amounts are 0, missing peaks ``None``."""


class _Ring:
    """Buckets of one size; each knows its number, because slots are reused."""

    def __init__(self, step: int, size: int) -> None:
        self.step, self.size = step, size
        self.numbers = array("q", [EMPTY]) * size
        self.values: dict[str, array[float]] = {}

    def add(self, at: float, name: str, value: float) -> None:
        number = int(at // self.step)
        index = number % self.size
        if self.numbers[index] > number:
            return
        if self.numbers[index] < number:
            self.numbers[index] = number
            for known in self.values.values():
                known[index] = nan
        values = self.values.get(name)
        if values is None:
            values = self.values[name] = array("f", [nan]) * self.size
        before = values[index]
        if isnan(before):
            values[index] = value
        else:
            values[index] = max(before, value) if name in PEAKS else before + value

    def buckets(self, now: float) -> range:
        """Return the bucket numbers from the oldest with a value to the current one."""
        last = int(now // self.step)
        kept = [n for n in self.numbers if last - self.size < n <= last]
        return range(min(kept), last + 1) if kept else range(0)

    def since(self, now: float) -> tuple[float, Values]:
        """Return the start of the first bucket, and the values from there on."""
        numbers = self.buckets(now)
        values = {name: list(self._values(name, numbers)) for name in MEASURES}
        return float(numbers.start * self.step), values

    def _values(self, name: str, numbers: range) -> Iterator[float | None]:
        values, nothing = self.values.get(name), None if name in PEAKS else 0.0
        for number in numbers:
            index = number % self.size
            kept = values is not None and self.numbers[index] == number and not isnan(values[index])
            yield round(values[index], 3) if kept and values is not None else nothing


class Trend:
    """The rings of one landing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings = tuple(_Ring(step, size) for step, size in STEPS)

    def add(self, at: float, now: float, amounts: Mapping[str, float | None]) -> None:
        """Add amounts, at a time in seconds of the epoch; unknown ones are ignored."""
        known = [(name, value) for name, value in amounts.items() if value is not None]
        with self._lock:
            for ring in self._rings:
                for name, value in known:
                    ring.add(min(at, now), name, value)

    def steps(self, now: float) -> dict[int, tuple[float, Values]]:
        """Return the start of the first bucket and the values of each ring, by the seconds of its buckets."""
        with self._lock:
            return {ring.step: ring.since(now) for ring in self._rings}
