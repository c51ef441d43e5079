# SPDX-License-Identifier: Apache-2.0
"""The state of a landing at one partition of its source.

An open transaction blocks all later records. One that is open for longer than :data:`OPEN_FOR` has no owner any more,
because brokers end those that outlive their timeout (`transaction.max.timeout.ms`, 15 minutes by default). The age is
known by the timestamps of records: nothing up to its first one is younger. So a slow clock of a producer, or a broker
with a longer limit, makes one look older. If brokers do not answer in time, nothing is reported as stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_lakecommit.core import Headroom, SourcePartition, Watermark
from airflow_provider_lakecommit.cycle import LandingSession

OPEN_FOR = timedelta(minutes=20)
"""Some minutes above the longest default of brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition. ``lag`` is the number of readable offsets that the slowest table lacks, ``kept`` how many
    landed offsets the source still holds before it would remove an unlanded one. Up to ``safe`` everything is landed or
    reported; ``removed`` is the number of offsets that are neither, and removed. ``headroom`` is set if something is
    unread. ``open_transactions`` are the offsets after an open transaction, ``stale_transaction`` whether it is open
    for longer than :data:`OPEN_FOR`.
    """

    partition: SourcePartition
    start: int
    stable: int
    high: int
    landed: int | None
    lag: int
    open_transactions: int
    stale_transaction: bool = False
    headroom: Headroom | None = None
    safe: int | None = None

    @property
    def kept(self) -> int | None:
        return None if self.landed is None else self.landed - self.start

    @property
    def read_lag(self) -> int:
        """Return the part of the lag that is neither read nor reported."""
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
    landed = min((ends[p] for ends in reached), default=None)
    return PartitionStatus(
        partition=p,
        start=mark.start,
        stable=mark.stable,
        high=mark.high,
        landed=landed,
        lag=max(0, mark.stable - (mark.start if landed is None else landed)),
        open_transactions=mark.high - mark.stable,
        stale_transaction=stale_transaction,
        headroom=headroom,
        safe=min((ends[p] for ends in safe), default=None),
    )


def stale_transactions(
    session: LandingSession, partitions: Mapping[SourcePartition, Watermark], at: datetime, seconds: float
) -> frozenset[SourcePartition]:
    """Return the partitions whose first unreadable record is older than :data:`OPEN_FOR`, waiting at most
    ``seconds``.
    """
    since = at - OPEN_FOR
    open_ones = [(p, since) for p, mark in partitions.items() if mark.high > mark.stable]
    found = session.source.request_first_since(open_ones)(seconds)
    return frozenset(p for p, _, first in found if first is None or first[0] > partitions[p].stable)
