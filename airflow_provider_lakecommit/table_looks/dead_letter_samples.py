# SPDX-License-Identifier: Apache-2.0
"""The newest few dead letters of each kind, as a dead-letter table holds them.

Contract: reads the newest files that are small enough, at most :data:`MOST_FILES` of :data:`MOST_BYTES` together, found
by the newest :data:`MOST_MANIFESTS` manifests. Rows of other landings that share the table are never told, nor those
that were deleted since.

Failure story: a table that is none of dead letters, or whose deletes pyiceberg cannot apply, is a :class:`TableError`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.table_looks.question import (
    MOST_HEADERS,
    MOST_KEY,
    MOST_TEXT,
    MOST_VALUE,
    Sample,
    part_of,
)

__all__ = ["FEW", "newest_samples"]

FEW = 3
"""Samples of each kind."""
MOST_KINDS = 20
MOST_FILES, MOST_BYTES, MOST_MANIFESTS = 10, 32 << 20, 20


def newest_samples(table: Table, branch: str, landing: str) -> tuple[Sample, ...]:
    """Those of a landing, the newest first.

    :raises TableError: they cannot be told
    """
    name = ".".join(table.name())
    schema = table.schema()
    if any(f.name not in schema.column_names for f in DEAD_LETTER_SCHEMA.fields):
        raise TableError(f"{name} is no dead-letter table: it lacks columns of one")
    head = table.metadata.snapshot_by_name(branch)
    manifests = head.manifests(table.io) if head is not None else []
    deletes = _deletes(table, [m for m in manifests if m.content == ManifestContent.DELETES])
    found: list[Sample] = []
    known: Counter[str] = Counter()
    for file in _newest(table, [m for m in manifests if m.content == ManifestContent.DATA]):
        for row in _rows(table, schema, file, deletes, landing):
            kind = _kind(row)
            if known[kind] < FEW and (known[kind] or len(known) < MOST_KINDS):
                known[kind] += 1
                found.append(_sample(row, kind))
    return tuple(found)


def _newest(table: Table, manifests: list[ManifestFile]) -> Iterator[DataFile]:
    """The newest files, as far as all together are small."""
    newest = sorted(manifests, key=lambda m: m.sequence_number or 0, reverse=True)[:MOST_MANIFESTS]
    entries = [e for m in newest for e in m.fetch_manifest_entry(table.io, discard_deleted=True)]
    read = files = 0
    for entry in sorted(entries, key=_age, reverse=True):
        size = entry.data_file.file_size_in_bytes
        if files < MOST_FILES and read + size <= MOST_BYTES:
            files, read = files + 1, read + size
            yield entry.data_file


def _age(entry: ManifestEntry) -> tuple[int, str]:
    return entry.sequence_number or 0, entry.data_file.file_path


def _deletes(table: Table, manifests: list[ManifestFile]) -> set[DataFile]:
    """Files of deleted positions."""
    files = [
        e.data_file
        for m in manifests[: MOST_MANIFESTS + 1]
        for e in m.fetch_manifest_entry(table.io, discard_deleted=True)
    ]
    equal = any(f.content == DataFileContent.EQUALITY_DELETES for f in files)
    if equal or len(manifests) > MOST_MANIFESTS or sum(f.file_size_in_bytes for f in files) > MOST_BYTES:
        raise TableError(
            f"rows of {'.'.join(table.name())} were deleted in a way that cannot be applied here: compact the table, "
            "and the next look shows its samples"
        )
    return set(files)


def _rows(
    table: Table, schema: Schema, file: DataFile, deletes: set[DataFile], landing: str
) -> Iterator[Mapping[str, Any]]:
    """The newest first."""
    from pyiceberg.io.pyarrow import ArrowScan

    wanted = schema.select(*(f.name for f in DEAD_LETTER_SCHEMA.fields))
    scan = ArrowScan(table.metadata, table.io, wanted, EqualTo("landing", landing))  # type: ignore[call-arg, arg-type]
    found = scan.to_table([FileScanTask(file, delete_files=deletes)])
    # Of each kind there may be very many, and of each only a few are made rows of Python.
    yield from (row for batch in reversed(found.to_batches(1000)) for row in reversed(_few(batch)))


def _few(batch: Any) -> list[Mapping[str, Any]]:
    """The last rows of each kind of a batch."""
    kinds = list(zip(batch.column("kind").to_pylist(), batch.column("column").to_pylist(), strict=True))
    left: Counter[tuple[str, str | None]] = Counter()
    places = []
    for place in range(len(kinds) - 1, -1, -1):
        left[kinds[place]] += 1
        if left[kinds[place]] <= FEW:
            places.append(place)
    rows: list[Mapping[str, Any]] = batch.take(sorted(places)).to_pylist()
    return rows


def _kind(row: Mapping[str, Any]) -> str:
    return " ".join(str(row[name]) for name in ("kind", "column") if row[name])[:MOST_TEXT]


def _sample(row: Mapping[str, Any], kind: str) -> Sample:
    at, headers = row["timestamp"], row["headers"] or ()
    return Sample(
        partition=f"{row['topic']}[{row['partition']}]",
        offset=row["offset"],
        at=None if at is None else at.isoformat(),
        kind=kind,
        reason=str(row["reason"])[:MOST_TEXT],
        key=part_of(row["key"], MOST_KEY),
        value=part_of(row["value"], MOST_VALUE),
        headers=tuple(str(h["key"])[:MOST_TEXT] for h in headers[:MOST_HEADERS]),
    )
