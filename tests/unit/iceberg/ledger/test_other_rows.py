# SPDX-License-Identifier: Apache-2.0
"""What the metadata of a table show of a sink's turn: its snapshots on the branch, and those that were rolled back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecommit.core.model import AdoptedSink
from airflow_provider_lakecommit.iceberg.ledger.other_rows import sink_turn

SINK = AdoptedSink(connector="sink", group="connect-sink", since={}, sequence=2, lands=True)
OF_SINK = {"kafka.connect.commit-id": "c", "kafka.connect.offsets.control.connect-sink": "{}"}


def snapshot(n: int, parent: int | None, **summary: str) -> Any:
    summary_of = SimpleNamespace(additional_properties=summary)
    return SimpleNamespace(snapshot_id=n, parent_snapshot_id=parent, sequence_number=n, summary=summary_of)


def metadata(head: int, *snapshots: Any) -> Any:
    """Snapshot 3 hands the table back."""
    by_id = {s.snapshot_id: s for s in snapshots}
    refs = {"main": SimpleNamespace(snapshot_id=head)}
    return SimpleNamespace(snapshots=snapshots, refs=refs, snapshot_by_id=by_id.get)


HANDED, FIRST, SECOND = snapshot(3, 2), snapshot(4, 3, **OF_SINK), snapshot(5, 4, **OF_SINK)


@pytest.mark.parametrize(
    ("head", "there", "landed", "rolled_back", "forward", "untouched"),
    [
        (3, [HANDED], [], [], None, True),
        (5, [HANDED, FIRST, SECOND], [5, 4], [], None, False),
        (4, [HANDED, FIRST, SECOND], [4], [5], 5, False),
        (3, [HANDED, FIRST, SECOND], [], [5, 4], 5, True),
        (6, [HANDED, FIRST, SECOND, snapshot(6, 3)], [], [5, 4], None, True),
        (6, [snapshot(6, 5)], [], [], None, False),
    ],
    ids=["nothing", "all there", "half rolled back", "all rolled back", "another writer since", "expired"],
)
def test_a_turn(
    head: int, there: list[Any], landed: list[int], rolled_back: list[int], forward: int | None, untouched: bool
) -> None:
    turn = sink_turn(metadata(head, *there), "main", SINK)
    assert [s.snapshot_id for s in turn.landed] == landed
    assert [s.snapshot_id for s in turn.rolled_back] == rolled_back
    assert (turn.forward, turn.is_untouched) == (forward, untouched)
