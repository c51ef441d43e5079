# SPDX-License-Identifier: Apache-2.0
"""The nouns of a commit cycle as frozen values: spans, slices, plans, reports, ledger sections.

Contract: values cross processes through :mod:`airflow_provider_lakecommit.control`; here they have no encoding. Their
identities are made in :mod:`~airflow_provider_lakecommit.core.identity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from uuid import UUID

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.provenance import Provenance
from airflow_provider_lakecommit.core.refusal import RefusalState

__all__ = [
    "FILLED",
    "LIVE",
    "AdoptedSink",
    "Budget",
    "ControlPosition",
    "Counts",
    "Cycle",
    "LedgerSection",
    "Plan",
    "ReadPosition",
    "Slice",
    "SliceCost",
    "SliceReport",
    "Span",
    "SpanReport",
    "TableReport",
    "TableTarget",
    "filled_from",
    "is_filled",
]

LIVE = "live"
FILLED = "filled"
"""The section of a landing that has what its closed lanes have landed. What these have landed from another Kafka
cluster is in one of that cluster, see :func:`filled_from`.
"""


def filled_from(cluster_id: str) -> str:
    """The section that has what closed lanes have landed from a cluster that the landing has left."""
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
    """How many rejected records a slice may have: at most ``max_records`` and at most ``max_ratio`` of its records."""

    max_records: int
    max_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The unit of durability: one or more spans, read by one Spark task, reported once.

    ``tables`` are the tables that lack these spans; ``budget`` overrides the landing's budget after ``lakecommit
    reset blocked --raise``.
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
        """Number of offsets, an upper bound of the records."""
        return sum(len(s) for s in self.spans)

    def __str__(self) -> str:
        return " ".join(str(s) for s in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTarget:
    """All a writer needs to know of a table, taken when the window was planned: a writer never asks the catalog.

    ``schema``, ``spec`` and ``sort_order`` are the JSON of the Iceberg specification; an unsorted table has no order.
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
    """What a cycle sets out to do. Without slices it says why in ``reason``; ``refused`` is the state that kept it from
    planning a window, or some partitions from being in it, whatever there was to read.

    ``ends`` are the last stable offsets as they were asked for at ``asked_at``, also where the plan stops before them.
    ``vended`` are the tables with which the catalog handed out storage properties, and whether keys are among them:
    their writers need fresh ones. ``positions`` are how far the partitions were read before, where this plan goes on;
    ``leader_epochs`` are those of the leaders that told the ends of the slices.
    ``generation`` is that of the reading, see :mod:`~airflow_provider_lakecommit.core.provenance`; plans of earlier
    releases have none.
    """

    landing: str
    lane: str
    spec_version: str
    window_id: UUID
    slices: tuple[Slice, ...]
    targets: tuple[TableTarget, ...]
    ends: Mapping[SourcePartition, int]
    asked_at: datetime
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
        """Return True if a window was deferred. Something was there to be read, or nobody could tell."""
        return self.refused is not None and not self.slices and (self.left > 0 or not self.ends)

    @property
    def stopped(self) -> str:
        """Why nothing was planned, of all partitions or of some, before a user decides how to go on."""
        return (self.reason or "") if self.refused is not None and self.refused.needs_a_hand else ""

    @property
    def epochs(self) -> dict[str, UUID]:
        return {t.table: t.epoch for t in self.targets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """Who runs a commit cycle. ``number`` counts the cycles of one run, ``slot`` bounds the pool of transactional
    ids: wished for in its START, granted by the fold. ``deployment`` is part of those ids; cycles that earlier releases
    opened have none. ``turn`` tells which of several runs of a DAG follows; 0: they take no turns.
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
    """Accounting of a span in source records: their sum is the number of offsets of the span.

    ``landed`` gave at least one row in at least one table, ``rejected`` went to the dead letters, ``filtered`` gave no
    row (tombstones), ``gaps`` are offsets without a record (compaction, transaction markers, aborted records),
    ``skipped`` were given up by a person's command. In an upserting landing, ``superseded`` records were followed by a
    newer one of the same key in their slice, and ``deleted`` ones delete the row of their key.
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

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name, without those that only an upserting landing has."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: n for name, n in values.items() if n or name not in ("superseded", "deleted")}

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanReport:
    """A span that was read to its end (consumer position), with its accounting. ``position`` is where the newest record
    ended whose leader epoch is known; reports of earlier releases have none.
    """

    span: Span
    counts: Counts
    position: ReadPosition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """What a slice wrote for one table: ``events`` DATA_WRITTEN records with ``files`` files, ``rows`` rows in all.
    ``columns`` are the ids of those that say which record a row is of; empty where the rows have none.
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
    """What a finished slice took, for planning later ones: seconds by the work they went into, in whole milliseconds,
    and the ``bytes`` of the files that it wrote.
    """

    read_seconds: float
    decode_seconds: float
    write_seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReport:
    """One attempt's report on one slice: finished (``tables`` and ``spans``), or ``blocked``/``failed`` with the reason
    and no tables. ``bytes`` are those of the record values, ``rules`` those by which rows and rejects were told apart
    (:mod:`~airflow_provider_lakecommit.core.rules`), ``rejects`` counts them by kind and column, ``reject_reason`` is
    that of most, ``unknown_at`` has topic, partition and offset of the first record with a field that the table lacks,
    or a value that its column does not take; reports of earlier releases lack these and ``cost``. One that is blocked
    may have been read in part only: then its counts are of that part. ``whole`` is the slice that the attempt was made
    at, if it ended early and this is how far it came. ``generation`` is that of the reading. ``coverage`` is that of
    the spans.
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
    whole: UUID | None = None
    generation: int | None = None
    coverage: Coverage = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A fold asks for it many times.
        covered = Coverage.of((s.span.partition, s.span.range) for s in self.spans)
        object.__setattr__(self, "coverage", covered)

    def table(self, name: str) -> TableReport | None:
        return next((t for t in self.tables if t.table == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPosition:
    """Where in the control log the next reader of a ledger starts.

    ``low`` is the smallest offset that an open slice, claim or other cycle still needs, or ``None``: then a log cut
    above ``read_from`` loses nothing.
    """

    cluster_id: str
    topic: str
    topic_id: str
    partition: int
    read_from: int
    low: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedSink:
    """The Kafka Connect sink that a lane lands in the place of. ``group`` is that of its events, ``since`` where the
    lane went on after it; no later snapshot than number ``sequence`` of the table may be the sink's. ``lands``: the
    table was handed back, so the sink goes on at the ledger's end and the lane does not; then its snapshots are those
    after number ``sequence``. ``landed`` is what connectors have landed of what the ledger covers: no other table of
    the landing lacks it.
    """

    connector: str
    group: str
    since: Mapping[SourcePartition, int]
    sequence: int
    lands: bool = False
    landed: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSection:
    """What one lane of one landing has in one table. ``starts`` is the first offset of the lane per partition, ``ends``
    the one behind its last: the live lane has none, and what lanes that are closed have landed is theirs no more.
    ``suspended`` says who had the landing plan nothing, and why. ``replaces``: the lane lands anew what the table has.
    ``judged`` says by which rules the covered ranges were judged, as far as it is known; ``positions`` under which
    leader epochs partitions were last read; ``sink`` which connector wrote to the table before. ``replayed`` are
    offsets whose dead letters are not open any more: they became rows by a replay, or were read again since.
    ``generation`` is that of the lane's reading, ``provenance`` says which readings landed what is in the table.
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
    judged: Mapping[str, Coverage] = field(default_factory=dict)
    positions: Mapping[SourcePartition, ReadPosition] = field(default_factory=dict)
    ends: Mapping[SourcePartition, int] = field(default_factory=dict)
    suspended: str = ""
    sink: AdoptedSink | None = None
    replayed: Coverage = field(default_factory=Coverage)
    replaces: bool = False
    generation: int = 0
    provenance: tuple[Provenance, ...] = ()

    @property
    def bounds(self) -> Coverage:
        """All that a lane with an end is to land."""
        return Coverage({p: RangeSet.of((self.starts.get(p, 0), end)) for p, end in self.ends.items()})

    @property
    def key(self) -> tuple[str, str]:
        return self.landing, self.lane

    def closed_with(self, covered: Coverage) -> Coverage:
        """``replayed`` of a section in place of this one: what it goes back over is read again as a whole."""
        return self.replayed | (self.covered - covered)

    def end(self, p: SourcePartition) -> int:
        """Ledger end: the next offset this table needs of ``p``. A partition that is newer than its topic's origin
        starts at 0.
        """
        return self.covered[p].reach(self.starts.get(p, 0))

    def last(self, p: SourcePartition) -> int:
        """Behind the last offset that this section has of ``p``, also where another lane has some before it."""
        ranges = self.covered[p].ranges
        return max(self.end(p), ranges[-1].end if ranges else 0)
