# SPDX-License-Identifier: Apache-2.0
"""Which landings of a set have no topic any more, by what the control log still has of them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened
from airflow_provider_lakecommit.core.model import LIVE, Cycle, Plan
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.many.gone import GoneLanding, gone_landing

NAME = "shop.lake.orders"
AT = datetime(2026, 11, 24, tzinfo=UTC)
OWN = uuid4()


def shop(**fields: object) -> LandingSet:
    return LandingSet(name="shop", topics_pattern=r"shop\..*", table="lake.{topic}", **fields)  # type: ignore[arg-type]


def opened(*topics: str, commit_id: UUID = OWN) -> CycleOpened:
    plan = Plan(
        landing=NAME,
        lane=LIVE,
        spec_version="spec",
        window_id=uuid4(),
        slices=(),
        targets=(),
        ends={SourcePartition(t, 0, "id"): 5 for t in topics},
        asked_at=AT,
    )
    cycle = Cycle(commit_id=commit_id, dag="d", run="r", number=0, slot=0)
    return CycleOpened(offset=1, at=AT, commit_id=commit_id, cycle=cycle, plan=plan)


WHOLE = CycleClosed(offset=2, at=AT, commit_id=OWN, valid_through=AT)


def found(*topics: str, known: Collection[str] = ("shop.other",), **fields: object) -> GoneLanding | None:
    return gone_landing(shop(**fields), NAME, [opened(*topics), WHOLE], known)


def test_one_whose_topics_are_all_gone_is_named_with_its_topics() -> None:
    gone = found("shop.orders")
    assert gone is not None
    assert "shop.lake.orders: its topics are gone" in str(gone)
    assert "(shop.orders); its table stays as it is" in str(gone)


@pytest.mark.parametrize("closed", [[], [CycleClosed(offset=2, at=AT, commit_id=OWN, valid_through=None)]])
def test_what_was_not_landed_before_its_topic_went_is_said(closed: list[CycleClosed]) -> None:
    gone = gone_landing(shop(), NAME, [opened("shop.orders"), *closed], ())
    assert "what the newest cycle had seen of them was not all landed" in str(gone)


def test_one_that_has_a_topic_left_or_none_by_the_sets_own_word_is_not() -> None:
    assert found("shop.orders", "shop.more", known=["shop.more"]) is None
    assert found("shop.orders", exclude=r".*orders") is None
    assert gone_landing(shop(), NAME, [], ()) is None
    # Of a plan that could ask no broker, the one before tells.
    assert gone_landing(shop(), NAME, [opened("shop.orders"), opened(commit_id=uuid4())], ()) is not None
