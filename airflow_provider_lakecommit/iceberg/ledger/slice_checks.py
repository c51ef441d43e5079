# SPDX-License-Identifier: Apache-2.0
"""Decide what may be appended: each staged slice against the ledger, the table's schema and spec, and its own files.

Contract: pure. :func:`evaluate_slices` sorts slices into those to append, those already in the ledger, and refused
ones, each with its reason. Slices to append overlap neither each other nor the rows of any landing in the table, and
leave no hole: in each partition they continue from the end of the ledger.

A slice written under an older schema is taken if that schema is still known and every column of the current one can be
read from its files: present with the same or a narrower type, or absent and optional. A slice of another partition spec
than the default is refused, because an append writes one manifest of one spec. If the source no longer has its records,
it is *kept*: it may be appended under its own spec, in a commit of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

from pyiceberg.exceptions import ResolveError
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, promote
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from airflow_provider_lakecommit.control import DataFile as WireFile
from airflow_provider_lakecommit.core import (
    NOTHING,
    Coverage,
    LedgerSection,
    Provenance,
    RangeSet,
    Role,
    SliceReport,
    SourcePartition,
    SpanReport,
    added,
    counts_by_partition,
    holes,
    merged,
    rows_problem,
    spans_problem,
)
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, LedgerState
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.iceberg.schemas import mark_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSlice:
    """A reported slice with its files for one table, written under ``schema_id`` and ``spec_id`` and evaluated by
    ``rules``. ``generation`` and ``columns`` are those of its report and of the table's share in that. ``tombstones``
    have the keys that it deletes; no table gets these files. ``counted_as`` names the count of records with one row
    each in this table, ``landed`` or ``rejected``; empty if they may have several.
    """

    slice_id: UUID
    attempt: UUID
    window_id: UUID
    epoch: UUID
    spans: tuple[SpanReport, ...]
    files: tuple[DataFile, ...]
    rows: int
    schema_id: int
    spec_id: int
    rules: str = ""
    generation: int | None = None
    columns: tuple[int, ...] = ()
    tombstones: tuple[WireFile, ...] = ()
    counted_as: str = ""

    @classmethod
    def of(
        cls, report: SliceReport, table: str, files: Iterable[DataFile], tombstones: Iterable[WireFile] = ()
    ) -> StagedSlice:
        """Return a report's share for one table.

        :raises KeyError: the slice was not processed for that table
        """
        share = report.table(table)
        if share is None:
            raise KeyError(f"slice {report.slice_id} was not done for {table}")
        return cls(
            slice_id=report.slice_id,
            attempt=report.attempt,
            window_id=report.window_id,
            epoch=share.epoch,
            spans=report.spans,
            files=tuple(files),
            rows=share.rows,
            schema_id=share.schema_id,
            spec_id=share.spec_id,
            rules=report.rules,
            generation=report.generation,
            columns=share.columns,
            tombstones=tuple(tombstones),
        )

    @property
    def coverage(self) -> Coverage:
        return Coverage.of((s.span.partition, s.span.range) for s in self.spans)

    @property
    def provenance(self) -> Iterator[Provenance]:
        """Yield the provenance of its rows for a ledger: by span if the rows of each span are known, else of all
        together. Older reports give none.
        """
        if self.generation is None:
            return
        by_span = [getattr(s.counts, self.counted_as) if self.rows and self.counted_as else 0 for s in self.spans]
        if sum(by_span) != self.rows:
            yield Provenance.counted(self.generation, self.coverage, self.rows, self.columns, one_each=False)
            return
        for s, rows in zip(self.spans, by_span, strict=True):
            ranges = Coverage.of([(s.span.partition, s.span.range)])
            yield Provenance.counted(self.generation, ranges, rows, self.columns)


class Grounds(StrEnum):
    """The reason why a slice is not appended."""

    EPOCH = "epoch"
    """Its epoch has ended: void."""
    OVERLAP = "overlap"
    """Some of its offsets are in the table, or in another slice of the same request: void."""
    SPEC = "spec"
    """The table has another partition spec now: void, plan again."""
    SCHEMA = "schema"
    """The table's columns can no longer be read from its files: void, plan again."""
    ACCOUNTING = "accounting"
    """Its records, rows or files do not add up: void, plan again."""
    HOLE = "hole"
    """It would leave a hole: it waits for the offsets before it."""


