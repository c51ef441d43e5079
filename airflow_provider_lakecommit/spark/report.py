# SPDX-License-Identifier: Apache-2.0
"""The report of one slice: its files per table and its accounting, as control records of one transaction.

Contract: a slice is reported completely or not at all. Each table of the slice is named with its file count and rows,
even without files, so that a reader recognizes a report whose head was cut off the log. File lists are split
so that no record is near the broker's limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from pyiceberg.manifest import DataFile as ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.control import DataFile, DataWritten, Outgoing, Sender, table_reference
from airflow_provider_lakecommit.core import SliceReport, TableReport, TableTarget
from airflow_provider_lakecommit.iceberg import partition_fields, to_wire

MAX_RECORD_BYTES = 700_000
"""Largest DATA_WRITTEN that is sent unsplit; brokers take 1 MB by default, headers included."""
PIECE_BYTES = 500_000
SAMPLE_FILES = 50

NewId = Callable[[], UUID]


def report_records(
    sender: Sender,
    *,
    catalog: str,
    targets: Mapping[str, TableTarget],
    files: Mapping[str, Sequence[ManifestFile]],
    report: SliceReport,
    new_id: NewId,
    at: datetime,
    marks: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    tombstones: Mapping[str, Sequence[ManifestFile]] = MappingProxyType({}),
) -> list[Outgoing]:
    """Return DATA_WRITTEN of every table that got files, then DATA_COMPLETE. A slice that is over its budget or cannot
    be done has no targets.

    :param report: the slice's report; its tables are filled in here
    :param marks: by table, the columns that identify a row's record
    :param tombstones: by table, files with the keys that the slice deletes: delete files of the event, of no partition
    """
    out: list[Outgoing] = []
    tables: list[TableReport] = []
    for name, target in targets.items():
        written, deleted = files.get(name, ()), tombstones.get(name, ())
        records = _file_records(sender, catalog, target, written, report, new_id, at) if written else []
        if deleted:
            wire = to_wire(deleted, spec=UNPARTITIONED_PARTITION_SPEC, schema=Schema.model_validate_json(target.schema))
            payload = DataWritten(
                commit_id=sender.commit_id,
                table=table_reference(catalog, target.table, target.uuid),
                partition_fields=(),
                data_files=None,
                delete_files=wire,
            )
            records.append(sender.files(new_id(), at, payload, report, target.table))
        out.extend(records)
        tables.append(
            TableReport(
                table=name,
                uuid=target.uuid,
                epoch=target.epoch,
                schema_id=target.schema_id,
                spec_id=target.spec_id,
                events=len(records),
                files=len(written) + len(deleted),
                rows=sum(f.record_count for f in written),
                columns=marks.get(name, ()),
            )
        )
    out.append(sender.reported(new_id(), at, replace(report, tables=tuple(tables))))
    return out


def _file_records(
    sender: Sender,
    catalog: str,
    target: TableTarget,
    files: Sequence[ManifestFile],
    report: SliceReport,
    new_id: NewId,
    at: datetime,
) -> list[Outgoing]:
    schema = Schema.model_validate_json(target.schema)
    spec = PartitionSpec.model_validate_json(target.spec)
    fields = partition_fields(spec, schema)

    def record(part: Sequence[DataFile]) -> Outgoing:
        payload = DataWritten(
            commit_id=sender.commit_id,
            table=table_reference(catalog, target.table, target.uuid),
            partition_fields=fields,
            data_files=tuple(part),
            delete_files=None,
        )
        return sender.files(new_id(), at, payload, report, target.table)

    def split(part: Sequence[DataFile]) -> list[Outgoing]:
        whole = record(part)
        if len(whole.value) <= MAX_RECORD_BYTES or len(part) == 1:
            return [whole]
        half = len(part) // 2
        return split(part[:half]) + split(part[half:])

    # Encoding is the cost: cut pieces of about the right size by a few files, and cut again only if one is too large.
    wire = to_wire(files, spec=spec, schema=schema)
    sample = wire[:SAMPLE_FILES]
    step = max(1, len(sample) * PIECE_BYTES // len(record(sample).value)) if len(wire) > len(sample) else len(wire)
    return [r for at in range(0, len(wire), step) for r in split(wire[at : at + step])]
