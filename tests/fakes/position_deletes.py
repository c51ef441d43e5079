# SPDX-License-Identifier: Apache-2.0
"""Delete files as other engines write them, which pyiceberg cannot: positions of rows, or values of equal rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

from tests.fakes.lake import data_file

__all__ = ["delete_equal", "delete_positions"]

_PATH, _POSITION = 2147483546, 2147483545


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AppendDeletes(_FastAppendFiles):
    deletes: tuple[DataFile, ...] = ()
    mixed: tuple[DataFile, ...] = ()
    """Files of data and of deletes that one manifest of data lists."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        if self.mixed:
            return [*manifests, self._manifest(ManifestWriterV2, self.mixed)]
        of = [[d for d in self.deletes if d.spec_id == n] for n in {d.spec_id for d in self.deletes}]
        return [*manifests, *(self._manifest(_DeletesWriter, some) for some in of)]

    def _manifest(self, kind: type[ManifestWriterV2], files: Sequence[DataFile]) -> ManifestFile:
        spec, output = self.spec(files[0].spec_id), self.new_manifest_output()
        with kind(spec, self.schema(), output, self._snapshot_id, self._compression) as writer:
            for file in files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file
                    )
                )
        return writer.to_manifest_file()


def delete_positions(table: Table, branch: str, named: Iterable[tuple[DataFile, int]], *, bounds: bool = True) -> None:
    """One delete file per partition, and of these rows.

    :param bounds: the file says of which paths it is
    """
    by_partition: dict[Any, list[tuple[DataFile, int]]] = {}
    for file, position in named:
        by_partition.setdefault((file.spec_id, str(file.partition)), []).append((file, position))
    _commit(table, branch, [_positions(table, group, bounds) for group in by_partition.values()])


def _positions(table: Table, group: list[tuple[DataFile, int]], bounds: bool = True) -> DataFile:
    group.sort(key=lambda one: (one[0].file_path, one[1]))
    paths = [f.file_path for f, _ in group]
    columns = {"file_path": (pa.string(), paths, _PATH), "pos": (pa.int64(), [n for _, n in group], _POSITION)}
    ends = {_PATH: (min(paths).encode(), max(paths).encode())} if bounds else {}
    return _written(table, group[0][0], DataFileContent.POSITION_DELETES, columns, ends)


def delete_equal(
    table: Table,
    branch: str,
    like: DataFile,
    column: str,
    value: int,
    *,
    among: Sequence[DataFile] | None = None,
    positions: Sequence[tuple[DataFile, int]] = (),
) -> None:
    """Rows of a file's partition that have this value.

    :param among: data files that the manifest lists too, which then is called one of data
    :param positions: rows that a second delete file in the same manifest deletes
    """
    field_id = table.schema().find_field(column).field_id
    columns = {column: (pa.int64(), [value], field_id)}
    content = DataFileContent.EQUALITY_DELETES
    deletes = [_written(table, like, content, columns, {}, equality_ids=[field_id])]
    deletes += [_positions(table, [*positions])] if positions else []
    _commit(table, branch, deletes, among)


def _written(
    table: Table,
    like: DataFile,
    content: DataFileContent,
    columns: dict[str, tuple[pa.DataType, list[Any], int]],
    ends: dict[int, tuple[bytes, bytes]],
    **more: Any,
) -> DataFile:
    fields = [
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(n)})
        for name, (kind, _, n) in columns.items()
    ]
    rows = pa.table([v for _, v, _ in columns.values()], schema=pa.schema(fields))
    path = f"{table.location()}/data/{uuid4()}-deletes.parquet"
    pq.write_table(rows, path.removeprefix("file://"))
    return data_file(
        path,
        rows.num_rows,
        file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
        spec_id=like.spec_id,
        partition=like.partition,
        content=content,
        lower_bounds={n: low for n, (low, _) in ends.items()},
        upper_bounds={n: high for n, (_, high) in ends.items()},
        **more,
    )


def _commit(table: Table, branch: str, deletes: list[DataFile], among: Sequence[DataFile] | None = None) -> None:
    with table.transaction() as change:
        append = _AppendDeletes(operation=Operation.APPEND, transaction=change, io=table.io, branch=branch)
        append.deletes = tuple(deletes)
        append.mixed = () if among is None else (*among, *deletes)
        append.commit()
