# SPDX-License-Identifier: Apache-2.0
"""Tables that a landing adopted from a Kafka Connect sink: whether the sink writes to them still, or again.

Contract: reads metadata alone. A snapshot is the sink's if it tells the sink's control position and cycle; one that is
newer than the adoption must not be. Snapshots are told apart by their sequence numbers, which neither a rollback nor an
expiry makes smaller.

Failure story: a sink that somebody started again, or a coordinator that hung in a commit, is named at the next plan and
commit, and by `verify` also where landings have committed since. What is the sink's turn is nobody else's: a table that
was handed back is not landed in.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from airflow_provider_lakecommit.committer.ledger import LedgerState, ancestry
from airflow_provider_lakecommit.core.model import AdoptedSink, LedgerSection
from airflow_provider_lakecommit.exceptions import LedgerError

__all__ = ["ADOPTED_FROM", "check_adopted", "sink_commits", "sink_commits_text"]

ADOPTED_FROM = "lakecommit.adopted-from"
"""Summary key of the snapshot that tells a sink that it is done up to here: its group."""
_POSITION = "kafka.connect.offsets."
_CYCLE = "kafka.connect.commit-id"


def check_adopted(metadata: TableMetadata, state: LedgerState, landing: str, name: str) -> None:
    """Is it the landing's turn?

    :raises LedgerError: the table was handed back to its connector, or that has committed to it since it was adopted
    """
    for section in state.sections:
        sink = section.sink
        if section.landing != landing or sink is None:
            continue
        if sink.lands:
            raise LedgerError(
                f"{name} was handed back to connector {sink.connector}, which lands on from "
                f"{_ends(section)}; `lakecommit adopt SPEC --connector NAME --connect URL` takes it over again"
            )
        if found := list(sink_commits(metadata, state.branch, sink)):
            raise LedgerError(f"{name}: {sink_commits_text(sink, found)}")


def sink_commits(metadata: TableMetadata, branch: str, sink: AdoptedSink) -> Iterator[Snapshot]:
    """What the sink has committed to the branch since it was adopted, newest first."""
    for snapshot in ancestry(metadata, branch):
        if (snapshot.sequence_number or 0) <= sink.sequence:
            return
        if _is_of(snapshot, sink.group):
            yield snapshot


def _is_of(snapshot: Snapshot, group: str) -> bool:
    told = snapshot.summary.additional_properties if snapshot.summary else {}
    return _CYCLE in told and any(k.startswith(_POSITION) and k.endswith(f".{group}") for k in told)


def sink_commits_text(sink: AdoptedSink, found: list[Snapshot]) -> str:
    """What that means, and how to go on."""
    rows = sum(int(s.summary.additional_properties.get("added-records", 0)) for s in found if s.summary)
    before = found[-1].parent_snapshot_id
    return (
        f"connector {sink.connector} has committed {len(found)} snapshots with {rows} rows since the table was "
        f"adopted, the first one being {found[-1].snapshot_id}: these records may be landed too. Nothing is landed "
        f"until it is stopped and its rows are accounted for: `lakecommit adopt SPEC --connector NAME --connect URL` "
        f"stops it, and goes on behind what it has landed where nothing is in twice; else roll the branch back to "
        f"snapshot {before}, which takes out all that came after"
    )


def _ends(section: LedgerSection) -> str:
    return ", ".join(f"{p} {section.end(p)}" for p in sorted(section.starts))
