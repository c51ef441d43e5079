# SPDX-License-Identifier: Apache-2.0
"""What the page knows of landings' tables: small files, and samples of dead letters, looked at now and then.

Contract: questions and answers are in memory only, and whoever asks has at once what is known; the looks are made in
the background, by :func:`~airflow_provider_lakecommit.table_looks.process.ask`, one at a time, of few tables each, and
with a rest after each that is several times as long as it took. Which tables, by which connection, is what parsed DAGs
declare, and nothing else. Samples are looked for only while somebody asks for them, and forgotten
:data:`KEPT_SECONDS` after the last one did. Nothing is looked at when nobody has looked at the page for that long.

Failure story: a catalog that is away, a connection that is missing or a look that takes too long is the ``trouble`` of
its tables; what was seen of them before stays, with its time. Such tables are looked at after all others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.page.declared_landings import DeclaredLanding
from airflow_provider_lakecommit.table_looks.process import ask
from airflow_provider_lakecommit.table_looks.question import TableAnswer, TableQuestion

__all__ = ["TableReader", "TableSeen", "due_questions"]

_LOG = logging.getLogger(__name__)

FILES_SECONDS, SAMPLES_SECONDS = 300.0, 30.0
"""For so long what was seen holds."""
KEPT_SECONDS = 600.0
WAITING_SECONDS = 60.0
"""For so long who asked for samples is there to see them: a page asks again sooner."""
TICK_SECONDS = 0.5
MOST_AT_ONCE = 200
MOST_WANTED = 50
"""Landings whose samples are kept."""
REST_TIMES = 9
LEAST_REST, MOST_REST = 3.0, 60.0
STOP_SECONDS = 2.0

NOTHING = TableAnswer()
Properties = Callable[[str], Mapping[str, str]]
Ask = Callable[[Sequence[TableQuestion], Mapping[str, Mapping[str, str]]], Sequence[TableAnswer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSeen:
    """What was seen of a table at ``as_of``, in seconds of the epoch, and what keeps that from being newer; ``looked``
    is when it was last looked at.
    """

    looked: float
    as_of: float | None = None
    answer: TableAnswer = NOTHING
    trouble: str = ""


def due_questions(
    now: float,
    wanted: Collection[TableQuestion],
    others: Collection[TableQuestion],
    seen: Mapping[TableQuestion, TableSeen],
) -> list[TableQuestion]:
    """What is to be looked at: what somebody waits for first, what could not be seen last.

    :param wanted: samples
    """

    def looked(q: TableQuestion) -> float:
        return seen[q].looked if q in seen else float("-inf")

    due = [q for q in wanted if now - looked(q) >= SAMPLES_SECONDS]
    due += [q for q in others if now - looked(q) >= FILES_SECONDS]
    away = {q.connection for q, s in seen.items() if s.trouble and s.as_of is None}
    due.sort(key=lambda q: (q.connection in away, not q.landing, looked(q)))
    return due[:MOST_AT_ONCE]


class TableReader:
    """For any thread.

    :param properties: of a catalog, by its connection
    :param samples: may samples be looked at?
    """

    def __init__(self, properties: Properties, *, samples: bool = False, ask: Ask = ask) -> None:
        self.samples_allowed = samples
        self._properties, self._ask = properties, ask
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._asked = float("-inf")
        self._declared: tuple[DeclaredLanding, ...] = ()
        self._wanted: dict[TableQuestion, float] = {}
        self._seen: dict[TableQuestion, TableSeen] = {}

    def about(self, declared: tuple[DeclaredLanding, ...]) -> None:
        """Tables of these are looked at from now on."""
        with self._lock:
            self._asked, self._declared = time.monotonic(), declared
            if self._thread is None or not self._thread.is_alive():
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="lakecommit-page-tables", daemon=True
                )
                self._thread.start()

    def files(self, landing: DeclaredLanding) -> TableSeen | None:
        """What is known of the data table of a landing, by its answer's ``files``."""
        return self._seen.get(_of_files(landing))

    def samples(self, landing: DeclaredLanding) -> TableSeen | None:
        """What is known of its dead letters; they are looked at soon."""
        question = _of_samples(landing)
        with self._lock:
            if self.samples_allowed:
                self._wanted.pop(question, None)
                self._wanted[question] = time.monotonic()
                for old in tuple(self._wanted)[:-MOST_WANTED]:
                    del self._wanted[old]
        return self._seen.get(question)

    def close(self) -> None:
        """End, at the latest behind the look that is under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(TICK_SECONDS) and time.monotonic() - self._asked < KEPT_SECONDS:
            began = time.monotonic()
            try:
                looked = self._look()
            except Exception:
                _LOG.exception("looking at tables for the page failed; it is tried again")
                looked = True
            if looked:
                stop.wait(min(MOST_REST, max(LEAST_REST, REST_TIMES * (time.monotonic() - began))))
        with self._lock:
            # Values of records are kept for nobody.
            self._seen = {q: s for q, s in self._seen.items() if not q.landing}

    def _look(self) -> bool:
        """Look once: was there something to look at?"""
        with self._lock:
            late = time.monotonic() - KEPT_SECONDS
            self._wanted = {q: at for q, at in self._wanted.items() if at > late}
            files = {_of_files(d) for d in self._declared if d.connection}
            self._seen = {q: s for q, s in self._seen.items() if q in files or q in self._wanted}
            recent = time.monotonic() - WAITING_SECONDS
            awaited = [q for q, at in self._wanted.items() if at > recent]
            due = due_questions(time.time(), awaited, files, self._seen)
        if due:
            answers = self._answers(due)
            with self._lock:
                self._seen = {**self._seen, **{q: self._after(q, a) for q, a in zip(due, answers, strict=True)}}
        return bool(due)

    def _answers(self, questions: Sequence[TableQuestion]) -> list[TableAnswer]:
        catalogs: dict[str, Mapping[str, str]] = {}
        missing: dict[str, TableAnswer] = {}
        for name in {q.connection for q in questions}:
            try:
                catalogs[name] = self._properties(name)
            except LakecommitError as e:
                missing[name] = TableAnswer(trouble=str(e))
        asked = [q for q in questions if q.connection in catalogs]
        answers = dict(zip(asked, self._ask(asked, catalogs) if asked else (), strict=True))
        return [answers.get(q) or missing[q.connection] for q in questions]

    def _after(self, question: TableQuestion, answer: TableAnswer) -> TableSeen:
        now = time.time()
        if not answer.trouble:
            return TableSeen(looked=now, as_of=now, answer=answer)
        return replace(self._seen.get(question) or TableSeen(looked=now), looked=now, trouble=answer.trouble)


def _of_files(d: DeclaredLanding) -> TableQuestion:
    return TableQuestion(connection=d.connection, table=d.table, branch=d.branch)


def _of_samples(d: DeclaredLanding) -> TableQuestion:
    return TableQuestion(connection=d.connection, table=d.dead_letter_table, branch=d.branch, landing=d.name)
