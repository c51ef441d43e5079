# SPDX-License-Identifier: Apache-2.0
"""What the page knows: the control topics of this deployment, read in the background of an API server.

Contract: :meth:`PageReader.board` answers at once with what is known, whatever the brokers do, and never waits. The
first one that asks sets the threads going, one for each control topic; they stop when nobody has asked for
:data:`UNUSED_SECONDS`, and the next one who asks has them read again. What was read last stays meanwhile, with its
time.

Failure story: a connection or a topic that is not there, and brokers that went away, are told as the ``trouble`` of
that topic, and tried again; the others go on. An error that nobody foresaw is logged, told, and tried again as well: a
thread that died would leave a page that looks well.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.exceptions import LakecommitError, SourceUnavailableError
from airflow_provider_lakecommit.kafka.admin import ClusterAdmin
from airflow_provider_lakecommit.kafka.control_watch import ControlRecord
from airflow_provider_lakecommit.page.cycles import LandingCycles, connector_cycles_after, cycles_after
from airflow_provider_lakecommit.page.landings import Board, LandingRow, PageTopic, TopicReading, key_of, ranked
from airflow_provider_lakecommit.stall.events import SeenRecord
from airflow_provider_lakecommit.stall.verdict import EventKind, StallRules, State, judge
from airflow_provider_lakecommit.stall.watch import Commits, CommitWatch, WatchedTopic
from airflow_provider_lakecommit.wire.events import PayloadType
from airflow_provider_lakecommit.wire.records import entry_told

__all__ = ["PageReader", "TopicReader"]

_LOG = logging.getLogger(__name__)

UNUSED_SECONDS = 600.0
RETRY_SECONDS = 5.0
ENDS_SECONDS = 10.0
"""Between two looks at the ends of the source topics; longer where there are more than :data:`ENDS_AT_ONCE` partitions,
each of which costs some 80 microseconds.
"""
ENDS_AT_ONCE = 1000
ANSWER_SECONDS = 2.0
COMPLETION_SECONDS = 3600.0
"""Seconds after which an open cycle of a landing has failed: the default of landings, whose own is not in the log."""

PAYLOADS = {kind: PayloadType[kind.value] for kind in EventKind}

Settings = Callable[[str], Mapping[str, Any]]


class TopicReader:
    """One control topic, for one thread at a time.

    :param settings: librdkafka settings of a connection
    :param deployment: of this Airflow: DAGs of others are not its own
    """

    def __init__(self, place: PageTopic, settings: Settings, deployment: str) -> None:
        self.reading = TopicReading(place=place)
        self.rows: Mapping[str, LandingRow] = {}
        self._place, self._settings, self._deployment = place, settings, deployment
        self._cycles: dict[str, LandingCycles] = {}
        self._known: dict[str, _Known] = {}
        watched = WatchedTopic(topic=place.topic, completion_timeout=COMPLETION_SECONDS)
        self._watch = CommitWatch(watched, lambda: settings(place.connection), heard=self._heard)
        self._ends = SourceEnds(lambda: settings(place.connection))

    def look(self) -> bool:
        """Read on for about a second: has anything changed?

        :raises LakecommitError: what trying again at once cannot mend
        """
        commits = self._watch.look()
        if commits is None:
            return False
        self.reading = _reading(self.reading, commits)
        if commits.groups is None:
            return True
        ends = self._ends.look(p for c in self._cycles.values() for p in c.ends)
        made = [self._row(group, state, commits.at, ends) for group, state in commits.groups.items()]
        if len(made) != len(self.rows) or any(self.rows.get(row.key) is not row for row in made):
            self.rows = {row.key: row for row in made}
        return True

    def close(self) -> None:
        """Let go of the clients."""
        self._watch.close()
        self._ends.close()

    def _heard(self, told: SeenRecord, record: ControlRecord, landing: bool) -> None:
        group, seen, header = told
        known = self._cycles.get(group) or LandingCycles()
        if not landing:
            self._cycles[group] = connector_cycles_after(known, seen)
        elif header is not None and header.get("lane") == LIVE and seen.kind is not EventKind.WRITTEN:
            # Files are told again by the report on their slice.
            entry = entry_told(record, PAYLOADS[seen.kind], UUID(bytes=seen.commit), header)
            if entry is not None:
                self._cycles[group] = cycles_after(known, entry)

    def _row(self, group: str, state: State, now: float, ends: Mapping[tuple[str, int], int]) -> LandingRow:
        """The row that is known, as long as nothing in it has changed."""
        known, cycles = self._known.get(group), self._cycles.get(group) or LandingCycles()
        same = known is not None and known.state is state and known.ends is ends and known.row.cycles is cycles
        if known is not None and same and state.landing:
            return known.row
        made = LandingRow(
            place=self._place,
            group=group,
            key=known.row.key if known else key_of(self._place, group),
            state=state,
            # Of a connector also that nothing is heard of it.
            found=judge(state, now, StallRules(landing=state.landing)),
            cycles=cycles,
            dags=tuple(dag for deployment, dag in cycles.dags if deployment == self._deployment),
            partitions=cycles.partitions(ends),
        )
        row = known.row if known is not None and known.row == made else made
        self._known[group] = _Known(state=state, ends=ends, row=row)
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A row, and what it was made of."""

    state: State
    ends: Mapping[tuple[str, int], int]
    row: LandingRow


