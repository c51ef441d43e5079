# SPDX-License-Identifier: Apache-2.0
"""Each record goes to exactly one table: refuse plans that could put a record in two, or in none.

Contract: :func:`check_dispositions` accepts a plan whose ranges are missing in all tables of the landing, or are
evaluated as in the tables that have them. It writes nothing. It reads what the decision of
:mod:`~airflow_provider_lakecommit.core.planning.voiding` needs.

Failure story: a :class:`~airflow_provider_lakecommit.exceptions.LedgerError` names the ranges, the tables, and the
remedies: roll back the other table too, so that both are read again together, if that loses no rows of others; delete
its rows, for the same effect, if they have marks; undo the change; or assert that the table is correct as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from uuid import UUID

from pyiceberg.table.snapshots import Operation

from airflow_provider_lakecommit.core import (
    BACKFILL,
    RESET_ASSERT,
    RESET_OFFSETS,
    Coverage,
    LandingState,
    Missing,
    RangeSet,
    SourcePartition,
    Watermark,
    differing,
    other_rules,
    outruled,
    removed,
    rules_of,
    schemas_of,
    shares_of,
    unmarked,
    voidable_slices,
)
from airflow_provider_lakecommit.cycle.plan.ready_tables import Prepared, PreparedTable
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import ancestry, record_of, sections_of
from airflow_provider_lakecommit.landing import Landing

Marks = Mapping[SourcePartition, Watermark]


def check_dispositions(
    landing: Landing, lane: str, prepared: Prepared, landing_state: LandingState, missing: Missing, marks: Marks
) -> None:
    """Check that missing ranges may be read for the tables that lack them.

    :param marks: offsets of the source: no remedy that loses rows is named
    :raises LedgerError: a record could end in two tables of the landing, or in none
    """
    if all(len(tables) == len(prepared.tables) for tables in missing.ranges):
        return
    rules = rules_now(landing, prepared)
    data = (t.table.metadata for t in prepared.tables if t.name in landing.data_tables)
    always = all(len({rules_of("", s.model_dump_json()) for s in metadata.schemas}) == 1 for metadata in data)
    alike = {t.name: _alike(landing, t, rules, landing_state) for t in prepared.tables} if always else {}
    if found := other_rules(landing_state, missing, rules, alike):
        holders = {t.name: t for t in prepared.tables}
        texts = (
            _text(landing, lane, tables, ranges, holders[holder], marks) for (tables, holder), ranges in found.items()
        )
        raise LedgerError("LC6005", "; ".join(texts))


def check_agreement(landing: Landing, prepared: Prepared, marks: Marks) -> None:
    """Refuse a plan while two tables disagree about ranges that can be read again.

    :raises LedgerError: a record may be in both tables, or in neither
    """
    own = {t.name: [s for s in t.state.sections if s.landing == landing.name] for t in prepared.tables}
    for one, other in combinations(own, 2):
        found = differing(own[one], own[other])
        if ranges := found - removed(found, marks):
            starts = ",".join(f"{p.topic}:{p.partition}={s.ranges[0].start}" for p, s in sorted(ranges.parts.items()))
            raise LedgerError(
                "LC6006",
                f"{one} and {other} read {ranges} with different columns or decoding: a record of these ranges may be "
                "in both tables, or in neither. One of them was rolled back alone. Read the ranges again "
                f"for both: `{RESET_OFFSETS} SPEC --from {starts} {_how(landing)}`",
            )


def _alike(landing: Landing, t: PreparedTable, rules: str, landing_state: LandingState) -> Coverage:
    """Return the table's ranges of this spec without other known rules. Ranges that closed backfills passed without a
    row may have other rules.
    """
    own = (s for s in t.state.sections if s.landing == landing.name and s.spec_version == landing.spec_version)
    same = {s.lane: s.covered for s in own if s.evaluated.keys() <= {rules}}
    pending = landing_state.accepted_coverage(t.name) if t.ledger.section.lane in same else Coverage()
    return Coverage.union(same.values()) | pending


def given_up(landing: Landing, prepared: Prepared, landing_state: LandingState, marks: Marks) -> dict[UUID, str]:
    """Return attempts that a plan voids to unblock others, with reasons: only ranges that can be read again."""
    apart = {
        a: f"{why}; its ranges are read again separately" for a, why in voidable_slices(landing_state, marks).items()
    }
    return apart | outruled(landing_state, rules_now(landing, prepared), marks)


def rules_now(landing: Landing, prepared: Prepared) -> str:
    """Return the rules by which records of a landing are evaluated now."""
    return rules_of(landing.decoding_hash, *schemas_of(landing.destinations, prepared.targets))


def _how(landing: Landing) -> str:
    """Return how offsets are read again: where a table has one row per key, no row of a range can be deleted."""
    return "--again" if landing.upsert.key else "--delete"


def _text(
    landing: Landing, lane: str, tables: tuple[str, ...], ranges: Coverage, holder: PreparedTable, marks: Marks
) -> str:
    lacking, columns = " and ".join(tables), ", ".join(landing.data_tables)
    ends = ",".join(f"{p.topic}:{p.partition}={s.ranges[-1].end}" for p, s in sorted(ranges.parts.items()))
    before = _newest_without(landing, lane, ranges, holder, marks)
    together = f"roll {holder.name} back to snapshot {before} to read them again for all tables; " if before else ""
    # By the columns of rows, if the source has all deleted ranges: no rollback or manual step is needed.
    starts = ",".join(f"{p.topic}:{p.partition}={s.ranges[0].start}" for p, s in sorted(ranges.parts.items()))
    what = "read them again in all tables" if landing.upsert.key else "delete the rest of them as well"
    out = f"{what} with `{RESET_OFFSETS} SPEC --from {starts} {_how(landing)}`, to the same effect; "
    if not landing.upsert.key and _others_behind(landing.name, holder, ranges):
        anew = " ".join(f"--range {p.topic}:{p.partition}={r.start}-{r.end}" for p, r in ranges.items())
        out = f"replace these ranges in all tables with `{BACKFILL} SPEC --replace {anew}`; "
    marked = landing.columns.metadata or landing.upsert.key
    together += out if marked and not removed(ranges, marks) else ""
    commands = " and ".join(f"`{RESET_ASSERT} SPEC --table {t} --at {ends}`" for t in tables)
    return (
        f"{lacking} lacks {ranges}, which {holder.name} read with other columns of {columns} or another "
        f"decoding of landing {landing.name}: read for {lacking} alone now, a record could end in "
        f"two tables, or in none. Nothing is read until you decide: {together}or undo the change until {lacking} "
        f"has them; or, if {lacking} is correct without them, confirm it with {commands}"
    )


def _others_behind(landing: str, holder: PreparedTable, ranges: Coverage) -> bool:
    """Return True if the table has rows from the beginning of these ranges on without marks, as a connector's: only a
    replay removes rows before them.
    """
    before = Coverage({p: RangeSet.of((0, some.ranges[0].start)) for p, some in ranges.parts.items()})
    own = (s for s in holder.state.sections if s.landing == landing)
    there = ((s, Coverage({p: s.covered[p] for p in ranges.parts}) - before) for s in own)
    return any(unmarked(shares_of(s.provenance, part), part) for s, part in there)


def _newest_without(landing: Landing, lane: str, ranges: Coverage, holder: PreparedTable, marks: Marks) -> int | None:
    """Return the newest snapshot whose ledger lacks these ranges, if going back to it loses no row: everything after it
    is this landing's own, and the source still has it.
    """
    now, own = holder.ledger.section.covered, (landing.name, lane)
    for snapshot in ancestry(holder.table.metadata, landing.branch):
        if (record := record_of(snapshot)) is None:
            if snapshot.summary is None or snapshot.summary.operation is not Operation.REPLACE:
                return None
            continue
        if not any(s.covered.overlaps(ranges) for s in sections_of(snapshot)):
            then = next((s.covered for s in sections_of(snapshot) if (s.landing, s.lane) == own), Coverage())
            return None if removed(now - then, marks) else snapshot.snapshot_id
        if (record.landing, record.lane) != own:
            return None
    return None
