# SPDX-License-Identifier: Apache-2.0
"""No change of a ledger gives two landings of a table the same topic."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.model import FILLED, LIVE, ControlPosition, LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import check_alone

ORDERS, MORE = SourcePartition("orders", 0, "id"), SourcePartition("more", 0, "id-2")
CONTROL = ControlPosition(cluster_id="c", topic="control", topic_id="t", partition=0, read_from=0, low=None)


def section(landing: str, *partitions: SourcePartition, lane: str = LIVE) -> LedgerSection:
    return LedgerSection(
        landing=landing,
        lane=lane,
        cluster_id="c",
        epoch=uuid4(),
        spec_version="spec",
        starts=dict.fromkeys(partitions, 0),
        covered=Coverage(),
        control=CONTROL,
    )


def test_a_landing_gets_no_topic_that_another_one_has() -> None:
    right = section("orders", ORDERS)
    with pytest.raises(TableError, match="LC3003"):
        check_alone("lake.t", [right], [right, section("ordrs", ORDERS)])
    other = section("more", MORE)
    with pytest.raises(TableError, match="LC3003"):
        check_alone("lake.t", [right, other], [right, replace(other, starts={MORE: 0, ORDERS: 5})])


def test_streams_of_one_landing_share_its_topics_and_others_have_their_own() -> None:
    right, lane, other = section("orders", ORDERS), section("orders", ORDERS, lane=FILLED), section("more", MORE)
    check_alone("lake.t", [right], [right, lane, other])
    # A topic that was made anew has another id.
    check_alone("lake.t", [right], [right, section("ordrs", SourcePartition("orders", 0, "new"))])


def test_a_ledger_in_which_two_share_a_topic_already_can_still_be_written() -> None:
    both = [section("orders", ORDERS), section("ordrs", ORDERS)]
    check_alone("lake.t", both, [replace(s, epoch=uuid4()) for s in both])
    check_alone("lake.t", both, both[:1])
