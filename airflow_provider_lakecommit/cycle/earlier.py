# SPDX-License-Identifier: Apache-2.0
"""What earlier attempts of a run did, as the control log and the tables tell it: where the run goes on.

Contract: a run of several cycles is *finished* when its newest cycle is over, all of that cycle was reported, and it
left nothing to this run. An open cycle is continued under its number; after one that is over and lacks something the
run goes on with the next number. Snapshots are told from the tables, so that none is told that is not there.

Failure story: cycles that the log has forgotten (retention) are as if they had never been: the run begins anew, and
what is in the tables is not read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.log import CycleClosed, Entry
from airflow_provider_lakecommit.core.view import CycleState
from airflow_provider_lakecommit.cycle.open import cycle_id_of
from airflow_provider_lakecommit.cycle.publish import snapshots_of
from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
from airflow_provider_lakecommit.cycle.rim import Rim, RunIdentity
from airflow_provider_lakecommit.cycle.write import read_entries

__all__ = ["Earlier", "cycles_of", "published_by"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The cycles of a run that the log holds, by their numbers; at least one.

    ``voided`` tells whether the newest gave up slices, whose ranges are then read again.
    """

    cycles: tuple[CycleState, ...]
    partition: int
    control_topic: str
    valid_through: datetime | None
    voided: bool

    @property
    def newest(self) -> CycleState:
        return self.cycles[-1]

    @property
    def number(self) -> int:
        """Of the cycle that the run goes on with."""
        return self.newest.cycle.number + (1 if self.newest.over else 0)

    def finished(self, most: int | None) -> bool:
        """Is there nothing left to do for a run of *most* cycles?"""
        enough = not self.newest.plan.left or (most is not None and self.number >= most)
        done = self.newest.over and not self.newest.unfinished and not self.voided
        return done and enough and not self.newest.plan.put_off

    def to_closed(self, table: str, published: Iterable[PublishedSnapshot]) -> Closed:
        """The finished run as if it were one cycle that is closed now."""
        newest = self.newest
        return Closed(
            commit_id=newest.cycle.commit_id,
            table=table,
            published=tuple(published),
            left=newest.plan.left,
            valid_through=self.valid_through,
            reason=newest.plan.reason,
        )

    def __str__(self) -> str:
        done = [c for c in self.cycles if c.plan.slices]
        windows = "; ".join(f"cycle {c.cycle.commit_id}: {c.plan.coverage}" for c in done) or "nothing was planned"
        where = f"partition {self.partition} of {self.control_topic}"
        return f"{len(self.cycles)} cycles of this run, from offset {self.cycles[0].offset} of {where} on: {windows}"


def cycles_of(rim: Rim, who: RunIdentity) -> Earlier | None:
    """The cycles of a run anywhere in the log, as far as its retention goes; whatever their numbers.

    :raises ControlTopicError: the control topic cannot be read
    """
    rim.control.ensure()
    for partition in range(rim.control.describe().partitions):
        log = rim.control.read(partition, None)
        entries = read_entries(log.records, rim.landing.name, rim.lane)
        view = fold(entries, (), rim.landing.completion_timeout)
        mine = [c for c in view.cycles.values() if _is_of(rim, who, c)]
        if mine:
            cycles = tuple(sorted(mine, key=lambda c: c.cycle.number))
            end = _end_of(cycles[-1], entries)
            return Earlier(
                cycles=cycles,
                partition=partition,
                control_topic=rim.control.name,
                valid_through=end.valid_through if end else None,
                voided=bool(end and end.directives.voided),
            )
    return None


def published_by(rim: Rim, earlier: Earlier) -> tuple[PublishedSnapshot, ...]:
    """The snapshots of those cycles of the run that are over, per table in their order. What an open cycle has
    published is told when it is closed.

    :raises LakecommitError: a table cannot be read
    """
    ids = {c.cycle.commit_id for c in earlier.cycles if c.over}
    return tuple(
        p
        for name in (rim.landing.tables if ids else ())
        for p in snapshots_of(rim, name, rim.tables.load(name).metadata, ids, since=earlier.cycles[0].offset)
    )


def _is_of(rim: Rim, who: RunIdentity, c: CycleState) -> bool:
    return c.cycle.commit_id == cycle_id_of(rim, replace(who, number=c.cycle.number))


def _end_of(newest: CycleState, entries: Iterable[Entry]) -> CycleClosed | None:
    commit_id = newest.cycle.commit_id
    return next((e for e in entries if isinstance(e, CycleClosed) and e.commit_id == commit_id), None)
