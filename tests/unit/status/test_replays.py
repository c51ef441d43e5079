# SPDX-License-Identifier: Apache-2.0
"""A replay that is doubled, made up, forgotten or of too many is found; one that adds up is not."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from airflow_provider_lakecommit.control.ledger_text import decode_ledger, encode_ledger
from airflow_provider_lakecommit.core.model import Counts, LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import REPLAYED, replay_of, replay_to_text
from airflow_provider_lakecommit.operations.decisions.prune import pruned
from airflow_provider_lakecommit.status.replacements import Step, is_replay, replay_problems
from tests.fakes.lake import at, coverage, section

P = at(0)
BARE = replace(section(), covered=coverage((0, 0, 20)))
HAS = [BARE]
PIECES = {P: {OffsetRange(0, 20): Counts(landed=16, rejected=4)}}


def replays(*ranges: tuple[int, int], rows: int | None = None, filtered: int = 0) -> SnapshotRecord:
    replayed = coverage(*((0, a, b) for a, b in ranges))
    many = len(replayed) - filtered if rows is None else rows
    extra = {REPLAYED: replay_to_text(replayed, filtered)}
    return SnapshotRecord(
        kind=SnapshotKind.CARRY, branch="main", landing="orders", lane="live", rows=many, extra=extra, snapshot_id=7
    )


def having(*ranges: tuple[int, int], of: LedgerSection = BARE) -> list[LedgerSection]:
    return [replace(of, replayed=coverage(*((0, a, b) for a, b in ranges)))]


def problems(*steps: Step, one_each: bool = True) -> str:
    return "; ".join(text for _, text in replay_problems("orders", steps, PIECES, one_each=one_each))


def test_what_adds_up_is_all_right() -> None:
    first: Step = (replays((3, 5), (9, 10)), HAS, having((3, 5), (9, 10)))
    second: Step = (replays((12, 13), filtered=1), having((3, 5), (9, 10)), having((3, 5), (9, 10), (12, 13)))
    assert problems(first, second) == ""


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ((replays((3, 5), rows=3), HAS, having((3, 5))), "3 rows for 2 dead letters"),
        ((replays((3, 5), rows=1), HAS, having((3, 5))), "1 rows for 2 dead letters"),
        ((replays((18, 22)), HAS, having((18, 22))), "which the table did not have"),
        ((replays((3, 5)), having((4, 5)), having((3, 5))), "which was replayed before according to its ledger"),
        ((replays((3, 5)), HAS, HAS), "the ledger no longer records"),
        ((replays((3, 5)), HAS, having((3, 6))), "the snapshot does not"),
        ((replays((3, 8)), HAS, having((3, 8))), "5 dead letters were replayed, 4 were rejected"),
    ],
)
def test_what_does_not_is_found(step: Step, message: str) -> None:
    assert message in problems(step)


def test_a_replay_that_was_done_twice_is_found_though_each_adds_up() -> None:
    first: Step = (replays((3, 5)), HAS, having((3, 5)))
    again: Step = (replays((4, 6)), None, None)
    assert "its rows are duplicated" in problems(first, again)


def test_a_commit_of_a_release_that_dropped_it_is_found() -> None:
    carry = SnapshotRecord(kind=SnapshotKind.CARRY, branch="main", landing="orders", lane="live")
    assert "the ledger no longer records" in problems((carry, having((3, 5)), HAS))


def test_a_decision_that_goes_back_closes_what_is_read_again() -> None:
    init = SnapshotRecord(kind=SnapshotKind.INIT, branch="main", landing="orders", lane="live")
    after = having((10, 20), of=replace(BARE, covered=coverage((0, 0, 10))))
    assert BARE.closed_with(coverage((0, 0, 10))) == after[0].replayed
    assert problems((init, HAS, after)) == ""


def test_a_corrupt_decision_of_a_replay_is_wrong_and_no_replay() -> None:
    corrupted = replace(replays((3, 5)), extra={REPLAYED: "{}"})
    with pytest.raises(WireError):
        replay_of(corrupted)
    assert not is_replay(corrupted)
    assert "has no readable list of replayed offsets" in problems((corrupted, HAS, HAS))


def test_ledgers_keep_what_was_replayed_and_older_ones_have_none() -> None:
    (section,) = having((3, 5), (9, 10))
    (read,) = decode_ledger(encode_ledger([section]))
    assert read.replayed == section.replayed
    assert '"replayed"' not in encode_ledger(HAS)
    assert decode_ledger(encode_ledger(HAS))[0].replayed == Coverage()


def test_a_full_ledger_goes_without_rules_and_never_without_replays() -> None:
    many = Coverage.of((P, OffsetRange(n * 7919 % 1_000_003, n * 7919 % 1_000_003 + 1)) for n in range(1, 6000))
    rules = {f"r{n}": coverage((0, n, n + 1)) for n in range(8)}
    section = replace(BARE, replayed=many, evaluated=rules)
    (read,) = decode_ledger(encode_ledger([section]))
    assert read.replayed == many
    starts = [n * 15_485_863 % (1 << 40) for n in range(40_000)]
    lots = replace(BARE, replayed=Coverage.of((P, OffsetRange(start, start + 1)) for start in starts))
    with pytest.raises(WireError, match="LC2341"):
        encode_ledger([lots])


def test_prune_takes_out_what_is_missing_and_remembers_former_offsets_of_a_topic_that_is_there_anew() -> None:
    removed, anew = at(1), replace(at(0), topic_id="anew")
    two = replace(
        BARE,
        starts={at(0): 0, removed: 0, anew: 0},
        covered=coverage((0, 0, 20), (1, 0, 20)),
        replayed=coverage((0, 3, 5), (1, 3, 5)),
    )
    left = pruned(two, [at(0)], UUID(int=9), own=True)
    assert left is not None
    assert left.replayed == coverage((0, 0, 20), (1, 3, 5))
    other = pruned(replace(two, starts={at(0): 0, replace(removed, topic="other"): 0}), [at(0)], UUID(int=9), own=True)
    assert other is not None
    assert other.replayed == coverage((1, 3, 5))
