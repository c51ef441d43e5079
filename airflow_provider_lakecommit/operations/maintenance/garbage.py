# SPDX-License-Identifier: Apache-2.0
"""Decide which files are garbage, and why: by name, by age, by the control log and the ledger.

Contract: pure. Garbage is only what a stream of this landing wrote for this very table: the mark in the name of a data
file shows it, and the id in that of a manifest, which is made from the table's. Files in a snapshot of the metadata,
files younger than the requested age, and reported files that can still be published are never garbage: reported files
are garbage only if the compare-and-swap would refuse them, because their range is in the ledger or their epoch is void,
or if the report itself excludes their publication.

An *unreported* file is garbage once the control log has its attempt as void, see
:mod:`~airflow_provider_lakecommit.operations.maintenance.sweep`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from uuid import UUID

from airflow_provider_lakecommit.core import Entry, SliceFiles, SliceReport, SliceReported, TableLedger, is_attempt_at


class Why(StrEnum):
    """The reason why a file is garbage."""

    UNREPORTED = "nothing tells of it: its task was killed, or what it did is long over"
    LANDED = "its range is in the table by another attempt"
    VOID = "its epoch is void"
    NOT_DONE = "its slice was reported as not done"
    CLOSED = "its lane was closed, so that nothing of it is published any more"
    LOST_COMMIT = "of a commit attempt that is in no snapshot"
    UPLOAD = "parts of an upload that its task never finished"


class Kept(StrEnum):
    """The reason why a file stays."""

    HELD = "a snapshot holds it"
    YOUNG = "younger than the age"
    WAITS = "reported, and may still be published"
    OTHERS = "of another landing, or an earlier table here"
    UNMARKED = (
        "its name does not show whose it is: Iceberg's remove_orphan_files takes it, with an older_than that is longer "
        "ago than anything has waited to be published"
    )
    FOREIGN = "not named by a landing"
    IN_FLIGHT = "its commit may still be under way"


_MANIFEST = re.compile(r"([0-9a-f-]{36})-m[0-9]+\.avro")
_MANIFEST_LIST = re.compile(r"snap-[0-9]+-[0-9]+-([0-9a-f-]{36})\.avro")


def commit_of(name: str, table: UUID) -> tuple[UUID, bool] | None:
    """Return the landing's commit that wrote this manifest, and whether it is a manifest list; ``None``: none did."""
    listed = _MANIFEST_LIST.fullmatch(name)
    found = listed or _MANIFEST.fullmatch(name)
    try:
        commit = None if found is None else UUID(found[1])
    except ValueError:
        return None
    return (commit, listed is not None) if commit is not None and is_attempt_at(commit, table) else None


def reports_of(entries: Iterable[Entry], ledger: TableLedger, before: int | None = None) -> dict[UUID, Why | None]:
    """Return the reported attempts for one table, with the reason why they can no longer be published, ``None`` if they
    can.

    :param before: only by records before this offset of the log
    """
    earlier = [e for e in entries if before is None or e.offset < before]
    out: dict[UUID, Why | None] = {}
    for e in earlier:
        if isinstance(e, SliceReported):
            attempt, why = e.report.attempt, _final(e.report, ledger)
            # Any writer could report it again: an attempt that can be published stays so.
            out[attempt] = None if attempt in out and out[attempt] is None else why
    files = (e.attempt for e in earlier if isinstance(e, SliceFiles))
    return {**dict.fromkeys(files), **out}


def _final(report: SliceReport, ledger: TableLedger) -> Why | None:
    if report.blocked is not None or report.failed is not None:
        return Why.NOT_DONE
    of = report.table(ledger.table)
    if of is not None and (of.uuid != ledger.uuid or of.epoch != ledger.section.epoch):
        return Why.VOID
    landed = ledger.section.covered | ledger.others
    return Why.LANDED if report.coverage.overlaps(landed) else None