class SourceEnds:
    """Ends of source topics, looked at now and then. What is not answered in time stays as it was."""

    def __init__(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        self._settings = settings
        self._admin: ClusterAdmin | None = None
        self._next = float("-inf")
        self._known: dict[tuple[str, int], int] = {}

    def look(self, places: Any) -> Mapping[tuple[str, int], int]:
        """The last stable offsets that are known of these partitions."""
        if time.monotonic() >= self._next:
            asked = tuple(places)
            self._next = time.monotonic() + ENDS_SECONDS * max(1.0, len(asked) / ENDS_AT_ONCE)
            found = self._client().ask_stable_ends(asked).within(ANSWER_SECONDS)
            self._known = {p: end for p in asked if (end := found.get(p, self._known.get(p))) is not None}
        return self._known

    def close(self) -> None:
        """Let go of the client."""
        if self._admin is not None:
            self._admin.close()

    def _client(self) -> ClusterAdmin:
        if self._admin is None:
            away = SourceUnavailableError
            self._admin = ClusterAdmin(
                self._settings(), timeout=ANSWER_SECONDS, away=away, refused=away, remedy=lambda: "grant DESCRIBE"
            )
        return self._admin


class PageReader:
    """All control topics that are watched.

    :param places: which they are, asked for when the threads start
    """

    def __init__(self, places: Callable[[], Sequence[PageTopic]], settings: Settings, deployment: str) -> None:
        self._places, self._settings, self._deployment = places, settings, deployment
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._asked = float("-inf")
        self._board = Board()

    def board(self) -> Board:
        """What is known now."""
        self._asked = time.monotonic()
        if not any(t.is_alive() for t in self._threads):
            with self._lock:
                if not any(t.is_alive() for t in self._threads):
                    self._start()
        return self._board

    def close(self) -> None:
        """Stop the threads; they end behind the look that is under way."""
        self._stop.set()

    def _start(self) -> None:
        self._stop = threading.Event()
        places = tuple(self._places())
        known = {r.place: r for r in self._board.topics}
        self._publish(topics=tuple(known.get(p) or TopicReading(place=p) for p in places))
        self._threads = [
            threading.Thread(target=self._read, args=(place, self._stop), name=f"lakecommit-page-{place}", daemon=True)
            for place in places
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, place: PageTopic, stop: threading.Event) -> None:
        reader: TopicReader | None = None
        while not stop.is_set() and time.monotonic() - self._asked < UNUSED_SECONDS:
            try:
                reader = reader or TopicReader(place, self._settings, self._deployment)
                if reader.look():
                    self._take(reader)
            except Exception as e:
                if not isinstance(e, LakecommitError):
                    _LOG.exception("reading control topic %s for the page failed; it is tried again", place)
                self._tell(place, str(e) if isinstance(e, LakecommitError) else type(e).__name__)
                if reader is not None:
                    reader.close()
                # What was read stays on the board; the next look begins anew.
                reader = None
                stop.wait(RETRY_SECONDS)
        if reader is not None:
            reader.close()

    def _tell(self, place: PageTopic, trouble: str) -> None:
        with self._lock:
            told = (replace(r, trouble=trouble) if r.place == place else r for r in self._board.topics)
            self._publish(topics=tuple(told))

    def _take(self, reader: TopicReader) -> None:
        with self._lock:
            place, rows = reader.reading.place, self._board.rows
            if any(rows.get(key) is not row for key, row in reader.rows.items()):
                rows = ranked([*(r for r in rows.values() if r.place != place), *reader.rows.values()])
            told = (reader.reading if r.place == place else r for r in self._board.topics)
            self._publish(rows=rows, topics=tuple(told))

    def _publish(self, *, topics: tuple[TopicReading, ...], rows: Mapping[str, LandingRow] | None = None) -> None:
        rows = self._board.rows if rows is None else rows
        changed = rows is not self._board.rows or _troubles(topics) != _troubles(self._board.topics)
        self._board = Board(version=self._board.version + changed, rows=rows, topics=topics)


def _troubles(topics: Sequence[TopicReading]) -> list[tuple[PageTopic, str, bool]]:
    """What is shown of topics, but the time."""
    return [(t.place, t.trouble, t.as_of is None) for t in topics]


def _reading(known: TopicReading, commits: Commits) -> TopicReading:
    trouble = commits.trouble or ""
    current = commits.groups is not None and not trouble
    return replace(known, as_of=commits.at if current else known.as_of, trouble=trouble, overlooked=commits.overlooked)
