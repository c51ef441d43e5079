# SPDX-License-Identifier: Apache-2.0
"""Whether a landing of a set has nothing to do, by its log alone: only where the log reports it plainly."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened, Entry
from airflow_provider_lakecommit.core.model import LIVE, Cycle, Plan, RefusalState
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.sets.plans import IDLE, is_idle

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
PARTITION = SourcePartition("orders", 0, "id")
ENDS = {PARTITION: 10}
SPEC = "spec"


def opened(commit_id: UUID, at: datetime, **plan: object) -> CycleOpened:
    values = {
        "landing": "shop.lake.orders",
        "lane": LIVE,
        "spec_version": SPEC,
        "window_id": uuid4(),
        "slices": (),
        "targets": (),
        "ends": ENDS,
        "requested_at": at,
        "reason": "nothing new",
    }
    cycle = Cycle(commit_id=commit_id, dag="d", run="r", number=0, slot=0)
    return CycleOpened(offset=1, at=at, commit_id=commit_id, cycle=cycle, plan=Plan(**{**values, **plan}))  # type: ignore[arg-type]


def closed(commit_id: UUID, through: datetime | None) -> CycleClosed:
    return CycleClosed(offset=2, at=NOW, commit_id=commit_id, valid_through=through)


def idle(*entries: Entry, stable: dict[SourcePartition, int] | None = None, spec: str = SPEC) -> bool:
    return is_idle(entries, ENDS if stable is None else stable, spec, NOW)


@pytest.fixture
def own() -> UUID:
    return uuid4()


AT = NOW - timedelta(minutes=1)


def test_all_that_there_is_is_in_the_table(own: UUID) -> None:
    assert idle(opened(own, AT), closed(own, AT))


def test_what_came_since_is_to_be_read(own: UUID) -> None:
    log = opened(own, AT), closed(own, AT)
    assert not idle(*log, stable={PARTITION: 11})
    assert not idle(*log, stable={**ENDS, replace(PARTITION, partition=1): 0})
    assert not idle(*log, stable={replace(PARTITION, topic_id="made anew"): 10})
    assert not idle(*log, stable={})


def test_a_cycle_that_is_open_or_not_complete_is_for_the_next_one(own: UUID) -> None:
    other = uuid4()
    assert not idle()
    assert not idle(opened(own, AT))
    assert not idle(opened(own, AT), closed(own, None))
    assert not idle(opened(own, AT), closed(own, AT - timedelta(seconds=1)))
    assert not idle(opened(other, AT), closed(other, AT), opened(own, AT))


def test_a_plan_that_was_kept_or_left_something_or_is_of_another_spec_reports_nothing(own: UUID) -> None:
    assert not idle(opened(own, AT, refused=RefusalState.SUSPENDED), closed(own, AT))
    assert not idle(opened(own, AT, left=3), closed(own, AT))
    assert not idle(opened(own, AT), closed(own, AT), spec="another")


def test_after_a_while_it_is_checked_again(own: UUID) -> None:
    old = NOW - IDLE
    assert not idle(opened(own, old), closed(own, old))
