# SPDX-License-Identifier: Apache-2.0
"""The rows of a dead-letter table, as records.

Contract: reads the head of the landing's branch, a batch at a time, with files of any engine. Only rows of this
landing. A row has a *position*, topic, partition and offset, and the generation of a reading; only a ledger shows which
incarnation of the topic was read. A record's time that the table could not hold is null.

Failure story: a table that lacks one of our columns is a :class:`TableError`; an unreachable storage is a
:class:`CatalogError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg import expressions
from pyiceberg.table import DataScan, Table

from airflow_provider_lakecommit.core import OffsetRange, RangeSet
from airflow_provider_lakecommit.exceptions import CatalogError, SpecError, TableError
from airflow_provider_lakecommit.iceberg import DEAD_LETTER_SCHEMA, OPTIONAL_DEAD_LETTER_COLUMNS, trouble_of
from airflow_provider_lakecommit.landing import Landing

ABOUT = ("topic", "partition", "offset", "generation", "timestamp", "kind", "column", "reason")
"""Columns to list dead letters."""
WHOLE = (*ABOUT, "key", "value", "headers")
"""Columns to replay them."""
_is: Any = expressions
"""Its classes accept more than their types state."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CREATE_TIME, _NO_TIME = 1, 0


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One row. Its methods are those of a consumed record."""

    row: Mapping[str, Any]

    @property
    def position(self) -> tuple[str, int, int]:
        return self.row["topic"], self.row["partition"], self.row["offset"]

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.row["offset"], self.row["offset"] + 1)

    @property
    def generation(self) -> int | None:
        """Return the reading that rejected it; older rows have none."""
        return self.row.get("generation")

    @property
    def kind(self) -> str:
        """Return the name of the error in lists and selections: its kind, and the column that refused the value."""
        column = self.row["column"]
        return f"{self.row['kind']}:{column}" if column else str(self.row["kind"])

    @property
    def size(self) -> int:
        """Return the bytes of its key and value."""
        return len(self.row.get("value") or b"") + len(self.row.get("key") or b"")

    def topic(self) -> str | None:
        return str(self.row["topic"])

    def partition(self) -> int | None:
        return int(self.row["partition"])

    def offset(self) -> int | None:
        return int(self.row["offset"])

    def key(self) -> Any:
        return self.row["key"]

    def value(self) -> Any:
        return self.row["value"]

    def headers(self) -> Any:
        return [(h["key"], h["value"]) for h in self.row["headers"] or ()]

    def timestamp(self) -> tuple[int, int]:
        at = self.row["timestamp"]
        return (_NO_TIME, 0) if at is None else (_CREATE_TIME, (at - _EPOCH) // timedelta(milliseconds=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected dead letters; by default all.

    :ivar kinds: as listed, ``wrong_value`` or ``wrong_value:id``
    :ivar ranges: offsets by topic and partition
    :ivar since: of the records' own times; with it, records without a time are left out
    :ivar until: before this time
    :ivar limit: at most this number
    """

    kinds: tuple[str, ...] = ()
    ranges: Mapping[tuple[str, int], RangeSet] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    limit: int | None = None

    def takes(self, letter: DeadLetter) -> bool:
        """Return True if it is selected, without regard to the limit."""
        topic, partition, offset = letter.position
        if self.ranges and not self.ranges.get((topic, partition), RangeSet()).overlaps(
            OffsetRange(offset, offset + 1)
        ):
            return False
        if self.kinds and letter.kind not in self.kinds and letter.row["kind"] not in self.kinds:
            return False
        at = letter.row["timestamp"]
        if self.since is None and self.until is None:
            return True
        return at is not None and (self.since or at) <= at and (self.until is None or at < self.until)

    def filter(self, landing: str) -> expressions.BooleanExpression:
        """Return the filter that a scan can apply by itself."""
        parts = [_is.EqualTo("landing", landing)]
        if self.ranges:
            parts += [
                _is.In("topic", {topic for topic, _ in self.ranges}),
                _is.In("partition", {partition for _, partition in self.ranges}),
                _is.GreaterThanOrEqual("offset", min(s.ranges[0].start for s in self.ranges.values())),
                _is.LessThan("offset", max(s.ranges[-1].end for s in self.ranges.values())),
            ]
        parts += [] if self.since is None else [_is.GreaterThanOrEqual("timestamp", self.since.isoformat())]
        parts += [] if self.until is None else [_is.LessThan("timestamp", self.until.isoformat())]
        found: expressions.BooleanExpression = parts[0] if len(parts) == 1 else _is.And(*parts)
        return found


def table_name(landing: Landing, stated: str | None = None) -> str:
    """Return the dead-letter table of a landing.

    :param stated: another one, which it had before
    :raises SpecError: it has none
    """
    if (name := stated or landing.dead_letter_table) is None:
        raise SpecError(
            "LC7401", f"landing {landing.name} has no dead_letter_table: name its former one with `--table NAME`"
        )
    return name


def select(table: Table, landing: Landing, selection: Selection, columns: Sequence[str]) -> Iterator[DeadLetter]:
    """Yield the selected ones of a landing, in the order of the table's files."""
    name = ".".join(table.name())
    have = {f.name for f in table.schema().fields}
    needed = {f.name for f in DEAD_LETTER_SCHEMA.fields} - OPTIONAL_DEAD_LETTER_COLUMNS
    if missing := sorted(needed - have):
        raise TableError("LC7402", f"{name} lacks {', '.join(missing)}: it is not a dead-letter table")
    # A scan of a snapshot would have its columns, not the table's.
    head = table.metadata.snapshot_by_name(landing.branch)
    at_head = table.metadata.model_copy(update={"current_snapshot_id": head and head.snapshot_id})
    fields = tuple(c for c in columns if c in have)
    scan = DataScan(at_head, table.io, selection.filter(landing.name), fields)
    try:
        for batch in scan.to_arrow_batch_reader():
            for row in batch.to_pylist():
                if selection.takes(letter := DeadLetter(row)):
                    yield letter
    except OSError as e:
        raise CatalogError("LC7403", f"{name} cannot be read ({trouble_of(table.io, e)}): try again") from None
    except ValueError as e:
        # Equality deletes, as Flink writes them.
        raise TableError("LC7409", f"{name} cannot be read: {e}; have that engine rewrite its data files") from None
