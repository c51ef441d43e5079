# SPDX-License-Identifier: Apache-2.0
"""The nouns of a commit cycle as frozen values: spans, slices, plans, reports, ledger sections.

Contract: values cross processes through :mod:`airflow_provider_lakecommit.wire`; here they have no encoding. Identities
never hold an attempt number, so that a retry or a replica of the same work has the same ``window_id`` and the same
``slice_id``; what differs between attempts is the random ``attempt`` of a :class:`SliceReport`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid5

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition

__all__ = [
    "LIVE",
    "Budget",
    "ControlPosition",
    "Counts",
    "Cycle",
    "LedgerSection",
    "Plan",
    "ReadPosition",
    "RefusalState",
    "Slice",
    "SliceCost",
    "SliceReport",
    "Span",
    "SpanReport",
    "TableReport",
    "TableTarget",
    "attempt_id",
    "cycle_id",
    "group_id",
    "is_attempt_at",
    "slice_id",
    "token",
    "transactional_id",
    "window_id",
]

LIVE = "live"
_NAMESPACE = UUID("5c0a6d9e-7a3c-5f0e-9f55-1a4e0c0fd3b1")
_NONCE, _TELLS = 6, 8
"""Random bytes of an attempt's id, and the version by which those ids are known that tell their slice."""


def group_id(landing: str) -> str:
    """Control group id of a landing: the ``group_id`` of all its events."""
    return f"lakecommit-{landing}"


def cycle_id(deployment: str, landing: str, lane: str, dag: str, run: str, n: int) -> UUID:
    """Commit id of the n-th cycle of a run: the same for every retry of that run."""
    return uuid5(_NAMESPACE, "\x1f".join(("cycle", deployment, landing, lane, dag, run, str(n))))


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """One range of one source partition."""

    partition: SourcePartition
    range: OffsetRange

    def __len__(self) -> int:
        return len(self.range)

    def __str__(self) -> str:
        return f"{self.partition}{self.range}"


def _spans_text(spans: Iterable[Span]) -> str:
    return ";".join(
        f"{s.partition.topic_id}:{s.partition.partition}:{s.range.start}:{s.range.end}" for s in sorted(spans)
    )


def window_id(landing: str, lane: str, spec_version: str, epochs: Mapping[str, UUID], spans: Iterable[Span]) -> UUID:
    """Identity of a window: what is read, under which spec and epochs; never the attempt."""
    epoch_text = ",".join(f"{t}={e}" for t, e in sorted(epochs.items()))
    return uuid5(_NAMESPACE, "\x1f".join(("window", landing, lane, spec_version, epoch_text, _spans_text(spans))))


def slice_id(window: UUID, spans: Iterable[Span], tables: Iterable[str]) -> UUID:
    """Identity of a slice within its window."""
    return uuid5(window, "\x1f".join(("slice", ",".join(sorted(tables)), _spans_text(spans))))


def attempt_id(of: UUID, random: UUID) -> UUID:
    """Name of one attempt at a slice, and of the files that it makes: random, and made for this slice alone, so that no
    report can pass these files off as those of other offsets.
    """
    nonce = random.bytes[:_NONCE]
    digest = hashlib.sha256(b"attempt\x1f" + of.bytes + nonce).digest()
    raw = bytearray(nonce + digest[: 16 - _NONCE])
    raw[6], raw[8] = raw[6] & 0x0F | 0x80, raw[8] & 0x3F | 0x80
    return UUID(bytes=bytes(raw))


def is_attempt_at(attempt: UUID, of: UUID) -> bool | None:
    """Was this attempt made at that slice? ``None``: it is of a release whose attempts do not tell."""
    return attempt == attempt_id(of, attempt) if attempt.version == _TELLS else None


def token(commit_id: UUID, table_uuid: UUID, slice_ids: Iterable[UUID]) -> UUID:
    """Name of the snapshot that publishes these slices in this table: it is announced once."""
    return uuid5(commit_id, f"{table_uuid}\x1f" + ",".join(sorted(str(s) for s in slice_ids)))


def transactional_id(landing: str, lane: str, deployment: str, slot: int, role: str) -> str:
    """Of the bounded pool of one landing's lane in one deployment: whoever opens it shuts out who had it before.

    Another deployment's landing of the same name has other ids. ``@`` is in no landing's name, so that
    ``lakecommit-<landing>-@`` is a prefix of this landing's ids alone. Without a deployment they are as they were
    before ids had one.
    """
    whose = f"@{deployment}-" if deployment else ""
    return f"lakecommit-{landing}-{whose}{lane}-{slot}-{role}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many rejected records a slice may have: at most ``max_records`` and at most ``max_ratio`` of its records."""

    max_records: int
    max_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The unit of durability: one or more spans, read by one Spark task, reported once.

    ``tables`` are the tables that lack these spans; ``budget`` overrides the landing's budget after ``lakecommit
    unblock --raise``.
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


