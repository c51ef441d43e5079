# SPDX-License-Identifier: Apache-2.0
"""How a landing stands at one partition of its source.

Contract: reads only. A transaction that is open is nothing by itself; one that is open for longer than :data:`OPEN_FOR`
is nobody's any more, as brokers end what outlives its timeout (`transaction.max.timeout.ms`, 15 minutes by default),
and keeps all behind it from being read, for ever. It is told by the timestamps of records: nothing up to its first one
is younger than that. So a producer's clock that is late, or a broker that allows longer ones, makes one look older.

Failure story: brokers that do not answer in time leave the question open, and nothing is said to be stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_lakecommit.core import Headroom, SourcePartition, Watermark
from airflow_provider_lakecommit.cycle import LandingSession

__all__ = ["OPEN_FOR", "PartitionStatus", "partition_status", "stale_transactions"]

OPEN_FOR = timedelta(minutes=20)
"""Some minutes above the longest that brokers allow by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition. ``lag`` is what the slowest table lacks of what can be read, ``kept`` how many landed
    offsets the source still holds before it would remove one that is not landed. Up to ``safe`` all is landed or
    reported; ``removed`` is how many offsets are neither, and gone. ``headroom`` is there if something is unread.
    ``held_up`` are the offsets behind a transaction that is open, ``stale_transaction`` whether it is so for longer
    than :data:`OPEN_FOR`.
    """

    partition: SourcePartition
    start: int
    stable: int
    high: int
    landed: int | None
    lag: int
    held_up: int
    stale_transaction: bool = False
    headroom: Headroom | None = None
    safe: int | None = None

    @property
    def kept(self) -> int | None:
        return None if self.landed is None else self.landed - self.start

    @property
    def read_lag(self) -> int:
        """What of the lag nobody has read, or reported."""
        return min(self.lag, max(0, self.stable - max(self.start, self.safe or 0)))

    @property
    def removed(self) -> int:
        safe = self.landed if self.safe is None else self.safe
        return 0 if safe is None else max(0, self.start - safe)


def partition_status(
    p: SourcePartition,
    mark: Watermark,
    reached: Iterable[Mapping[SourcePartition, int]],
    safe: Iterable[Mapping[SourcePartition, int]],
    headroom: Headroom | None,
    stale_transaction: bool,
) -> PartitionStatus:
    """One partition, as its log, the tables and the control log have it."""
    landed = min((ends[p] for ends in reached), default=None)
    return PartitionStatus(
        partition=p,
        start=mark.start,
        stable=mark.stable,
        high=mark.high,
        landed=landed,
        lag=max(0, mark.stable - (mark.start if landed is None else landed)),
        held_up=mark.high - mark.stable,
        stale_transaction=stale_transaction,
        headroom=headroom,
        safe=min((ends[p] for ends in safe), default=None),
    )


def stale_transactions(
    session: LandingSession, partitions: Mapping[SourcePartition, Watermark], at: datetime, seconds: float
) -> frozenset[SourcePartition]:
    """The partitions whose first record that cannot be read yet is older than :data:`OPEN_FOR`.

    :param seconds: for which the brokers are waited for
    """
    since = at - OPEN_FOR
    held = [(p, since) for p, mark in partitions.items() if mark.high > mark.stable]
    found = session.source.ask_first_since(held)(seconds)
    return frozenset(p for p, _, first in found if first is None or first[0] > partitions[p].stable)
