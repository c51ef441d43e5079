# SPDX-License-Identifier: Apache-2.0
"""The keys of some landing snapshots' ``extra``, and how they are read.

Contract: they do not decide what is in a table; its ledger does. They explain why a ledger differs from the previous
one, so that `verify` can compare them.

Failure story: unreadable text is an error if it would hide duplicate rows, and ignored if it only explains.
"""

from __future__ import annotations

import json

from airflow_provider_lakecommit.control import (
    CORRUPTION,
    LEDGER_LIMIT,
    count,
    coverage_from_json,
    coverage_to_json,
    pack,
    unpack,
)
from airflow_provider_lakecommit.core import Coverage
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotRecord

PRUNED = "pruned"
"""Extra key of a snapshot that removed missing partitions from some entries: their names and streams, as a JSON list.
"""
MERGED = "merged"
"""Extra key of a snapshot that closed backfills: entries that another entry took over, as a JSON list."""
HAD = "had"
"""Extra key of a ledger that a user set: the ranges that it gained and that the table had passed without a row."""
MOVED = "moved"
"""Extra key of a ledger whose landing moved to another cluster: its stream, and the one with the former rows, as JSON.
"""
REPLAYED = "replayed"
"""Extra key of a snapshot with rows of dead letters: their offsets, and how many of them gave no row."""
EVOLVED = "evolved"
"""Extra key of a snapshot with another schema: its id, the changes, and their origin, as JSON."""
SUPERSEDED, DELETED = "superseded", "deleted"
"""Extra keys of an upserting append: how many rows newer ones superseded, and how many the source deleted."""
LOOKED_UP = "looked-up"
"""Extra key of an upserting append: the rows and files of the table that were searched for its keys: ``ROWS FILES``."""
SPEC = "spec"
"""Extra key of an append: the landing's spec version and the fields of which it is made, as JSON, for readers."""


def pruned_sections(record: SnapshotRecord) -> set[tuple[str, str]]:
    """Return the entries that a user had pruned in this snapshot."""
    return _named(record, PRUNED)


def merged_sections(record: SnapshotRecord) -> set[tuple[str, str]]:
    """Return the entries of backfills that this snapshot closed."""
    return _named(record, MERGED)


def _named(record: SnapshotRecord, key: str) -> set[tuple[str, str]]:
    return {(landing, lane) for landing, lane in json.loads(record.extra.get(key, "[]"))}


def moved_lanes(record: SnapshotRecord) -> tuple[str, str] | None:
    """Return the stream that moved to another cluster in this snapshot, and the one with its former rows."""
    found = json.loads(record.extra.get(MOVED, "null"))
    return (str(found[0]), str(found[1])) if found else None


def had_to_text(ranges: Coverage) -> str:
    """Return the value of the extra key :data:`HAD`."""
    return _packed({"ranges": coverage_to_json(ranges)}, "what the table had passed")


def had_before(record: SnapshotRecord) -> Coverage:
    """Return what a ledger that a user set gained by this snapshot without giving anything up. Unreadable values count
    as nothing, as in older snapshots: this decides nothing.
    """
    try:
        return coverage_from_json(unpack(record.extra[HAD], what="what the table had passed")["ranges"])
    except (KeyError, TypeError, ValueError, AttributeError, WireError):
        return Coverage()


def replay_to_text(ranges: Coverage, filtered: int) -> str:
    """Return the value of the extra key :data:`REPLAYED`.

    :raises WireError: the ranges are too many
    """
    return _packed({"ranges": coverage_to_json(ranges), "filtered": filtered}, "what was replayed")


def replay_of(record: SnapshotRecord) -> tuple[Coverage, int] | None:
    """Return the offsets whose dead letters a snapshot replayed, and how many of them gave no row; ``None``: it is no
    replay.

    :raises WireError: it is one, and its offsets are unreadable
    """
    if REPLAYED not in record.extra:
        return None
    try:
        found = unpack(record.extra[REPLAYED], what="what was replayed")
        return coverage_from_json(found["ranges"]), count(found["filtered"])
    except CORRUPTION as e:
        raise WireError("LC3036", f"snapshot {record.snapshot_id} has no readable list of replayed offsets: {e}") from e


def _packed(values: dict[str, object], what: str) -> str:
    return pack(values, what=what, limit=LEDGER_LIMIT, remedy="replay fewer of them at once")
