# SPDX-License-Identifier: Apache-2.0
"""The lag of a landing in time: since when records wait to be read, or to be in a snapshot.

Records' own times are not read. The clock uses the times at which topics had certain ends: unread records were written
after the newest sample whose ends were all done. That is an upper bound, off by at most the pause between samples, and
a tenth of the total for long lags, as older samples are thinned out. Samples come from plans and from the page.

Without a sample at which nothing was behind the lag is unknown. A sample from the future counts as now.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.page.partitions import Ends

MOST_LOOKS, LEAST_LOOKS = 64, 8
MOST_ENDS = 20_000

Look = tuple[float, Ends]


class LagClock:
    """The clock of one landing, for one thread.

    :param looks: times in seconds of the epoch, with the ends at that time, oldest first
    """

    def __init__(self, readings: Iterable[Look] = ()) -> None:
        self.looks: list[Look] = list(readings)

    def looked(self, at: float, now: float, ends: Ends) -> None:
        """Add the ends at a time; late samples have no new information."""
        at = min(at, now)
        if self.looks and at < self.looks[-1][0]:
            return
        if self.looks and dict(self.looks[-1][1]) == dict(ends):
            self.looks.pop()
        self.looks.append((at, ends))
        if len(self.looks) > max(LEAST_LOOKS, min(MOST_LOOKS, MOST_ENDS // max(1, len(ends)))):
            half = len(self.looks) // 2
            self.looks = [*self.looks[:half:2], *self.looks[half:]]

    def since(self, upto: Ends) -> float | None:
        """Return the latest time since when something is behind; ``None``: nothing is, or it is unknown.

        :param upto: the finished end of each partition
        """
        if not self.looks or self._within(self.looks[-1], upto):
            return None
        return next((reading[0] for reading in reversed(self.looks) if self._within(reading, upto)), None)

    def seconds(self, upto: Ends, at: float) -> float | None:
        """Return the same as a duration up to a time; 0 if nothing is behind, ``None`` if unknown."""
        if self.looks and self._within(self.looks[-1], upto):
            return 0.0
        since = self.since(upto)
        return None if since is None else max(0.0, at - since)

    def forget(self, upto: Ends) -> None:
        """Drop samples before the newest one at which everything now done was done."""
        known = next((n for n in range(len(self.looks) - 1, 0, -1) if self._within(self.looks[n], upto)), 0)
        del self.looks[:known]

    @staticmethod
    def _within(reading: Look, upto: Ends) -> bool:
        return all(end <= upto.get(partition, 0) for partition, end in reading[1].items())
