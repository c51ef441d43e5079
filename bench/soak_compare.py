# SPDX-License-Identifier: Apache-2.0
"""The comparison at the end of :mod:`bench.soak`: every row of every table with what was produced, read by DuckDB.

Contract: the reader is none of ours: DuckDB reads the metadata file that the catalog names. A row is *lost* if the
table has none with its id, *doubled* if it has several, *altered* if another value is in any column, *foreign* if
nothing was produced for it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from duckdb_extensions import import_extension
from pyiceberg.catalog import Catalog

from bench.soak_topics import Topic

__all__ = ["Comparison", "Reader", "compared"]

TRIES, TRY_SECONDS = 5, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a table has, against what was produced."""

    table: str
    expected: int
    rows: int
    lost: int
    doubled: int
    altered: int
    foreign: int
    example: str = ""

    @property
    def is_right(self) -> bool:
        return not (self.lost or self.doubled or self.altered or self.foreign)


class Reader:
    """Reads tables by the metadata file that the catalog names."""

    def __init__(self, catalog: Catalog, database: duckdb.DuckDBPyConnection) -> None:
        self._catalog, self._database = catalog, database

    @classmethod
    @contextmanager
    def opened(cls, catalog: Catalog, folder: Path) -> Iterator[Reader]:
        """A reader until the end of the block.

        :param folder: for the extensions of DuckDB
        """
        with duckdb.connect(config={"extension_directory": str(folder), "threads": 1}) as database:
            for name in ("avro", "iceberg"):
                import_extension(name, con=database)
                database.load_extension(name)
            yield cls(catalog, database)

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Return all rows of a table."""
        names = ", ".join(f'"{name}"' for name in columns)
        return self._read(table, f"SELECT {names} FROM {{}}")

    def ends(self, table: str) -> dict[int, int]:
        """Return the offset behind the last row of each partition."""
        found = self._read(table, "SELECT kafka_partition, max(kafka_offset) + 1 FROM {} GROUP BY 1")
        return {int(partition): int(end) for partition, end in found}

    def _read(self, table: str, sql: str) -> list[tuple[Any, ...]]:
        """Run SQL on the newest snapshot, again where its files were removed meanwhile."""
        for attempt in range(TRIES):
            place = self._catalog.load_table(table).metadata_location
            try:
                return self._database.execute(sql.format(f"iceberg_scan('{place}')")).fetchall()
            except duckdb.IOException:
                if attempt == TRIES - 1:
                    raise
            time.sleep(TRY_SECONDS)
        raise AssertionError("the last try returns or raises")


def compared(topic: Topic, reader: Reader) -> Comparison:
    """Compare the table of a topic with what was produced for it."""
    columns, expected = topic.columns(), topic.expected()
    rows = reader.rows(topic.table, columns)
    found: dict[int, tuple[Any, ...]] = {row[0]: row for row in rows}
    counts = Counter(row[0] for row in rows)
    lost = [n for n in expected if n not in found]
    altered = [n for n, row in expected.items() if n in found and found[n] != tuple(row.get(c) for c in columns)]
    example = f"lost {lost[:3]}" if lost else ""
    if altered:
        example += f" altered {found[altered[0]]} from {tuple(expected[altered[0]].get(c) for c in columns)}"
    return Comparison(
        table=topic.table,
        expected=len(expected),
        rows=len(rows),
        lost=len(lost),
        doubled=sum(count - 1 for count in counts.values()),
        altered=len(altered),
        foreign=sum(n not in expected for n in found),
        example=example.strip(),
    )
