# SPDX-License-Identifier: Apache-2.0
"""What a reader that shares no code with the package finds in the tables: the files that the head of each one lists.

The catalog is asked by SQL, the metadata are read by pyiceberg, the files by pyarrow. Records are known by the
value id in their payload, which the campaign gave them, so that no metadata column has to be right.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import StaticTable

from airflow_provider_lakecommit.control.headers import find
from airflow_provider_lakecommit.control.records import read_entry
from airflow_provider_lakecommit.core.log import SliceReported
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from tests.fakes.kafka import FakeControl

__all__ = ["DEAD", "ROWS", "Found", "Reading", "SeveralReader", "TableReader", "UpsertReader", "rows_of"]

ROWS, DEAD = "shop.rows", "shop.dead"
_FILE = "file://"


@dataclass(frozen=True, slots=True)
class Reading:
    """A report: the generation of its reading, what it was of, and the fields that had no column."""

    generation: int
    coverage: Coverage
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """The value ids in both tables, each as often as it has a row, and the metadata files that report it."""

    rows: Counter[int] = field(default_factory=Counter)
    dead: Counter[int] = field(default_factory=Counter)
    heads: Mapping[str, str] = field(default_factory=dict)
    live: Sequence[Mapping[str, object]] = ()
    sections: Sequence[LedgerSection] = ()
    readings: Sequence[Reading] = ()
    """Of a table with a row per key: its rows, what its ledger says of the records that made them, and the reports of
    its slices so far, in their order.
    """

    @property
    def ids(self) -> set[int]:
        return {*self.rows, *self.dead}


class TableReader:
    """Reads the tables of rows and those of dead letters; a file that was read before is not read again."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._known: dict[str, Counter[int]] = {}
        self._files: dict[str, tuple[int, ...]] = {}

    def read(self) -> Found:
        heads = self._heads()
        rows, dead = Counter[int](), Counter[int]()
        for name, location in heads.items():
            (dead if _is_dead(name) else rows).update(self._counted(name, location))
        return Found(rows, dead, heads)

    def _heads(self) -> dict[str, str]:
        if not self._database.exists():
            return {}
        query = "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"
        with closing(sqlite3.connect(self._database)) as connection:
            return dict(connection.execute(query).fetchall())

    def _counted(self, name: str, location: str) -> Counter[int]:
        if location not in self._known:
            self._known[location] = Counter(n for path in files(location) for n in self._ids_in(path, name))
        return self._known[location]

    def _ids_in(self, path: str, name: str) -> tuple[int, ...]:
        if path not in self._files:
            self._files[path] = tuple(self._id(name, row) for row in _rows(path, name))
        return self._files[path]

    @staticmethod
    def _id(name: str, row: Mapping[str, object]) -> int:
        if _is_dead(name):
            return int(json.loads(bytes(row["value"]))["id"])  # type: ignore[arg-type]
        if row["name"] != f"n{row['id']}":
            raise AssertionError(f"a row of {name} has the id of one record and the name of another: {row}")
        return int(row["id"])  # type: ignore[call-overload]


def rows_of(n: int) -> int:
    """How many rows a record gives where it gives several."""
    return 1 + n % 3


class SeveralReader(TableReader):
    """Counts a record of a table with several rows of each as often as it is there whole."""

    def _counted(self, name: str, location: str) -> Counter[int]:
        found = super()._counted(name, location)
        if _is_dead(name):
            return found
        if partly := {n: rows for n, rows in found.items() if rows % rows_of(n)}:
            raise AssertionError(f"{name} has a part of the rows of some records: {partly}")
        return Counter({n: rows // rows_of(n) for n, rows in found.items()})


class UpsertReader(TableReader):
    """Reads the rows of a table that has one per key as pyiceberg scans them, the coverage of its ledger, and the
    reports in a control topic.
    """

    _head: tuple[str, Sequence[Mapping[str, object]], Sequence[LedgerSection]] = ("", (), ())

    def __init__(self, database: Path, control: FakeControl) -> None:
        super().__init__(database)
        self._control = control
        self._readings: list[Reading] = []
        self._next: dict[int, int] = {}

    def read(self) -> Found:
        found = super().read()
        self._read_on()
        return replace(found, live=self._head[1], sections=self._head[2], readings=(*self._readings,))

    def _read_on(self) -> None:
        """Read the reports that are new in the control topic."""
        for partition in range(self._control.partitions):
            log = self._control.read(partition, self._next.get(partition))
            self._next[partition] = log.end
            for record in log.records:
                lane = (find(record.headers) or {}).get("lane", "")
                entry = read_entry(record, "orders", lane)
                if isinstance(entry, SliceReported) and (report := entry.report).table(ROWS) is not None:
                    ignored = frozenset(report.ignored_fields)
                    self._readings.append(Reading(report.generation or 0, report.coverage, ignored))

    def _counted(self, name: str, location: str) -> Counter[int]:
        if _is_dead(name):
            return super()._counted(name, location)
        if location != self._head[0]:
            table = StaticTable.from_metadata(location)
            rows = table.scan().to_arrow().to_pylist() if table.current_snapshot() else []
            self._head = location, rows, read_ledger(table.metadata).sections
        return Counter()


def _is_dead(name: str) -> bool:
    """Return True for a table of dead letters; in a set each table has its own."""
    return name == DEAD or name.endswith("_dead")


def _rows(path: str, name: str) -> list[dict[str, object]]:
    columns = ["value"] if _is_dead(name) else ["id", "name"]
    with pa.OSFile(path) as source:
        rows: list[dict[str, object]] = pq.ParquetFile(source).read(columns=columns).to_pylist()
    return rows


def files(location: str) -> Iterator[str]:
    """The data files of the head, as paths."""
    table = StaticTable.from_metadata(location)
    head = table.current_snapshot()
    for manifest in head.manifests(table.io) if head else ():
        for entry in manifest.fetch_manifest_entry(table.io):
            file: DataFile = entry.data_file
            if file.content is not DataFileContent.DATA:
                raise AssertionError(f"{file.file_path}: nobody here writes deletes")
            yield file.file_path.removeprefix(_FILE)
