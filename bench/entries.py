# SPDX-License-Identifier: Apache-2.0
"""File entries and a ledger section for benchmarks of commits: nothing of them is read, so no file is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import uuid4

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from airflow_provider_lakecommit.core.model import LIVE, ControlPosition, Counts, LedgerSection, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice

__all__ = ["CONTROL", "data_file", "section", "whole_slice"]

CONTROL = ControlPosition(
    cluster_id="bench",
    topic="control-lakecommit",
    topic_id="Y29udHJvbC10b3BpYy0tLQ",
    partition=0,
    read_from=0,
    low=None,
)
FILE_BYTES = 1 << 20


def section(landing: str, places: Iterable[SourcePartition]) -> LedgerSection:
    """Of a landing that starts at the begin of every partition."""
    return LedgerSection(
        landing=landing,
        lane=LIVE,
        cluster_id=CONTROL.cluster_id,
        epoch=uuid4(),
        spec_version="0" * 16,
        starts=dict.fromkeys(places, 0),
        covered=Coverage(),
        control=CONTROL,
    )


def whole_slice(of: LedgerSection, spans: Iterable[Span], files: tuple[DataFile, ...]) -> StagedSlice:
    """A slice of which every record became a row."""
    reports = tuple(SpanReport(span=s, counts=Counts(landed=len(s))) for s in spans)
    return StagedSlice(
        slice_id=uuid4(),
        attempt=uuid4(),
        window_id=uuid4(),
        epoch=of.epoch,
        spans=reports,
        files=files,
        rows=sum(len(r.span) for r in reports),
        schema_id=0,
        spec_id=0,
    )


def data_file(path: str, rows: int, *, partition: Record | None = None, bounds: Mapping[int, bytes]) -> DataFile:
    """With counts and bounds of the columns that ``bounds`` names."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=rows,
        file_size_in_bytes=FILE_BYTES,
        column_sizes=dict.fromkeys(bounds, FILE_BYTES // max(1, len(bounds))),
        value_counts=dict.fromkeys(bounds, rows),
        null_value_counts=dict.fromkeys(bounds, 0),
        nan_value_counts={},
        lower_bounds=dict(bounds),
        upper_bounds=dict(bounds),
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = 0
    return file