class RefusalState(StrEnum):
    """What keeps a cycle from planning a window. The value is the text for people."""

    STALLED = "stalled"
    """Commits failed for all tables in too many cycles in a row."""
    OPEN_CYCLES = "open cycles"
    """Too many windows are under way."""
    PENDING_SLICES = "pending slices"
    """A table's budget of slices that wait to be published is full."""
    PENDING_FILES = "pending files"
    """The same of data files."""
    PENDING_BYTES = "pending bytes"
    """The same of bytes of source records."""
    SLOWING = "slowing"
    """Commits failed, and the landing is to plan rarer windows then."""
    CATALOG_AWAY = "catalog away"
    """No ledger can be read, so nothing can be planned; no fold can tell this one."""
    SPEC_CHANGE = "spec change"
    """What is landed has to be published before another spec is planned for."""
    OTHER = "another state"
    """A state that this release does not know."""

    @property
    def budget_full(self) -> bool:
        """Is a budget of pending work full?"""
        return self in (RefusalState.PENDING_SLICES, RefusalState.PENDING_FILES, RefusalState.PENDING_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPosition:
    """An offset up to which a partition was read, and the leader epoch of the last record before it."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a cycle sets out to do. Without slices it says why in ``reason``; ``refused`` is the state that kept it from
    planning a window, whatever there was to read.

    ``ends`` are the last stable offsets as they were asked for at ``asked_at``, also where the plan stops before them.
    ``vended`` are the tables with which the catalog handed out storage properties, and whether keys are among them:
    their writers need fresh ones. ``positions`` are how far the partitions were read before, where this plan goes on.
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

    @property
    def coverage(self) -> Coverage:
        return Coverage.of((s.partition, s.range) for sl in self.slices for s in sl.spans)

    @property
    def deferred(self) -> bool:
        """Was a window put off? Something was there to be read, or nobody could tell."""
        return self.refused is not None and (self.left > 0 or not self.ends)

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(sorted({s.group for s in self.slices}))

    @property
    def epochs(self) -> dict[str, UUID]:
        return {t.table: t.epoch for t in self.targets}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """Who runs a commit cycle. ``number`` counts the cycles of one run, ``slot`` bounds the pool of transactional
    ids: wished for in its START, granted by the fold. ``deployment`` is part of those ids; cycles that earlier releases
    opened have none.
    """

    commit_id: UUID
    dag: str
    run: str
    number: int
    slot: int
    deployment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Accounting of a span in source records: their sum is the number of offsets of the span.

    ``landed`` gave at least one row in at least one table, ``rejected`` went to the dead letters, ``filtered`` gave no
    row (tombstones), ``gaps`` are offsets without a record (compaction, transaction markers, aborted records),
    ``skipped`` were given up by a person's command.
    """

    landed: int = 0
    rejected: int = 0
    filtered: int = 0
    gaps: int = 0
    skipped: int = 0

    @property
    def total(self) -> int:
        return self.landed + self.rejected + self.filtered + self.gaps + self.skipped

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            landed=self.landed + other.landed,
            rejected=self.rejected + other.rejected,
            filtered=self.filtered + other.filtered,
            gaps=self.gaps + other.gaps,
            skipped=self.skipped + other.skipped,
        )


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
    """What a slice wrote for one table: ``events`` DATA_WRITTEN records with ``files`` files of ``rows`` rows
    together.
    """

    table: str
    uuid: UUID
    epoch: UUID
    schema_id: int
    spec_id: int
    events: int
    files: int
    rows: int


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
    (:mod:`~airflow_provider_lakecommit.core.rules`), ``rejects`` counts them by kind and column; reports of earlier
    releases have no ``cost``, ``rules`` and ``rejects``. One that is blocked may have been read in part only: then its
    counts are of that part.
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

    @property
    def coverage(self) -> Coverage:
        return Coverage.of((s.span.partition, s.span.range) for s in self.spans)

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
class LedgerSection:
    """What one lane of one landing has in one table. ``starts`` is the first offset of the lane per partition.
    ``judged`` says by which rules the covered ranges were judged, as far as it is known; ``positions`` under which
    leader epochs partitions were last read.
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

    def end(self, p: SourcePartition) -> int:
        """Ledger end: the next offset this table needs of ``p``. A partition that is newer than its topic's origin
        starts at 0.
        """
        return self.covered[p].reach(self.starts.get(p, 0))
