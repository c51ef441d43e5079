# SPDX-License-Identifier: Apache-2.0
"""What a snapshot that replaces ranges says of what it took out, and how the ledger goes on after it.

Contract: pure. A :class:`Replaced` goes into the summary of its snapshot and comes back as it was. By
:func:`sections_after` no section of a landing has the ranges that were taken out, but for the lane that the new rows
are of. Where ranges are gone for good, all lanes of the landing that may have reported them get a new epoch: else a
report of them that is still in the control log would be accepted once more, and its files appended. Where every range
is landed anew, only a lane that lands its own ranges anew gets one. The new epochs follow from the snapshot's token, so
that who asks a second time finds in the ledger that it was done, whatever was expired.

Failure story: a summary that says nothing of it, or nothing that can be read, is that of a snapshot which took nothing
out: `verify` then finds that the ledger lost ranges without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid5

from airflow_provider_lakecommit.committer.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.control import (
    CORRUPTION,
    LEDGER_LIMIT,
    count,
    coverage_from_json,
    coverage_to_json,
    pack,
    unpack,
)
from airflow_provider_lakecommit.core import (
    Coverage,
    LedgerSection,
    Provenance,
    SourcePartition,
    added,
    evaluated_in,
    merged,
    positions_up_to,
)
from airflow_provider_lakecommit.exceptions import WireError

REPLACED = "replaced"
"""Extra key of a snapshot: what it took out."""
_COUNTS = ("rows", "copied_rows", "deleted_rows", "dropped_files", "rewritten_files", "rewritten_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What a snapshot took out: ``rows`` of the ``ranges``, and of the ``past`` ones, which earlier readings landed and
    the ledger does not cover by them any more. ``dropped_files`` held no other rows;
    ``rewritten_files``, of ``rewritten_bytes``, were copied without them, ``copied_rows`` in all. ``deleted_rows`` were
    deleted in these files before, by position deletes, and are in no copy.
    """

    ranges: Coverage
    past: Coverage = field(default_factory=Coverage)
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
        values |= {"past": coverage_to_json(self.past)} if self.past else {}
        return pack(values, what="what was replaced", limit=LEDGER_LIMIT, remedy="replace fewer ranges at once")


def replaced_of(record: SnapshotRecord) -> Replaced | None:
    """What a snapshot took out, if it says so."""
    if record.kind is not SnapshotKind.REPLACE:
        return None
    try:
        values = unpack(record.extra[REPLACED], what="what was replaced")
        return Replaced(
            ranges=coverage_from_json(values["ranges"]),
            past=coverage_from_json(values.get("past", ())),
            **{name: count(values.get(name, 0)) for name in _COUNTS},
        )
    except (*CORRUPTION, WireError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What comes in place of ranges: the lane's slices, their rules and their reading."""

    lane: str
    coverage: Coverage = field(default_factory=Coverage)
    evaluated: tuple[tuple[str, Coverage], ...] = ()
    provenance: tuple[Provenance, ...] = ()


def renewed_epoch(token: UUID, section: LedgerSection) -> UUID:
    """The epoch that a section gets by the snapshot of this token."""
    return uuid5(token, "\x1f".join(("epoch", *section.key)))


def sections_after(
    sections: Sequence[LedgerSection],
    landing: str,
    taken: Coverage,
    anew: Replacement,
    token: UUID,
    left: Mapping[tuple[str, str], tuple[Provenance, ...]],
) -> tuple[LedgerSection, ...]:
    """Return the ledger without what was taken out and with what came in its place; sections of others as they are.

    :param left: by landing and lane, which readings landed the rows that stay
    """
    own = [replace(s, provenance=left.get(s.key, s.provenance)) for s in sections if s.landing == landing]
    newest = max((g for s in own for g in (s.generation, *(e.generation for e in s.provenance))), default=0)
    # Ranges that are gone are read again by another reading: dead letters of a former one are not open then.
    reading = newest + 1 if taken - anew.coverage or not anew.coverage else None
    after = {s.key: _after(s, taken, anew, token, reading if ends_epoch(s, taken) else None) for s in own}
    return tuple(after.get(s.key, s) for s in sections)


def ends_epoch(section: LedgerSection, taken: Coverage) -> bool:
    """Return True if a section gets a new epoch where ranges are gone for good: all do that may have reported them."""
    return not section.ends or (section.bounds | section.covered).overlaps(taken)


def _after(s: LedgerSection, taken: Coverage, anew: Replacement, token: UUID, reading: int | None) -> LedgerSection:
    """:param reading: the next generation, where ranges are gone that the section may have reported"""
    own = s.lane == anew.lane
    kept = s.covered - taken
    covered = kept | anew.coverage if own else kept
    evaluated = merged(evaluated_in(s.evaluated, kept), anew.evaluated if own else ())
    provenance = added(s.provenance, anew.provenance if own else ())
    changed = replace(s, covered=covered, evaluated=evaluated, provenance=provenance)
    in_place = own and (s.covered & anew.coverage)
    return replace(
        changed,
        epoch=renewed_epoch(token, s) if reading is not None or in_place else s.epoch,
        generation=s.generation if reading is None else reading,
        positions=positions_up_to(s.positions, {p: _there(changed, anew.coverage, p) for p in s.positions}),
        # Who reads a range again has dead letters of its own.
        replayed=s.replayed - taken,
    )


def _there(section: LedgerSection, anew: Coverage, p: SourcePartition) -> int:
    """How far the table has a partition: what is landed anew was read before, too, by whatever lane."""
    ranges = anew[p].ranges
    return max(section.last(p), ranges[-1].end if ranges else 0)
