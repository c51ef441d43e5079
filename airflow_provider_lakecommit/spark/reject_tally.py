# SPDX-License-Identifier: Apache-2.0
"""The common cause of a slice's rejected records.

Contract: rejects are counted by kind and column, with the first reason of each; of all rejects, the first places are
kept. Memory is bounded, whatever names the records have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from confluent_kafka import Message

from airflow_provider_lakecommit.core import MOST_NAMES, add_names
from airflow_provider_lakecommit.formats import Reject

SAMPLES = 5


class RejectTally:
    """Counts as rejects come; ``kinds`` by kind and column."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self._first: list[tuple[str, str]] = []
        self._reasons: dict[str, str] = {}

    def add(self, messages: Sequence[Message], rejects: Sequence[Reject]) -> None:
        """Add the rejects of a chunk.

        :param messages: the chunk's messages; a reject's ``index`` is the position of its record
        """
        for reject in rejects[: SAMPLES - len(self._first)]:
            m = messages[reject.index]
            self._first.append((f"{m.topic()}[{m.partition()}]@{m.offset()}", reject.reason))
        kinds = Counter(map(_kind_of, rejects))
        add_names(self.kinds, kinds)
        for kind in kinds.keys() - self._reasons.keys() if len(self._reasons) < MOST_NAMES else ():
            self._reasons[kind] = next(r.reason for r in rejects if _kind_of(r) == kind)

    def of_kind(self, kind: str) -> int:
        """Return the number of rejects of a kind, over all columns."""
        return sum(count for name, count in self.kinds.items() if name.partition(" ")[0] == kind)

    @property
    def samples(self) -> list[str]:
        """Return the first rejects with place and reason."""
        return [f"{location}: {reason}" for location, reason in self._first]

    @property
    def reason(self) -> str:
        """Return the first reason of the most frequent kind; empty if there is none."""
        return next((self._reasons.get(kind, kind) for kind, _ in self.kinds.most_common(1)), "")

    @property
    def cause(self) -> str:
        """Return the cause that most of them share."""
        ((_, count),) = self.kinds.most_common(1)
        return f"{self.reason} ({count} of {self.kinds.total()} rejected records)"

    @property
    def first(self) -> str:
        """Return the first places, each reason once, without the one that the cause has."""
        locations: dict[str, list[str]] = {}
        for location, reason in self._first:
            locations.setdefault(reason, []).append(location)
        return "; ".join(f"{', '.join(at)}{'' if why == self.reason else f': {why}'}" for why, at in locations.items())


def _kind_of(reject: Reject) -> str:
    return reject.kind if reject.column is None else f"{reject.kind} {reject.column}"
