# SPDX-License-Identifier: Apache-2.0
"""What of a ledger is missing for good, and what is left of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from airflow_provider_lakecommit.control.ledger_text import decode_ledger, encode_ledger
from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.operations.decisions.prune import missing, pruned
from tests.support.story import P0, P1, VOID_EPOCH, ledger

OLD = SourcePartition("orders", 0, "topic-0")
ELSE = SourcePartition("returns", 0, "topic-9")
SECTION = replace(
    ledger().section,
    starts={P0: 0, P1: 0, ELSE: 4},
    covered=Coverage.of((p, OffsetRange(4, 9)) for p in (P0, OLD, ELSE)),
)


@pytest.mark.parametrize(
    ("ids", "named", "expected"),
    [
        ({"orders": "topic-1", "returns": "topic-9"}, (), {OLD}),
        ({"orders": "topic-1", "returns": None}, (), {OLD, ELSE}),
        ({"orders": "topic-1", "returns": None}, ("returns",), {OLD}),
        ({"orders": "topic-1"}, (), {OLD}),
        # Made anew, and `reset offsets` has not said yet where it goes on.
        ({"orders": "topic-2", "returns": "topic-9"}, (), set()),
        ({}, (), set()),
    ],
)
def test_what_is_missing_is_what_no_record_can_come_of(
    ids: dict[str, str | None], named: Collection[str], expected: set[SourcePartition]
) -> None:
    assert missing(SECTION, "c", ids, named) == expected


def test_of_another_cluster_nothing_is_known() -> None:
    assert missing(SECTION, "elsewhere", {"orders": None, "returns": None}) == frozenset()


def test_what_is_left_has_another_epoch_and_lacks_nothing_else() -> None:
    left = pruned(SECTION, {OLD, ELSE}, VOID_EPOCH, own=False)
    assert left == replace(
        SECTION,
        starts={P0: 0, P1: 0},
        covered=Coverage.of([(P0, OffsetRange(4, 9))]),
        # Dead letters of the topic that was made anew are not taken for those of the new one.
        replayed=Coverage.of([(OLD, OffsetRange(4, 9))]),
        epoch=VOID_EPOCH,
    )


def test_what_is_known_of_a_topic_that_is_missing_goes_with_it_and_the_rest_is_reported() -> None:
    known = replace(
        SECTION,
        evaluated={"old": Coverage.of([(OLD, OffsetRange(4, 9))]), "new": Coverage.of([(P0, OffsetRange(4, 9))])},
        positions={OLD: ReadPosition(offset=9, leader_epoch=3), P0: ReadPosition(offset=0, leader_epoch=1)},
    )
    left = pruned(known, {OLD, ELSE}, VOID_EPOCH, own=False)
    assert left is not None
    assert left.evaluated == {"new": Coverage.of([(P0, OffsetRange(4, 9))])}
    assert left.positions == {P0: ReadPosition(offset=0, leader_epoch=1)}
    assert decode_ledger(encode_ledger([left])) == (left,)


def test_a_section_of_which_nothing_is_left_goes_unless_it_is_ones_own() -> None:
    every = {P0, P1, OLD, ELSE}
    assert pruned(SECTION, every, VOID_EPOCH, own=False) is None
    own = pruned(SECTION, every, VOID_EPOCH, own=True)
    assert own is not None
    assert (own.starts, own.covered) == ({}, Coverage())
