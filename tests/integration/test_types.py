# SPDX-License-Identifier: Apache-2.0
"""A table with a column of every type, made from a spec and filled from a real topic, against other readers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from airflow_provider_lakecommit.core.model import Counts, Slice, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.iceberg.table_spec import create_from_spec
from tests.support.declared import landing_of
from tests.support.jobs import plan_of, slice_job
from tests.support.slices import land_slice
from tests.support.targets import target_of

pytestmark = pytest.mark.integration

TYPES = {
    "id": "long",
    "truth": "boolean",
    "small": "int",
    "real": "float",
    "ratio": "double",
    "price": "decimal(9, 2)",
    "note": "string",
    "day": "date",
    "clock": "time",
    "local": "timestamp",
    "at": "timestamptz",
    "uuid": "uuid",
    "mark": "fixed[3]",
    "blob": "binary",
    "place": "struct<city: string, seen: timestamptz>",
    "tags": "list<string>",
    "attrs": "map<string, double>",
    "by_id": "map<uuid, struct<times: list<time>, counts: map<int, long>>>",
    "deep": "list<map<date, list<struct<m: map<string, list<decimal(38, 10)>>>>>>",
}
TIMESTAMPS = {"at": "epoch_nanos", "place.seen": "epoch_millis", "by_id.value.times.element": "millis_of_day"}
ENCODINGS = {"mark": "hex", "blob": "base64"}
LOW, HIGH = UUID(int=10), UUID(int=2**127 + 1)
RECORDS: list[dict[str, Any]] = [
    {
        "id": 1,
        "truth": True,
        "small": -(2**31),
        "real": 0.5,
        "ratio": 0.1,
        "price": "12.30",
        "note": "ü",
        "day": "2024-02-29",
        "clock": "12:30:15.000001",
        "local": "2026-01-02T03:04:05.6",
        "at": 1_767_355_200_000_001_000,
        "uuid": str(LOW).upper(),
        "mark": "00ff7f",
        "blob": "AAECgA==",
        "place": {"city": "Oslo", "seen": 1_767_355_200_000},
        "tags": ["a", None, ""],
        "attrs": {"": 1, "b": None},
        "by_id": {str(HIGH): {"times": [1, None], "counts": {"-1": 2}}, str(LOW): None},
        "deep": [{"2026-01-01": [{"m": {"x": [1.0000000001, None]}}, None]}, {}, None],
    },
    {"id": 2},
    {
        "id": 3,
        "clock": "00:00",
        "uuid": str(HIGH),
        "mark": "010203",
        "blob": "",
        "tags": [],
        "attrs": {},
        "by_id": {},
        "deep": [],
    },
]
AT = datetime(2026, 1, 2, 12, 0, 0, 1, tzinfo=UTC)
FULL: dict[str, Any] = {
    "id": 1,
    "truth": True,
    "small": -(2**31),
    "real": 0.5,
    "ratio": 0.1,
    "price": Decimal("12.30"),
    "note": "ü",
    "day": date(2024, 2, 29),
    "clock": time(12, 30, 15, 1),
    "local": datetime(2026, 1, 2, 3, 4, 5, 600_000),
    "at": AT,
    "uuid": LOW,
    "mark": b"\x00\xff\x7f",
    "blob": b"\x00\x01\x02\x80",
    "place": {"city": "Oslo", "seen": AT.replace(microsecond=0)},
    "tags": ["a", None, ""],
    "attrs": [("", 1.0), ("b", None)],
    "by_id": [(HIGH, {"times": [time(0, 0, 0, 1000), None], "counts": [(-1, 2)]}), (LOW, None)],
    "deep": [[(date(2026, 1, 1), [{"m": [("x", [Decimal("1.0000000001"), None])]}, None])], [], None],
}
EMPTY = dict.fromkeys(TYPES) | {"id": 2}
HOLLOW = EMPTY | {"id": 3, "clock": time(0), "uuid": HIGH, "mark": b"\x01\x02\x03", "blob": b"", "tags": []}
HOLLOW |= {"attrs": [], "by_id": [], "deep": []}
MAPS = {"attrs", "by_id"}
PHYSICAL = {
    "clock": ("INT64", "Time(isAdjustedToUTC=false, timeUnit=microseconds)"),
    "day": ("INT32", "Date"),
    "uuid": ("FIXED_LEN_BYTE_ARRAY", "UUID"),
    "mark": ("FIXED_LEN_BYTE_ARRAY", "None"),
    "blob": ("BYTE_ARRAY", "None"),
    "attrs.key_value.key": ("BYTE_ARRAY", "String"),
    "attrs.key_value.value": ("DOUBLE", "None"),
    "by_id.key_value.key": ("FIXED_LEN_BYTE_ARRAY", "UUID"),
    "by_id.key_value.value.counts.key_value.key": ("INT32", "None"),
    "by_id.key_value.value.times.list.element": ("INT64", "Time(isAdjustedToUTC=false, timeUnit=microseconds)"),
}


@pytest.fixture
def table(catalog: Catalog, bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any]) -> Table:
    """The records, read from a topic, written and appended."""
    topic = make_topic(1)
    produce(topic, RECORDS, 0)
    columns = [{"name": name, "type": text, "required": name == "id"} for name, text in TYPES.items()]
    schema, spec, properties = create_from_spec({"schema": columns})
    made = catalog.create_table("shop.types", schema, partition_spec=spec, properties=properties)
    landing = landing_of(name="types", topics=topic, table="shop.types", timestamps=TIMESTAMPS, encodings=ENCODINGS)
    span = Span(SourcePartition(topic, 0), OffsetRange(0, len(RECORDS)))
    slice_ = Slice(slice_id=uuid4(), group=0, spans=(span,), tables=landing.tables)
    job = slice_job(landing, plan_of(landing, [slice_], [target_of(made, landing.table)]))
    outcome = land_slice(job, bootstrap, made.io.properties)
    assert [s.counts for s in outcome.report.spans] == [Counts(landed=len(RECORDS))]
    with made.transaction() as tx, tx.update_snapshot().fast_append() as append:
        for file in outcome.files[landing.table]:
            append.append_data_file(file)
    return catalog.load_table("shop.types")


def data_file(table: Table) -> Any:
    (task,) = table.scan().plan_files()
    return task.file


def test_the_table_has_the_types_that_were_requested(table: Table) -> None:
    kinds = {f.name: str(f.field_type) for f in table.schema().fields if isinstance(f.field_type, PrimitiveType)}
    assert kinds == {name: text for name, text in TYPES.items() if "<" not in text}


def test_pyiceberg_reads_every_value_as_it_was_written(table: Table) -> None:
    found = table.scan().to_arrow().sort_by("id").to_pylist()
    # pyiceberg gives a map that is null as one that is empty; the file has it right, see below.
    found = [{k: None if k in MAPS and not v and r["id"] == 2 else v for k, v in r.items()} for r in found]
    assert found == [FULL, EMPTY, HOLLOW]


def test_the_parquet_file_alone_reports_the_same(table: Table) -> None:
    file = pq.ParquetFile(Path(urlsplit(data_file(table).file_path).path))
    assert file.read().sort_by("id").to_pylist() == [FULL, EMPTY, HOLLOW]
    columns = {c.path: (c.physical_type, str(c.logical_type)) for c in map(file.schema.column, range(len(file.schema)))}
    assert {path: columns[path] for path in PHYSICAL} == PHYSICAL


def test_the_bounds_in_the_manifest_are_those_of_the_values(table: Table) -> None:
    schema, file = table.schema(), data_file(table)

    def bounds(which: dict[int, bytes]) -> dict[str, Any]:
        found = {schema.find_column_name(i): from_bytes(schema.find_type(i), b) for i, b in which.items()}
        return {name: found[name] for name in ("clock", "uuid", "mark", "blob", "day", "at")}

    micros = 12 * 3_600_000_000 + 30 * 60_000_000 + 15_000_001
    both = {"day": (date(2024, 2, 29) - date(1970, 1, 1)).days, "at": 1_767_355_200_000_001}
    assert bounds(file.lower_bounds) == {"clock": 0, "uuid": LOW.bytes, "mark": b"\x00\xff\x7f", "blob": b"", **both}
    upper = {"clock": micros, "uuid": HIGH.bytes, "mark": b"\x01\x02\x03", "blob": b"\x00\x01\x02\x80"}
    assert bounds(file.upper_bounds) == upper | both


@pytest.mark.parametrize(
    ("column", "within", "beyond"),
    [
        ("uuid", HIGH, UUID(int=2**128 - 1)),
        ("mark", b"\x01\x02\x03", b"\xff\xff\xff"),
        ("clock", "00:00:00", "13:00:00"),
        ("day", "2024-02-29", "2025-01-01"),
    ],
)
def test_a_filter_on_such_a_column_plans_the_file_or_passes_it_over(
    table: Table, column: str, within: Any, beyond: Any
) -> None:
    planned = [len(list(table.scan(EqualTo(column, value)).plan_files())) for value in (within, beyond)]
    assert planned == [1, 0]
