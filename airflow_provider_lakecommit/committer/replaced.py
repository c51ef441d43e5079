# SPDX-License-Identifier: Apache-2.0
"""What a snapshot that replaces ranges says of what it took out, and how the ledger goes on after it.

Contract: pure. A :class:`Replaced` goes into the summary of its snapshot and comes back as it was. By
:func:`sections_after` no section of a landing has the ranges that were taken out, but for the lane that the new rows
are of. Where ranges are gone for good, all lanes of the landing get a new epoch: else a report of them that is still in
the control log would be accepted once more, and its files appended. Where every range is landed anew, only a lane that
lands its own ranges anew gets one. The new epochs follow from the snapshot's token, so that who asks a second time
finds in the ledger that it was done, whatever was expired.

Failure story: a summary that says nothing of it, or nothing that can be read, is that of a snapshot which took nothing
out: `verify` then finds that the ledger lost ranges without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid5

from airflow_provider_lakecommit.committer.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.rules import judged_in, merged
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.wire.coverage import coverage_from_json, coverage_to_json
from airflow_provider_lakecommit.wire.envelope import DAMAGE, count, pack, unpack
from airflow_provider_lakecommit.wire.ledger import LEDGER_LIMIT

__all__ = [
    "REPLACED",
    "Replaced",
    "Replacement",
    "landed_in",
    "other_topics",
    "renewed_epoch",
    "replaced_of",
    "sections_after",
]

REPLACED = "replaced"
"""Extra key of a snapshot: what it took out."""
_COUNTS = ("rows", "copied_rows", "deleted_rows", "dropped_files", "rewritten_files", "rewritten_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What a snapshot took out: ``rows`` of the ``ranges``. ``dropped_files`` held no other rows;
    ``rewritten_files``, of ``rewritten_bytes``, were copied without them, ``copied_rows`` in all. ``deleted_rows`` were
    deleted in these files before, by position deletes, and are in no copy.
    """

    ranges: Coverage
    rows: int = 0
    copied_rows: int = 0
    deleted_rows: int = 0
    dropped_files: int = 0
    rewritten_files: int = 0
    rewritten_bytes: int = 0

    @property
    def file_rows(self) -> int:
        """Record counts of the files that are gone."""
        return self.rows + self.copied_rows + self.deleted_rows

    @property
    def counts(self) -> dict[str, int]:
        """Its numbers by their names."""
        return {name: getattr(self, name) for name in _COUNTS}

    def to_text(self) -> str:
        """For :data:`REPLACED`.

        :raises WireError: the ranges are too many for a summary
        """
        values = {"ranges": coverage_to_json(self.ranges), **self.counts}
        return pack(values, what="what was replaced", limit=LEDGER_LIMIT, remedy="replace fewer ranges at once")


def replaced_of(record: SnapshotRecord) -> Replaced | None:
    """What a snapshot took out, if it says so."""
    if record.kind is not SnapshotKind.REPLACE:
        return None
    try:
        values = unpack(record.extra[REPLACED], what="what was replaced")
        return Replaced(
            ranges=coverage_from_json(values["ranges"]), **{name: count(values.get(name, 0)) for name in _COUNTS}
        )
    except (*DAMAGE, WireError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What comes in place of ranges: the lane's slices, and by which rules they were judged."""

    lane: str
    coverage: Coverage = field(default_factory=Coverage)
    judged: tuple[tuple[str, Coverage], ...] = ()


def renewed_epoch(token: UUID, section: LedgerSection) -> UUID:
    """The epoch that a section gets by the snapshot of this token."""
    return uuid5(token, "\x1f".join(("epoch", *section.key)))


def sections_after(
    sections: Iterable[LedgerSection], landing: str, taken: Coverage, anew: Replacement, token: UUID
) -> tuple[LedgerSection, ...]:
    """The ledger without what was taken out and with what came in its place; sections of others as they are."""
    gone = taken - anew.coverage
    return tuple(_after(s, taken, anew, token, gone=bool(gone)) if s.landing == landing else s for s in sections)


def _after(s: LedgerSection, taken: Coverage, anew: Replacement, token: UUID, *, gone: bool) -> LedgerSection:
    own = s.lane == anew.lane
    kept = s.covered - taken
    covered = kept | anew.coverage if own else kept
    judged = merged(judged_in(s.judged, kept), anew.judged if own else ())
    changed = replace(s, covered=covered, judged=judged)
    in_place = own and (s.covered & anew.coverage)
    return replace(
        changed,
        epoch=renewed_epoch(token, s) if gone or in_place else s.epoch,
        positions={p: at for p, at in s.positions.items() if at.offset <= _there(changed, anew.coverage, p)},
        # Who reads a range again has dead letters of its own.
        replayed=s.replayed - taken,
    )


def _there(section: LedgerSection, anew: Coverage, p: SourcePartition) -> int:
    """How far the table has a partition: what is landed anew was read before, too, by whatever lane."""
    ranges = anew[p].ranges
    return max(section.last(p), ranges[-1].end if ranges else 0)


def other_topics(coverage: Coverage, known: Iterable[Coverage]) -> Mapping[SourcePartition, SourcePartition]:
    """Of some partitions, those of which the table has the same offsets from another topic of the same name that are to
    stay: their rows cannot be told apart, as a row has the name of its topic only.
    """
    named: dict[tuple[str, int], list[SourcePartition]] = {}
    for p in coverage.parts:
        named.setdefault((p.topic, p.partition), []).append(p)
    found = {}
    for other in known:
        for p, ranges in other.parts.items():
            for own in named.get((p.topic, p.partition), ()):
                if own.topic_id != p.topic_id and (ranges & coverage[own]) - coverage[p]:
                    found[own] = p
    return found


def landed_in(records: Iterable[SnapshotRecord]) -> Coverage:
    """What the table has rows of, by its history, whatever became of its ledgers: landed, and not taken out since.

    :param records: of all landings, newest first
    """
    held, gone = Coverage(), dict[str, Coverage]()
    for record in records:
        held = held | (record.ranges - gone.get(record.landing, Coverage()))
        if (replaced := replaced_of(record)) is not None:
            gone[record.landing] = gone.get(record.landing, Coverage()) | replaced.ranges
    return held
