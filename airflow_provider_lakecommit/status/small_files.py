# SPDX-License-Identifier: Apache-2.0
"""How many small files a table has.

Contract: :func:`table_files` uses the summary of the newest snapshot, at no cost; with ``count`` it reads all manifests
of that snapshot and counts. A file is small below a quarter of the table's target size. Without a summary the numbers
are unknown.

Failure story: a manifest that cannot be read raises :class:`CatalogError`, which names the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table

from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg import trouble_of

__all__ = ["TableFiles", "table_files"]

PART = 4
TARGET = "write.target-file-size-bytes"
DEFAULT_TARGET = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """Data files of a table. ``small`` is ``None`` if they were not counted."""

    files: int
    bytes: int
    limit: int
    small: int | None = None

    def __str__(self) -> str:
        mean = f"{self.files} data files of {self.bytes / max(1, self.files) / 1e6:.1f} MB on average"
        return mean if self.small is None else f"{mean}, {self.small} of them below {self.limit / 1e6:.0f} MB"


def table_files(table: Table, branch: str, *, count: bool = False) -> TableFiles | None:
    """Return the files of the newest snapshot of a branch.

    :param count: read its manifests
    :raises CatalogError: one of them cannot be read
    """
    head = table.metadata.snapshot_by_name(branch)
    if head is None or head.summary is None:
        return None
    stated = [head.summary.additional_properties.get(key, "") for key in ("total-data-files", "total-files-size")]
    if not all(text.isdecimal() for text in stated):
        return None
    asked = table.metadata.properties.get(TARGET, "")
    limit = (int(asked) if asked.isdecimal() else DEFAULT_TARGET) // PART
    try:
        small = sum(size < limit for size in _sizes(table, branch)) if count else None
    except Exception as e:  # a reader may raise anything for a missing or corrupt manifest
        what = trouble_of(table.io, e)
        raise CatalogError(
            "LC8602", f"the manifests of {'.'.join(table.name())} cannot be read ({what}): try again"
        ) from None
    return TableFiles(files=int(stated[0]), bytes=int(stated[1]), limit=limit, small=small)


def _sizes(table: Table, branch: str) -> list[int]:
    # Equal, not the same: manifests of format version 1 have the plain number.
    head = table.metadata.snapshot_by_name(branch)
    return [
        entry.data_file.file_size_in_bytes
        for manifest in (head.manifests(table.io) if head else ())
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content == DataFileContent.DATA
    ]
