# SPDX-License-Identifier: Apache-2.0
"""The nouns of a commit cycle as frozen values: spans, slices, plans, reports, ledger sections.

:mod:`airflow_provider_lakecommit.control` encodes them, :mod:`~airflow_provider_lakecommit.core.identity` makes ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from uuid import UUID

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.provenance import Provenance
from airflow_provider_lakecommit.core.refusal import RefusalState

LIVE = "live"
FILLED = "filled"
"""The ledger section with the ranges of closed lanes; for another Kafka cluster see :func:`filled_from`."""


def filled_from(cluster_id: str) -> str:
    """Return the section of closed lanes' ranges from a cluster that the landing has left."""
    return f"{FILLED}@{cluster_id}"


def is_filled(lane: str) -> bool:
    """Return True if the entry contains what closed backfills have landed."""
    return lane == FILLED or lane.startswith(f"{FILLED}@")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """One range of one source partition."""

    partition: SourcePartition
    range: OffsetRange

    def __len__(self) -> int:
        return len(self.range)

    def __str__(self) -> str:
        return f"{self.partition}{self.range}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many rejected records are allowed: ``max_records`` of a slice, and ``max_ratio`` of a window's records."""

    max_records: int
    max_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The unit of durability: spans that one Spark task reads and reports once.

    ``tables`` are those that lack these spans; ``budget`` is the one given by ``lakecommit reset blocked --raise``.
    """

    slice_id: UUID
    group: int
    spans: tuple[Span, ...]
    tables: tuple[str, ...]
    budget: Budget | None = None

    @property
    def coverage(self) -> Coverage:
        return Coverage.of((s.partition, s.range) for s in self.spans)

    def __len__(self) -> int:
        return sum(len(s) for s in self.spans)

    def __str__(self) -> str:
        return " ".join(str(s) for s in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    """What a writer needs to know of a table, as of its plan: writers never ask the catalog.

    ``schema``, ``spec`` and ``sort_order`` are JSON of the Iceberg specification; an unsorted table has no order.
    """

    table: str
    uuid: UUID
    location: str
    schema: str
    schema_id: int
    spec: str
    spec_id: int
    properties: Mapping[str, str]
    format_version: int
    epoch: UUID
    sort_order: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPosition:
    """An offset up to which a partition was read, and a leader epoch under which its log reached that far."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a cycle sets out to do; without slices, ``reason`` says why.

    ``refused`` is the state that kept all or some partitions from being planned. ``ends`` are the last stable offsets
    at ``requested_at``, even where the plan stops earlier. ``vended`` are the tables whose catalog vends storage
    properties, and whether keys are among them. ``positions`` tell how far partitions were read before,
    ``leader_epochs`` are those of the leaders that gave the ends. ``generation`` is that of the reading
    (:mod:`~airflow_provider_lakecommit.core.provenance`).
    """

    landing: str
    lane: str
    spec_version: str
    window_id: UUID
    slices: tuple[Slice, ...]
    targets: tuple[TableTarget, ...]
    ends: Mapping[SourcePartition, int]
    requested_at: datetime
    left: int = 0
    reason: str | None = None
    refused: RefusalState | None = None
    vended: Mapping[str, bool] = field(default_factory=dict)
    positions: Mapping[SourcePartition, ReadPosition] = field(default_factory=dict)
    leader_epochs: Mapping[SourcePartition, int] = field(default_factory=dict)
    generation: int | None = None

    @property
    def coverage(self) -> Coverage:
        return Coverage.union(s.coverage for s in self.slices)

    @property
    def deferred(self) -> bool:
        """Return True if nothing was planned although records were waiting, or might have been."""
        return self.refused is not None and not self.slices and (self.left > 0 or not self.ends)

    @property
    def stopped(self) -> str:
        """Return why partitions wait for a user's decision; empty if none does."""
        return (self.reason or "") if self.refused is not None and self.refused.needs_a_hand else ""

    @property
    def epochs(self) -> dict[str, UUID]:
        return {t.table: t.epoch for t in self.targets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """Who runs a commit cycle.

    ``number`` counts the cycles of a run. ``slot`` bounds the pool of transactional ids: wished for in the START,
    granted by the fold. ``turn`` tells which of several runs of a DAG goes next; 0 if they take no turns.
    """

    commit_id: UUID
    dag: str
    run: str
    number: int
    slot: int
    deployment: str = ""
    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Accounting of a span in source records; the sum is its number of offsets.

    ``landed`` gave at least one row in at least one table, ``rejected`` went to the dead letters, ``filtered`` gave no
    row (tombstones), ``gaps`` are offsets without a record (compaction, transaction markers, aborted records),
    ``skipped`` were given up by a user. In an upserting landing, ``superseded`` records were followed by a newer one of
    the same key in their slice, and ``deleted`` ones delete the row of their key.
    """

    landed: int = 0
    rejected: int = 0
    filtered: int = 0
    gaps: int = 0
    skipped: int = 0
    superseded: int = 0
    deleted: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, f.name) for f in fields(self))

    @property
    def records(self) -> int:
        """Return the number of records that were read."""
        return self.total - self.gaps - self.skipped

    @property
    def good(self) -> int:
        """Return the number of records that give rows, or change those of their keys."""
        return self.landed + self.superseded + self.deleted

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name, without those that only an upserting landing has."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: n for name, n in values.items() if n or name not in ("superseded", "deleted")}

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanReport:
    """A span read to its end, with its accounting. ``position`` is the end of the newest record with a known leader
    epoch.
    """

    span: Span
    counts: Counts
    position: ReadPosition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What a slice wrote for one table: ``events`` DATA_WRITTEN records with ``files`` files and ``rows`` rows in all.

    ``columns`` are the ids of the columns that identify a row's record, if there are any.
    """

    table: str
    uuid: UUID
    epoch: UUID
    schema_id: int
    spec_id: int
    events: int
    files: int
    rows: int
    columns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCost:
    """What a finished slice took: seconds by kind of work, in whole milliseconds, and ``bytes`` of written files."""

    read_seconds: float
    decode_seconds: float
    write_seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReport:
    """One attempt's report on a slice: finished, or ``blocked``/``failed`` with the reason and no tables.

    ``bytes`` are those of record values. ``rules`` decided rows and rejects
    (:mod:`~airflow_provider_lakecommit.core.rules`). ``rejects`` counts by kind and column, ``reject_reason`` is the
    most frequent one. ``unknown_at`` has topic, partition and offset of the first record with an unknown field or a
    value that its column does not take. A blocked slice may have been read in part; its counts are of that part.
    ``planned_slice`` is the planned slice of an attempt that ended early. ``voids`` is the attempt whose report a
    blocked one takes back.
    """

    slice_id: UUID
    attempt: UUID
    window_id: UUID
    spec_version: str
    spans: tuple[SpanReport, ...]
    tables: tuple[TableReport, ...]
    bytes: int = 0
    ignored_fields: Mapping[str, int] = field(default_factory=dict)
    blocked: str | None = None
    failed: str | None = None
    cost: SliceCost | None = None
    rules: str = ""
    rejects: Mapping[str, int] = field(default_factory=dict)
    reject_reason: str = ""
    unknown_at: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    planned_slice: UUID | None = None
    voids: UUID | None = None
    generation: int | None = None
    coverage: Coverage = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Stored, since a fold needs it many times.
        covered = Coverage.of((s.span.partition, s.span.range) for s in self.spans)
        object.__setattr__(self, "coverage", covered)

    def table(self, name: str) -> TableReport | None:
        return next((t for t in self.tables if t.table == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPosition:
    """Where in the control log the next reader of a ledger starts.

    ``low`` is the smallest offset that an open slice, claim or other cycle needs; ``None``: a log cut above
    ``read_from`` loses nothing.
    """

    cluster_id: str
    topic: str
    topic_id: str
    partition: int
    read_from: int
    low: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedSink:
    """The Kafka Connect sink that a lane replaces.

    ``group`` is that of its events, ``since`` where the lane continued after it; snapshots after number ``sequence``
    are never the sink's. ``lands``: the table was handed back, so the sink continues at the ledger's end, and snapshots
    after ``sequence`` are its own. ``landed`` is what connectors landed of the covered ranges: other tables do not lack
    it.
    """

    connector: str
    group: str
    since: Mapping[SourcePartition, int]
    sequence: int
    lands: bool = False
    landed: Coverage = field(default_factory=Coverage)


def source_group(connector: str) -> str:
    """Return the consumer group of Connect's tasks; by default also the group in the sink's events."""
    return f"connect-{connector}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSection:
    """What one lane of one landing has in one table.

    ``starts`` and ``ends`` bound the lane per partition; the live lane has no ends. ``suspended`` is who paused the
    landing, and why. ``replaces``: the lane lands anew what the table has. ``evaluated`` are the known rules of the
    covered ranges, ``positions`` the leader epochs of the last reading, ``sink`` the connector that wrote before.
    ``replayed`` are offsets whose dead letters were replayed or read again. ``generation`` is that of the lane's
    reading, ``provenance`` tells which readings landed the table's rows. ``upsert_key`` are the columns by which its
    rows are unique; without any, each record has its rows.
    """

    landing: str
    lane: str
    cluster_id: str
    epoch: UUID
    spec_version: str
    starts: Mapping[SourcePartition, int]
    covered: Coverage
    control: ControlPosition
    record_bytes: int = 0
    evaluated: Mapping[str, Coverage] = field(default_factory=dict)
    positions: Mapping[SourcePartition, ReadPosition] = field(default_factory=dict)
    ends: Mapping[SourcePartition, int] = field(default_factory=dict)
    suspended: str = ""
    sink: AdoptedSink | None = None
    replayed: Coverage = field(default_factory=Coverage)
    replaces: bool = False
    generation: int = 0
    provenance: tuple[Provenance, ...] = ()
    upsert_key: tuple[str, ...] = ()

    @property
    def bounds(self) -> Coverage:
        """Return the whole range of a lane with an end."""
        return Coverage({p: RangeSet.of((self.starts.get(p, 0), end)) for p, end in self.ends.items()})

    @property
    def key(self) -> tuple[str, str]:
        return self.landing, self.lane

    def closed_with(self, covered: Coverage) -> Coverage:
        """Return ``replayed`` for a section that covers *covered* instead: offsets that it goes back over are read
        again.
        """
        return self.replayed | (self.covered - covered)

    def end(self, p: SourcePartition) -> int:
        """Return the next offset that the table needs; 0 for a partition newer than its topic's first entry."""
        return self.covered[p].reach(self.starts.get(p, 0))

    def last(self, p: SourcePartition) -> int:
        """Return the end of the last covered range, even if another lane has ranges before it."""
        ranges = self.covered[p].ranges
        return max(self.end(p), ranges[-1].end if ranges else 0)
