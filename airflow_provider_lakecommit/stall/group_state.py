# SPDX-License-Identifier: Apache-2.0
"""The immutable state of an observer for one group, and its observations: the vocabulary of :mod:`.stall`.

The state grows with open and expected items (tables, partitions, the answers of one cycle), never with the length of
the log or of an outage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from airflow_provider_lakecommit.core import Coverage, Span

Partition = tuple[str, int]
Table = tuple[str, bytes | None]
"""A table's name and id from the events; connectors before 1.11 send no id."""

STARTING = 2
"""Factor on the tolerated silence, and on the time between two coordinators, while tasks start."""
HANDOVER = 6.0
"""Seconds that a rebalance may take, even if the interval is short."""
KEPT_CYCLES = 4
"""Remembered open cycles, as a multiple of those that make a stall."""


class EventKind(StrEnum):
    """The five events of the protocol."""

    START = "START_COMMIT"
    WRITTEN = "DATA_WRITTEN"
    ANSWERED = "DATA_COMPLETE"
    PUBLISHED = "COMMIT_TO_TABLE"
    COMPLETED = "COMMIT_COMPLETE"


class ObservedEvent(NamedTuple):
    """One event of one group, as far as it was read. Cheap to create: there is one per event.

    ``at`` is in seconds of the epoch. Values from the body are ``None`` if only the head was read; ``timed`` is whether
    an answer has a time for each of its partitions, ``records`` are those of the ``files``. For landings: ``failed`` is
    the evidence of a commit attempt, ``beside`` the failed tables if the data table is not among them, ``full`` whether
    a budget of pending work kept the cycle from planning, ``deferred`` why the debt of a table did, ``deadline`` the
    end of the claim, ``blocked`` why the range ``covers`` is over its budget, ``tried`` why it failed, and ``alone``
    whether it was read alone; any other event that ``covers`` a range settles it. ``reads`` is when a plan read the
    source, and its ranges, none if nothing is new or blocked.
    """

    kind: EventKind
    at: float
    commit: bytes
    sender: bytes | None = None
    table: str | None = None
    table_id: bytes | None = None
    files: int | None = None
    partitions: frozenset[Partition] | None = None
    timed: bool = False
    valid_through: float | None = None
    failed: str | None = None
    beside: tuple[str, ...] = ()
    full: bool = False
    deferred: str = ""
    deadline: float | None = None
    blocked: str | None = None
    covers: Coverage | None = None
    records: int | None = None
    tried: str | None = None
    alone: bool = False
    reads: tuple[float, tuple[Span, ...]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StallRules:
    """The rules of an alarm.

    :param landing: evaluate as a landing, not as a connector
    :param stalled_cycles: cycles in a row without COMMIT_COMPLETE
    :param silent_intervals: intervals of silence; for a connector only
    :param interval: seconds from one START_COMMIT to the next, if known; otherwise it is learned
    :param learned: intervals that must be observed before silence counts
    :param unanswered_cycles: complete cycles in a row that a partition may miss
    :param only_cycles: only the rule of cycles in a row, as in the proposal
    """

    landing: bool = False
    stalled_cycles: int = 3
    silent_intervals: float = 3.0
    interval: float | None = None
    learned: int = 1
    unanswered_cycles: int = 3
    only_cycles: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCycle:
    """A cycle that has not completed. ``number`` counts the START_COMMITs up to its own; ``overtaken`` those after its
    deadline. ``cut`` is whether another coordinator took over before its commit was due. ``beside`` are the tables for
    which its newest commit attempt failed, if the data table is not among them.
    """

    commit: bytes
    at: float
    number: int
    sender: bytes | None = None
    deadline: float | None = None
    failed: str | None = None
    beside: tuple[str, ...] = ()
    full: bool = False
    overtaken: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFiles:
    """Files of one table that wait for its snapshot. ``starts`` counts the START_COMMITs before them."""

    table: Table
    commit: bytes
    files: int
    at: float
    starts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """Files of one table that a complete cycle had read and did not publish. ``sender`` is the last coordinator that
    did so; ``quiet`` counts the complete cycles of another one since then without new ones.
    """

    files: int
    at: float
    sender: bytes | None
    quiet: int = 0


Chain = tuple[Any, Any] | None
"""Newest first: an item and the chain before it. Adding an item has constant cost."""


class State(NamedTuple):
    """The state of one group. Cheap to change: most events change it. ``landing``: one of its events had our header.
    ``deferred``: since when, and why, a landing plans nothing before a compaction; ``blocked``: ranges, why, since
    when. ``tried[n]`` failed in more than n cycles, ``tried_in`` the newest of these.

    ``missing`` counts, per partition that ever answered, the complete cycles since its last answer; ``unheard`` are the
    partitions with too many. ``partial`` counts complete cycles that waited in vain for partitions that never answered.
    ``fresh`` is whether the coordinator has changed since the last complete cycle with an answer; ``heard`` are the
    partitions that answered it. ``answers`` are the DATA_COMPLETEs since the last complete cycle, ``only_heads`` is set
    if one was not read. ``journal`` are the announcements and publications that are not folded into ``waiting`` yet,
    ``noted`` their files. ``done`` is the last complete cycle, with the tables that it published, for late events that
    were sent before it.
    """

    begun: tuple[OpenCycle, ...] = ()
    starts: int = 0
    last: float | None = None
    last_start: float | None = None
    intervals: tuple[float, ...] = ()
    senders: tuple[bytes, ...] = ()
    completed: int = 0
    completed_at: float | None = None
    valid_through: float | None = None
    answers: Chain = None
    only_heads: bool = False
    unanswered: int = 0
    partial: int = 0
    missing: Mapping[Partition, int] = MappingProxyType({})
    unheard: tuple[Partition, ...] = ()
    fresh: bool = False
    heard: frozenset[Partition] = frozenset()
    journal: Chain = None
    noted: int = 0
    waiting: tuple[PendingFiles, ...] = ()
    over: Mapping[Table, PassedOver] = MappingProxyType({})
    lost_files: int = 0
    done: tuple[ObservedEvent, frozenset[Table]] | None = None
    blocked: tuple[tuple[Coverage, str, float], ...] = ()
    tried: tuple[Coverage, ...] = ()
    tried_in: tuple[bytes, Coverage] = (b"", Coverage())
    landing: bool = False
    deferred: tuple[float, str] | None = None

    @property
    def interval(self) -> float | None:
        """Return the usual seconds from one START_COMMIT to the next of the same coordinator, or the last one if it is
        longer: the connector may have a new interval.
        """
        return max(median(self.intervals), self.intervals[-1]) if self.intervals else None

    @property
    def waiting_files(self) -> int:
        """Return the number of announced files without a snapshot, except skipped ones. Published files are subtracted
        when their cycle completes.
        """
        return self.noted + sum(a.files for a in self.waiting)


def remembered(rules: StallRules) -> int:
    """Return the largest number of open cycles in a state."""
    return max(rules.stalled_cycles, 1) * KEPT_CYCLES


def silence_limit(state: State, rules: StallRules, *, starting: bool) -> int:
    """Return how many complete cycles in a row may pass without an answer before an alarm; ``starting`` is for
    partitions that have not answered the coordinator yet. Short cycles get more: a handover has its own duration.
    """
    interval = rules.interval or state.interval
    return max(rules.unanswered_cycles, int(HANDOVER / interval) if interval else 0) * (STARTING if starting else 1)


def items(chain: Chain) -> Iterator[Any]:
    while chain is not None:
        yield chain[0]
        chain = chain[1]


def merged(answers: Chain) -> Chain:
    """Return the same answers, one per requested cycle: the newest, and those before it."""
    if answers is None or answers[1] is None:
        return answers
    newest: bytes = answers[0].commit
    out: Chain = None
    for mine in (False, True):
        those = [a for a in items(answers) if (a.commit == newest) is mine]
        if those:
            partitions = frozenset[Partition]().union(*(a.partitions for a in those))
            timed, at = all(a.timed for a in those), max(a.at for a in those)
            out = (those[0]._replace(at=at, partitions=partitions, timed=timed), out)
    return out


def waiting(state: State) -> tuple[PendingFiles, ...]:
    """Return the waiting files with the journal folded in: at most two entries a table, one of the newest cycle."""
    if state.journal is None:
        return state.waiting
    tables: dict[Table, list[PendingFiles]] = {}
    for a in state.waiting:
        tables.setdefault(a.table, []).append(a)
    for item in reversed(list(items(state.journal))):
        if not isinstance(item, PendingFiles):
            for table in [t for t in tables if t[0] == item[0]] if item[1] is None else [item, (item[0], None)]:
                tables.pop(table, None)
            continue
        files = tables.setdefault(item.table, [])
        if files and files[-1].commit == item.commit:
            files[-1] = replace(files[-1], files=files[-1].files + item.files, starts=item.starts)
        else:
            files.append(item)
        if len(files) > 2:
            # The later of the two decides when they must have been read.
            files[:2] = [replace(files[1], files=files[0].files + files[1].files, at=files[0].at)]
    return tuple(a for files in tables.values() for a in files)
