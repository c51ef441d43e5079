# SPDX-License-Identifier: Apache-2.0
"""The state behind the page: the control topics of this deployment, read in background threads of an API server.

:meth:`PageReader.board` returns the known state at once. The first request starts a thread per control topic; they stop
after :data:`UNUSED_SECONDS` without a request, and the next request starts over. Missing connections and topics, and
unreachable brokers, become the ``trouble`` of that topic and are retried. Unforeseen errors are
retried too, because a dead thread would leave a page that looks healthy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.page.landings import Board, LandingRow, PageTopic, TopicReading, ranked
from airflow_provider_lakecommit.page.topic_reader import Settings, TopicReader

_LOG = logging.getLogger(__name__)

UNUSED_SECONDS = 3600.0
RETRY_SECONDS = 5.0
STOP_SECONDS = 5.0


class PageReader:
    """All watched control topics; ``topics`` is called when the threads start."""

    def __init__(self, topics: Callable[[], Sequence[PageTopic]], settings: Settings, deployment: str) -> None:
        self._topics, self._settings, self._deployment = topics, settings, deployment
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._requested_at = float("-inf")
        self._board = Board()

    def board(self) -> Board:
        self._requested_at = time.monotonic()
        if not any(t.is_alive() for t in self._threads):
            with self._lock:
                if not any(t.is_alive() for t in self._threads):
                    self._start()
        return self._board

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _start(self) -> None:
        self._stop = threading.Event()
        topics = tuple(self._topics())
        known = {r.control_topic: r for r in self._board.topics}
        self._publish(topics=tuple(known.get(p) or TopicReading(control_topic=p) for p in topics))
        self._threads = [
            threading.Thread(target=self._read, args=(topic, self._stop), name=f"lakecommit-page-{topic}", daemon=True)
            for topic in topics
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, topic: PageTopic, stop: threading.Event) -> None:
        reader: TopicReader | None = None
        while not stop.is_set() and time.monotonic() - self._requested_at < UNUSED_SECONDS:
            try:
                reader = reader or TopicReader(topic, self._settings, self._deployment)
                if reader.read():
                    self._take(reader)
            except Exception as e:
                if not isinstance(e, LakecommitError):
                    _LOG.exception("reading control topic %s for the page failed; it is tried again", topic)
                trouble = str(e) if isinstance(e, LakecommitError) else type(e).__name__
                with self._lock:
                    readings = self._board.topics
                    self._publish(
                        topics=tuple(replace(r, trouble=trouble) if r.control_topic == topic else r for r in readings)
                    )
                if reader is not None:
                    reader.close()
                # The last state stays on the board; the next read starts over.
                reader = None
                stop.wait(RETRY_SECONDS)
        if reader is not None:
            reader.close()

    def _take(self, reader: TopicReader) -> None:
        with self._lock:
            topic, rows = reader.reading.control_topic, self._board.rows
            if any(rows.get(key) is not row for key, row in reader.rows.items()):
                rows = ranked([*(r for r in rows.values() if r.control_topic != topic), *reader.rows.values()])
            topics = (reader.reading if r.control_topic == topic else r for r in self._board.topics)
            self._publish(rows=rows, topics=tuple(topics))

    def _publish(self, *, topics: tuple[TopicReading, ...], rows: Mapping[str, LandingRow] | None = None) -> None:
        rows = self._board.rows if rows is None else rows
        changed = rows is not self._board.rows or _troubles(topics) != _troubles(self._board.topics)
        self._board = Board(version=self._board.version + changed, rows=rows, topics=topics)


def _troubles(topics: Sequence[TopicReading]) -> list[tuple[PageTopic, str, bool]]:
    return [(t.control_topic, t.trouble, t.as_of is None) for t in topics]
