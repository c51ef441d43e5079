# SPDX-License-Identifier: Apache-2.0
"""What a snapshot that replaces ranges removed, and the ledger after it.

Contract: pure. A :class:`Replaced` is written to the summary of its snapshot and read back unchanged. After
:func:`sections_after`, no entry of a landing has the removed ranges, except the stream of the new rows. If ranges are
lost for good, all streams of the landing that may have reported them get a new epoch: otherwise a report of them in the
control log would be accepted again, and its files appended. If every range is landed again, only a stream that lands
its own ranges again gets one. The new epochs follow from the snapshot's token, so a repeated request finds in the
ledger that it was done, whatever was expired.

Failure story: a summary without it, or with an unreadable one, counts as that of a snapshot that removed nothing:
`verify` then reports that the ledger lost ranges without an explanation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid5

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
    evaluated_in,
    positions_up_to,
)
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice, with_slices
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord

REPLACED = "replaced"
"""Extra key of a snapshot: what it removed."""
_COUNTS = ("rows", "copied_rows", "deleted_rows", "dropped_files", "rewritten_files", "rewritten_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What a snapshot removed: ``rows`` of the ``ranges``, and of the ``past`` ones, which earlier readings landed and
    the ledger no longer covers. ``dropped_files`` had no other rows; ``rewritten_files``, of ``rewritten_bytes``, were
    copied without them, ``copied_rows`` in all. ``deleted_rows`` had been deleted in these files by position deletes
    and are in no copy.
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
        """Return the record counts of the removed files."""
        return self.rows + self.copied_rows + self.deleted_rows

    @property
    def counts(self) -> dict[str, int]:
        """Return its numbers by name."""
        return {name: getattr(self, name) for name in _COUNTS}

    def to_text(self) -> str:
        """Return the value of :data:`REPLACED`.

        :raises WireError: the ranges are too many for a summary
        """
        values = {"ranges": coverage_to_json(self.ranges), **self.counts}
        values |= {"past": coverage_to_json(self.past)} if self.past else {}
        return pack(values, what="what was replaced", limit=LEDGER_LIMIT, remedy="replace fewer ranges at once")


def replaced_of(record: SnapshotRecord) -> Replaced | None:
    """Return what a snapshot removed, if its summary has it."""
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


def renewed_epoch(token: UUID, section: LedgerSection) -> UUID:
    """Return the epoch that an entry gets by the snapshot with this token."""
    return uuid5(token, "\x1f".join(("epoch", *section.key)))


def sections_after(
    sections: Sequence[LedgerSection],
    own: tuple[str, str],
    taken: Coverage,
    slices: Sequence[StagedSlice],
    token: UUID,
    left: Mapping[tuple[str, str], tuple[Provenance, ...]],
) -> tuple[LedgerSection, ...]:
    """Return the ledger without the removed ranges and with their replacement; entries of other landings are unchanged.

    :param own: landing and stream of the new slices
    :param left: by landing and stream, the readings that landed the remaining rows
    """
    before = [replace(s, provenance=left.get(s.key, s.provenance)) for s in sections if s.landing == own[0]]
    newest = max((g for s in before for g in (s.generation, *(e.generation for e in s.provenance))), default=0)
    anew = Coverage.union(one.coverage for one in slices)
    # Lost ranges are read again by another reading: dead letters of the former one are then not open.
    reading = newest + 1 if taken - anew or not anew else None
    after = {
        s.key: _after(s, taken, anew, slices if s.key == own else (), token, reading if ends_epoch(s, taken) else None)
        for s in before
    }
    return tuple(after.get(s.key, s) for s in sections)


def ends_epoch(section: LedgerSection, taken: Coverage) -> bool:
    """Return True if an entry gets a new epoch because it may have reported ranges that are lost for good."""
    return not section.ends or (section.bounds | section.covered).overlaps(taken)


def _after(
    s: LedgerSection, taken: Coverage, anew: Coverage, slices: Sequence[StagedSlice], token: UUID, reading: int | None
) -> LedgerSection:
    """:param anew: what any stream lands again
    :param slices: the new ones of this stream
    :param reading: the next generation, if ranges that the entry may have reported are lost
    """
    kept, own = s.covered - taken, Coverage.union(one.coverage for one in slices)
    changed = with_slices(replace(s, covered=kept, evaluated=evaluated_in(s.evaluated, kept)), slices)
    return replace(
        changed,
        epoch=renewed_epoch(token, s) if reading is not None or s.covered & own else s.epoch,
        generation=s.generation if reading is None else reading,
        positions=positions_up_to(s.positions, {p: _there(changed, anew, p) for p in s.positions}),
        # A new reading of a range has its own dead letters.
        replayed=s.replayed - taken,
    )


def _there(section: LedgerSection, anew: Coverage, p: SourcePartition) -> int:
    """Return how far the table has a partition: what is landed again was read before, by any stream."""
    ranges = anew[p].ranges
    return max(section.last(p), ranges[-1].end if ranges else 0)
