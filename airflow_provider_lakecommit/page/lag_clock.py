# SPDX-License-Identifier: Apache-2.0
"""How far behind a landing is in time: since when records wait that nobody has read, or that no snapshot holds.

Contract: a record's own time may be anything, and to read it would be to read the topic. So it goes by when the ends of
the topics were where: what is behind was written after the newest look at which all ends were within what has been
done. That is a bound from above, by at most the pause between two looks, and a tenth of the whole where the lag is
long: of many looks, the older ones are thinned out. Looks are those of plans and those of the page itself.

Failure story: as long as no look is known at which nothing was behind, as of a landing that begins with a backlog,
nothing is known. A look that is said to be later than now is taken for one of now.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.page.partitions import Ends

__all__ = ["LagClock"]

MOST_LOOKS, LEAST_LOOKS = 64, 8
MOST_ENDS = 20_000
"""Ends that are kept of all looks together."""

Look = tuple[float, Ends]


class LagClock:
    """Of one landing. For the thread that reads its control topic.

    :param looks: times, in seconds of the epoch, with the ends as they were, the oldest first
    """

    def __init__(self, looks: Iterable[Look] = ()) -> None:
        self.looks: list[Look] = list(looks)

    def looked(self, at: float, now: float, ends: Ends) -> None:
        """The ends were so at a time; looks that come late say nothing new."""
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
        """Since when something is behind at the latest; ``None``: nothing is, or it is not known.

        :param upto: what was done of each partition
        """
        if not self.looks or self._within(self.looks[-1], upto):
            return None
        return next((look[0] for look in reversed(self.looks) if self._within(look, upto)), None)

    def seconds(self, upto: Ends, at: float) -> float | None:
        """The same as a time span up to a time; 0 where nothing is behind, ``None`` where it is not known."""
        if self.looks and self._within(self.looks[-1], upto):
            return 0.0
        since = self.since(upto)
        return None if since is None else max(0.0, at - since)

    def forget(self, upto: Ends) -> None:
        """Looks before the newest at which all was done that is done now tell nothing more."""
        known = next((n for n in range(len(self.looks) - 1, 0, -1) if self._within(self.looks[n], upto)), 0)
        del self.looks[:known]

    @staticmethod
    def _within(look: Look, upto: Ends) -> bool:
        return all(end <= upto.get(place, 0) for place, end in look[1].items())
