# SPDX-License-Identifier: Apache-2.0
"""The lag of a landing in time: since when records wait to be read, or to be in a snapshot.

Records' own times are not read. The clock uses the times at which topics had certain ends: unread records were written
after the newest sample whose ends were all done. That is an upper bound, off by at most the pause between samples, and
a tenth of the total for long lags, as older samples are thinned out. Samples come from plans and from the page.

Without a sample at which nothing was behind the lag is unknown. A sample from the future counts as now.
"""

from __future__ import annotations

from airflow_provider_lakecommit.page.partitions import Ends

MOST_READINGS, LEAST_READINGS = 64, 8
MOST_ENDS = 20_000

Reading = tuple[float, Ends]
"""A time in seconds of the epoch, with the ends at that time."""


class LagClock:
    """The clock of one landing, for one thread."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        """Oldest first."""

    def add(self, at: float, now: float, ends: Ends) -> None:
        """Add the ends at a time; late samples have no new information."""
        at = min(at, now)
        if self.readings and at < self.readings[-1][0]:
            return
        if self.readings and dict(self.readings[-1][1]) == dict(ends):
            self.readings.pop()
        self.readings.append((at, ends))
        if len(self.readings) > max(LEAST_READINGS, min(MOST_READINGS, MOST_ENDS // max(1, len(ends)))):
            half = len(self.readings) // 2
            self.readings = [*self.readings[:half:2], *self.readings[half:]]

    def since(self, upto: Ends) -> float | None:
        """Return the latest time since when something is behind; ``None``: nothing is, or it is unknown.

        :param upto: the finished end of each partition
        """
        if not self.readings or self._within(self.readings[-1], upto):
            return None
        return next((reading[0] for reading in reversed(self.readings) if self._within(reading, upto)), None)

    def seconds(self, upto: Ends, at: float) -> float | None:
        """Return the same as a duration up to a time; 0 if nothing is behind, ``None`` if unknown."""
        if self.readings and self._within(self.readings[-1], upto):
            return 0.0
        since = self.since(upto)
        return None if since is None else max(0.0, at - since)

    def forget(self, upto: Ends) -> None:
        """Drop samples before the newest one at which everything now done was done."""
        known = next((n for n in range(len(self.readings) - 1, 0, -1) if self._within(self.readings[n], upto)), 0)
        del self.readings[:known]

    @staticmethod
    def _within(reading: Reading, upto: Ends) -> bool:
        return all(end <= upto.get(partition, 0) for partition, end in reading[1].items())