def with_slices(section: LedgerSection, slices: Iterable[StagedSlice]) -> LedgerSection:
    """Return an entry that also has these slices."""
    slices = tuple(slices)
    return replace(
        section,
        covered=section.covered | Coverage.union(s.coverage for s in slices),
        evaluated=merged(section.evaluated, ((s.rules, s.coverage) for s in slices)),
        provenance=added(section.provenance, (e for s in slices for e in s.provenance)),
    )


def record_of_slices(kind: SnapshotKind, slices: Sequence[StagedSlice], **more: Any) -> SnapshotRecord:
    """Return the record of a snapshot with the files of these slices."""
    return SnapshotRecord(
        kind=kind,
        slices=len(slices),
        windows=tuple(dict.fromkeys(s.window_id for s in slices)),
        ranges=Coverage.union(s.coverage for s in slices),
        accounting=counts_by_partition(r for s in slices for r in s.spans),
        rows=sum(s.rows for s in slices),
        **more,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A slice that is not appended. ``void``: its range is read again, unless another slice lands it; otherwise it
    waits.
    """

    slice: StagedSlice
    grounds: Grounds
    reason: str

    @property
    def void(self) -> bool:
        return self.grounds is not Grounds.HOLE

    def __str__(self) -> str:
        return f"slice {self.slice.slice_id} ({self.slice.coverage}): {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendDecision:
    accepted: tuple[StagedSlice, ...]
    already: tuple[StagedSlice, ...]
    refused: tuple[Refused, ...]


def evaluate_slices(
    slices: Sequence[StagedSlice],
    metadata: TableMetadata,
    state: LedgerState,
    section: LedgerSection,
    kept: Collection[UUID] = (),
    key: Collection[str] = (),
) -> AppendDecision:
    """Sort slices; ``section`` is the ledger entry to add them to.

    :param kept: attempts whose ranges cannot be read again: they are taken under their own partition spec
    :param key: columns of an upserting landing that each file must have, besides those that name its records
    """
    others = state.covered(exclude=section.key)
    accepted: list[StagedSlice] = []
    already: list[StagedSlice] = []
    refused: list[Refused] = []
    # Per partition, because a drain after an outage may have thousands of slices and of partitions.
    taken, paths = dict((section.covered | others).parts), set[str]()
    for one in slices:
        coverage = one.coverage
        if one.epoch == section.epoch and not coverage - section.covered:
            already.append(one)
            continue
        found = (
            _epoch(one, state, section)
            or _overlap(coverage, taken)
            # Without a file it has no schema and no spec.
            or (_table(one, metadata, own_spec=one.attempt in kept) if one.files else None)
            or (_key(one, metadata, key) if one.files or one.tombstones else None)
            or _accounting(one, metadata, paths)
        )
        if found:
            refused.append(Refused(slice=one, grounds=found[0], reason=found[1]))
        else:
            accepted.append(one)
            taken.update({p: taken.get(p, NOTHING) | ranges for p, ranges in coverage.parts.items()})
            paths.update(f.file_path for f in one.files)
    connected, holes = _connected(accepted, section, others)
    return AppendDecision(accepted=connected, already=tuple(already), refused=(*refused, *holes))


Finding = tuple[Grounds, str] | None


def _epoch(one: StagedSlice, state: LedgerState, section: LedgerSection) -> Finding:
    if state.condition is Condition.ROLLED_BACK:
        return Grounds.EPOCH, f"{state.reason}: a new epoch is written first, and what was pending is read again"
    if one.epoch != section.epoch:
        return Grounds.EPOCH, f"it is of epoch {one.epoch}, the ledger is at {section.epoch}"
    return None


def _overlap(coverage: Coverage, taken: Mapping[SourcePartition, RangeSet]) -> Finding:
    twice = Coverage({p: ranges & taken.get(p, NOTHING) for p, ranges in coverage.parts.items()})
    if not twice:
        return None
    return Grounds.OVERLAP, f"{twice} is already in the table or in this commit; the rest is planned again"


def _table(one: StagedSlice, metadata: TableMetadata, *, own_spec: bool) -> Finding:
    if one.spec_id != metadata.default_spec_id and not (own_spec and _has_spec(metadata, one.spec_id)):
        return Grounds.SPEC, (
            f"it was written under partition spec {one.spec_id}, the table is at {metadata.default_spec_id}"
        )
    if one.schema_id == metadata.current_schema_id:
        return None
    written = metadata.schema_by_id(one.schema_id)
    problem = "no longer exists" if written is None else _unreadable(written, metadata.schema())
    if problem is None:
        return None
    return Grounds.SCHEMA, (
        f"schema {one.schema_id}, which it was written under, {problem} (the table is at schema "
        f"{metadata.current_schema_id})"
    )


def _key(one: StagedSlice, metadata: TableMetadata, key: Collection[str]) -> Finding:
    written, schema = metadata.schema_by_id(one.schema_id), metadata.schema()
    marks = mark_columns(schema, Role.ROWS) if key else ()
    for field in schema.fields:
        needed = field.name in key or field.field_id in marks
        if needed and (written is None or written.find_column_name(field.field_id) is None):
            return Grounds.SCHEMA, (
                f"schema {one.schema_id}, which it was written under, lacks column {field.name}, which `upsert` needs"
            )
    return None


def _has_spec(metadata: TableMetadata, spec_id: int) -> bool:
    """Return True if the table still has this spec and all columns it uses."""
    spec, columns = metadata.specs().get(spec_id), metadata.schema()
    return spec is not None and all(columns.find_column_name(f.source_id) is not None for f in spec.fields)


def _accounting(one: StagedSlice, metadata: TableMetadata, paths: set[str]) -> Finding:
    problem = spans_problem(one.spans) or _files_problem(one, metadata, paths)
    return (Grounds.ACCOUNTING, problem) if problem else None


def _files_problem(one: StagedSlice, metadata: TableMetadata, paths: set[str]) -> str | None:
    if problem := rows_problem([f.record_count for f in one.files], one.rows):
        return problem
    arity = len(metadata.specs()[one.spec_id].fields) if one.files else 0
    own = set[str]()
    for f in one.files:
        if f.file_path in paths or f.file_path in own:
            return f"file {f.file_path} is already in this commit"
        if f.spec_id != one.spec_id or len(f.partition) != arity:
            return f"file {f.file_path} has {len(f.partition)} partition values of spec {f.spec_id}, not {arity}"
        own.add(f.file_path)
    return None


def _connected(
    slices: list[StagedSlice], section: LedgerSection, others: Coverage
) -> tuple[tuple[StagedSlice, ...], tuple[Refused, ...]]:
    """Return the greatest set without a hole between the ledger and any of its slices."""
    disconnected = holes([s.coverage for s in slices], section.covered | others, section.starts)
    refused = tuple(
        Refused(slice=slices[n], grounds=Grounds.HOLE, reason=f"offset {behind} of {p} is missing before it: it waits")
        for n, (p, behind) in disconnected.items()
    )
    return tuple(s for n, s in enumerate(slices) if n not in disconnected), refused


def _unreadable(written: Schema, current: Schema) -> str | None:
    """Return the first column of ``current`` that cannot be read from files of ``written``."""
    return _struct_problem(written.as_struct(), current.as_struct(), "")


def _struct_problem(written: StructType, current: StructType, path: str) -> str | None:
    have = {f.field_id: f for f in written.fields}
    for field in current.fields:
        name = f"{path}{field.name}"
        if (problem := _field_problem(have.get(field.field_id), field, name)) is not None:
            return problem
    return None


def _field_problem(written: NestedField | None, current: NestedField, name: str) -> str | None:
    if written is None:
        return f"lacks the required column {name}" if current.required else None
    if current.required and not written.required:
        return f"allows nulls in {name}, which is required now"
    return _type_problem(written.field_type, current.field_type, name)


def _type_problem(written: IcebergType, current: IcebergType, name: str) -> str | None:
    if isinstance(written, StructType) and isinstance(current, StructType):
        return _struct_problem(written, current, f"{name}.")
    if isinstance(written, ListType) and isinstance(current, ListType):
        return _field_problem(written.element_field, current.element_field, f"{name}.element")
    if isinstance(written, MapType) and isinstance(current, MapType):
        return _field_problem(written.key_field, current.key_field, f"{name}.key") or _field_problem(
            written.value_field, current.value_field, f"{name}.value"
        )
    if written == current:
        return None
    try:
        promote(written, current)
    except ResolveError:
        return f"has {name} as {written}, which cannot be read as {current}"
    return None
