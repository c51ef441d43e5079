# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.marks`: what the columns that name the record of a row add to the files of a table.

Contract: the same orders are written by the landing's own writer, once without and once with the four columns, in files
of one slice each, for codecs of a table's properties. Bytes are those of the files; nothing depends on the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from uuid import uuid4

import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from airflow_provider_lakecommit.cycle.session.tables import target_of
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import Layout
from airflow_provider_lakecommit.iceberg.schemas import METADATA_TYPES
from airflow_provider_lakecommit.landing import MARK_COLUMNS
from bench.orders import SCHEMA, expected

MARKED = Schema(*SCHEMA.fields, *(NestedField(90 + n, c, METADATA_TYPES[c]) for n, c in enumerate(MARK_COLUMNS)))


def written(tables: Tables, schema: Schema, codec: str, rows: int, slice_records: int) -> int:
    """Return the bytes of the files."""
    table = tables.create(
        f"bench.t{uuid4().hex}", schema, UNPARTITIONED_PARTITION_SPEC, {"write.parquet.compression-codec": codec}
    )
    target, total = target_of("bench.orders", table, uuid4()), 0
    arrow = Layout(target).arrow
    for start in range(0, rows, slice_records):
        count = min(slice_records, rows - start)
        marks = {
            "kafka_topic": pa.repeat("orders", count),
            "kafka_partition": pa.repeat(pa.scalar(3, pa.int32()), count),
            "kafka_generation": pa.repeat(1_795_542_000, count),
            "kafka_offset": pa.array(range(start, start + count), pa.int64()),
        }
        block = expected(start, start + count, rows)
        for name in (f.name for f in schema.fields if f.name in marks):
            block = block.append_column(name, marks[name])
        writer = FanoutWriter(target, table.io, uuid4())
        writer.write(block.select(arrow.names).cast(arrow))
        total += sum(f.file_size_in_bytes for f in writer.close())
    return total


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.marks", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--slice-records", type=int, default=250_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables({"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"})
        for codec in ("zstd", "snappy"):
            plain, marked = (
                written(tables, schema, codec, options.rows, options.slice_records) for schema in (SCHEMA, MARKED)
            )
            more = marked - plain
            print(f"{codec:8}{plain:>14,} bytes without, {marked:>14,} with: {more / plain:+.2%}, ", end="")
            print(f"{more / options.rows:.3f} bytes a row")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
