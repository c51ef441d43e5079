# SPDX-License-Identifier: Apache-2.0
"""What the demo proves itself by: the table read back, Airflow's database, the control topic.

Contract: everything here only reads. A table is compared with the events that were sent by *position*: the broker said
which partition and offset each event got, and each row says which it came from. So a row that is lost, doubled, made up
or changed is seen, whatever the product says of itself.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.records import read_entry
from airflow_provider_lakecommit.core.log import (
    CommitFailed,
    CycleClosed,
    CycleOpened,
    Entry,
    SliceFiles,
    SliceReported,
    TablePublished,
)
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotRecord, record_of
from airflow_provider_lakecommit.landing import Landing
from dev.demo.flights import POSITION, checksum

STEPS = {
    CycleOpened: "START_COMMIT",
    SliceFiles: "DATA_WRITTEN",
    SliceReported: "DATA_COMPLETE",
    TablePublished: "COMMIT_TO_TABLE",
    CycleClosed: "COMMIT_COMPLETE",
    CommitFailed: "START_COMMIT again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was sent beside what is in the table. ``strangers`` are rows at positions where nothing was sent."""

    sent: int
    rows: int
    lost: int
    doubled: int
    strangers: int
    checksum_sent: str
    checksum_table: str


def compare(sent: pd.DataFrame, table: pd.DataFrame) -> Comparison:
    """Compare frames that both hold the flights' columns and the position of each row."""
    due, found = _positions(sent), _positions(table)
    return Comparison(
        sent=len(due),
        rows=len(found),
        lost=len(due.difference(found)),
        doubled=int(found.duplicated().sum()),
        strangers=len(found.difference(due)),
        checksum_sent=checksum(sent),
        checksum_table=checksum(table),
    )


def _positions(frame: pd.DataFrame) -> pd.Index:
    """Partition and offset as one number: a partition has far fewer than 2^40 records."""
    partition, offset = (frame[c].to_numpy("int64") for c in POSITION)
    return pd.Index((partition << 40) + offset)


class Lake:
    """The demo's tables, through a catalog client of our own."""

    def __init__(self, properties: Mapping[str, str], namespace: str) -> None:
        self._properties = {k: v for k, v in properties.items() if k != "name"}
        self._catalog = properties["name"]
        self._namespace = namespace

    def table(self, name: str) -> Table:
        """A table as it is now."""
        with closing(load_catalog(self._catalog, **self._properties)) as catalog:
            return catalog.load_table(name)

    def rows(self, name: str) -> pd.DataFrame:
        """All rows of a table."""
        # Whole numbers stay whole where some are null.
        kinds = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()}
        frame: pd.DataFrame = self.table(name).scan().to_arrow().to_pandas(types_mapper=kinds.get)
        return frame

    def snapshots(self, name: str) -> list[SnapshotRecord]:
        """What each snapshot of a table says of itself, oldest first."""
        records = (record_of(s) for s in self.table(name).metadata.snapshots)
        return [r for r in records if r is not None]

    def drop(self) -> None:
        """Remove the demo's tables from a catalog that outlives it."""
        with closing(load_catalog(self._catalog, **self._properties)) as catalog:
            if not catalog.namespace_exists(self._namespace):
                return
            for identifier in catalog.list_tables(self._namespace):
                catalog.drop_table(identifier)
            catalog.drop_namespace(self._namespace)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleStory:
    """One commit cycle as the control topic tells it."""

    opened: CycleOpened
    entries: tuple[Entry, ...]

    @property
    def commit_id(self) -> UUID:
        return self.opened.commit_id

    @property
    def planned(self) -> dict[UUID, Coverage]:
        """Slices of its plan."""
        return {s.slice_id: s.coverage for s in self.opened.plan.slices}

    @property
    def reported(self) -> dict[UUID, Coverage]:
        """Slices of which somebody said that they are finished."""
        reports = [e.report for e in self.entries if isinstance(e, SliceReported)]
        return {r.slice_id: r.coverage for r in reports if r.blocked is None and r.failed is None}

    @property
    def published(self) -> list[TablePublished]:
        """The snapshots that it announced."""
        return [e for e in self.entries if isinstance(e, TablePublished)]

    @property
    def events(self) -> list[str]:
        """Names of its events, in log order."""
        return [STEPS[type(e)] for e in self.entries]

    def by_event(self) -> dict[str, list[Entry]]:
        """Its records by event, in the order in which each event first came."""
        found: dict[str, list[Entry]] = {}
        for name, entry in zip(self.events, self.entries, strict=True):
            found.setdefault(name, []).append(entry)
        return found

    @property
    def is_in_order(self) -> bool:
        """Opened first, then the slices' reports, then the tables' snapshots, complete last."""
        initials = {"START_COMMIT": "S", "DATA_WRITTEN": "W", "DATA_COMPLETE": "D", "COMMIT_TO_TABLE": "T"}
        text = "".join(initials.get(e, "C") for e in self.events)
        return re.fullmatch(r"S(?=.*W)[WD]*D+T+C", text) is not None and self.events[-1] == "COMMIT_COMPLETE"


class ControlWatch:
    """Reads the control topic of the landing beside everybody else."""

    def __init__(self, bootstrap: str, landing: Landing) -> None:
        self._landing = landing
        self._topic = ControlTopic(landing.control_topic_name, {"bootstrap.servers": bootstrap})

    def entries(self) -> list[Entry]:
        """All that the log says of the landing."""
        partition = self._topic.partition_for(self._landing.group_id)
        found = (read_entry(r, self._landing.name, LIVE) for r in self._topic.read(partition).records)
        return [e for e in found if e is not None]

    def cycle(self, run: str) -> CycleStory | None:
        """The cycle of a run, as far as it is."""
        return next((c for c in stories(self.entries()) if c.opened.cycle.run == run), None)

    def close(self) -> None:
        self._topic.close()


def stories(entries: Iterable[Entry]) -> list[CycleStory]:
    """The cycles of a log, in the order in which they were opened."""
    known = list(entries)
    return [
        CycleStory(opened=e, entries=tuple(x for x in known if x.commit_id == e.commit_id))
        for e in known
        if isinstance(e, CycleOpened)
    ]


def asset_events(database: Path) -> int:
    """How many asset events Airflow has recorded."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return int(connection.execute("select count(*) from asset_event").fetchone()[0])
