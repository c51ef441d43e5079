# SPDX-License-Identifier: Apache-2.0
"""What some landing snapshots say beside what all of them say: the keys of their ``extra``, and how they are read.

Contract: these decide nothing of what is in a table, its ledger does; they say why a ledger differs from the one
before, so that `verify` can hold one against the other.

Failure story: text that cannot be read is an error where it would hide rows that are there twice, and nothing where it
only explains.
"""

from __future__ import annotations

import json

from airflow_provider_lakecommit.committer.summary import SnapshotRecord
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

PRUNED = "pruned"
"""Extra key of a snapshot that took out of some sections what is gone: these, as a JSON list of names and lanes."""
MERGED = "merged"
"""Extra key of a snapshot that closed lanes: what these sections had is another one's, as a JSON list likewise."""
HAD = "had"
"""Extra key of a ledger that a person set: what it gained and the table had passed before, having no row of it."""
MOVED = "moved"
"""Extra key of a ledger whose landing moved to another cluster: its lane and the one that keeps what it had, as
JSON.
"""
REPLAYED = "replayed"
"""Extra key of a snapshot with rows of dead letters: which offsets these are of, and how many of them gave no row."""
EVOLVED = "evolved"
"""Extra key of a snapshot that came with another schema: its id, the changes, and by what they were found, as JSON."""
SUPERSEDED, DELETED = "superseded", "deleted"
"""Extra keys of an upserting append: how many rows newer ones superseded, and how many the source deleted."""
LOOKED_UP = "looked-up"
"""Extra key of an upserting append: in how many rows and files of the table it looked for its keys, as ``ROWS FILES``.
"""
SPEC = "spec"
"""Extra key of an append: the landing's spec version and the fields that it is made of, as JSON, for people."""


def pruned_sections(record: SnapshotRecord) -> set[tuple[str, str]]:
    """The sections that a person had pruned in this snapshot."""
    return _named(record, PRUNED)


def merged_sections(record: SnapshotRecord) -> set[tuple[str, str]]:
    """The sections of lanes that were closed by this snapshot."""
    return _named(record, MERGED)


def _named(record: SnapshotRecord, key: str) -> set[tuple[str, str]]:
    return {(landing, lane) for landing, lane in json.loads(record.extra.get(key, "[]"))}


def moved_lanes(record: SnapshotRecord) -> tuple[str, str] | None:
    """The lane that moved to another cluster in this snapshot, and the one that has what it had, if one did."""
    found = json.loads(record.extra.get(MOVED, "null"))
    return (str(found[0]), str(found[1])) if found else None


def had_to_text(ranges: Coverage) -> str:
    """For the extra key :data:`HAD`."""
    return _packed({"ranges": coverage_to_json(ranges)}, "what the table had passed")


def had_before(record: SnapshotRecord) -> Coverage:
    """What a ledger that a person set gained by this snapshot without that anything was given up. Where it cannot be
    read it is nothing, as in snapshots of older releases: this decides nothing.
    """
    try:
        return coverage_from_json(unpack(record.extra[HAD], what="what the table had passed")["ranges"])
    except (KeyError, TypeError, ValueError, AttributeError, WireError):
        return Coverage()


def replay_to_text(ranges: Coverage, filtered: int) -> str:
    """For the extra key :data:`REPLAYED`.

    :raises WireError: there is no room for so many ranges
    """
    return _packed({"ranges": coverage_to_json(ranges), "filtered": filtered}, "what was replayed")


def replay_of(record: SnapshotRecord) -> tuple[Coverage, int] | None:
    """The offsets whose dead letters a snapshot replayed, and how many of them gave no row; ``None``: it is no replay.

    :raises WireError: it is one, and does not tell of what
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
