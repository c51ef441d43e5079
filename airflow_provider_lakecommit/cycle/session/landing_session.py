# SPDX-License-Identifier: Apache-2.0
"""The connections of one stream of a landing, and its state: the control topic folded over the ledgers of its tables.

Contract: a state is made of ledgers read earlier and the log read now, so that publications in between count as
accepted at worst, never as missing. The control partition in a ledger takes precedence over the hash. Only the tables
decide what has landed.

Failure story: nothing here retries; each error names the unavailable connection. Several threads may use one session.
After :meth:`LandingSession.close`, the next step of a thread that hung is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from airflow_provider_lakecommit.control import (
    BEYOND,
    ControlRecord,
    ControlTopic,
    Outgoing,
    Sender,
    entry_of,
    read_decided,
)
from airflow_provider_lakecommit.core import (
    LIVE,
    STATUS,
    CycleState,
    Entry,
    LandingState,
    TableLedger,
    cycle_id,
    transactional_id,
)
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.cycle.session.ports import ControlPort, SlotHolder, SourcePort, WriterPort
from airflow_provider_lakecommit.exceptions import ClosedError, ControlTopicError, FencedError
from airflow_provider_lakecommit.iceberg import LogPoint, Tables
from airflow_provider_lakecommit.kafka import SourceTopics
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.signing import SigningKeys

__all__ = ["BEYOND", "FoldedLog", "LandingSession", "RunIdentity", "TableKey", "cycle_id_of"]

WITHOUT_LEDGER = 2000
"""Records to read backwards while no ledger is readable: only open cycles are needed then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """The identity of a cycle. ``number`` counts the cycles of one run; ``attempt`` identifies the task attempt and is
    not part of the identity; ``turn`` decides which of several continuous runs stays
    (:mod:`~airflow_provider_lakecommit.cycle.session.turns`).
    """

    deployment: str
    dag_id: str
    run_id: str
    number: int = 0
    attempt: str = "1"
    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedLog:
    """One read of the facts (ledgers) and the messages (log), folded. ``begin`` is where the readable log begins,
    ``end`` where the next read continues.
    """

    ledgers: tuple[TableLedger, ...]
    state: LandingState
    entries: tuple[Entry, ...]
    partition: int
    read_from: int
    begin: LogPoint
    end: int

    def just_opened(self, commit_id: UUID) -> CycleState:
        """Return the cycle whose START was sent, and is below ``end``.

        :raises ControlTopicError: it cannot be read back
        """
        if (found := self.state.cycles.get(commit_id)) is not None:
            return found
        raise ControlTopicError(
            "LC6219",
            f"the START of cycle {commit_id} was written to partition {self.partition} of the control topic, but "
            f"cannot be read back: the log is corrupt before offset {self.end}, or was cut just now. If `lakecommit "
            "status` lists unreadable records: restore the partition from a replica, or remove them with "
            f"`kafka-delete-records`, up to offset {self.end}; else check the topic's retention",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableKey:
    """The key of a table in this process: landings that share it, and their catalog, take turns."""

    catalog: str
    table: str

    def __str__(self) -> str:
        return self.table


@dataclass(kw_only=True)
class LandingSession:
    """Connections of one stream of a landing.

    :param catalog_key: key of the catalog in this process, by default the landing's connection
    :param lent: another owner closes the tables
    :param yields: returns why no window may be opened now, since others go first; empty if one may
    """

    landing: Landing
    kafka: Mapping[str, Any] = field(repr=False)
    tables: Tables
    control: ControlPort
    source: SourcePort
    lane: str = LIVE
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    new_id: Callable[[], UUID] = uuid4
    log: Callable[[str], None] = print
    catalog_key: str = ""
    lent: bool = False
    yields: Callable[[], str] = str
    _sending: threading.Lock = field(default_factory=threading.Lock, init=False)
    _writers: dict[tuple[str, int], tuple[ExitStack, WriterPort]] = field(default_factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _named: int | None = field(default=None, init=False)
    _known: dict[int, tuple[ControlRecord, Entry | None]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def connect(
        cls, landing: Landing, kafka: Mapping[str, Any], catalog: Mapping[str, Any], *, log: Callable[[str], None]
    ) -> LandingSession:
        """Create a session without contacting anything."""
        return cls(
            landing=landing,
            kafka=kafka,
            tables=Tables(catalog),
            control=ControlTopic(landing.control_topic_name, kafka, groups=[landing.group_id]),
            source=SourceTopics(kafka, landing.topic_names),
            log=log,
        )

    def without_secrets(self, text: str) -> str:
        """Return a text without the secrets of the connections."""
        return self.tables.without_secrets(redacted(text, self.kafka))

    def key(self, table: str) -> TableKey:
        """Return the key of a table for its turns."""
        return TableKey(catalog=self.catalog_key or self.landing.connections.iceberg, table=table)

    @property
    def signed(self) -> bool:
        """Return True if unsigned control records of this landing are ignored."""
        return SigningKeys.of(self.kafka) is not None

    def close(self) -> None:
        """Close all connections, from any thread, also repeatedly."""
        self._closed = True
        self.close_writers()
        self.control.close()
        self.source.close()
        if not self.lent:
            self.tables.close()

    def close_writers(self) -> None:
        """Close this session's own writers, if it shares its connections."""
        if self._sending.acquire(blocking=False):
            self._let_writers_go()
            self._sending.release()

    def __enter__(self) -> LandingSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sender(self, role: str, commit_id: UUID) -> Sender:
        form = self.landing.connections.control_events
        return Sender(landing=self.landing.name, lane=self.lane, role=role, commit_id=commit_id, form=form)

    def read_state(
        self, ledgers: Sequence[TableLedger], *, since: FoldedLog | None = None, until: int | None = None
    ) -> FoldedLog:
        """Read the log that the ledgers need, and fold it over them.

        :param since: an earlier read whose entries are kept, so that only later records are read
        :param until: an offset that must be included: that of a record just sent
        """
        partition, read_from = (since.partition, since.read_from) if since else self._start(ledgers)
        start = since.end if since else read_from
        log = (
            read_decided(self.control, partition, start)
            if until is None
            else self.control.read(partition, start, until=until)
        )
        if since is None:
            self._known = {offset: entry for offset, entry in self._known.items() if offset >= start}
        entries = (*(since.entries if since else ()), *self._entries(log.records))
        state = fold(entries, ledgers, self.landing.window.completion_timeout)
        if state.quarantined_count > (since.state.quarantined_count if since else 0):
            self._warn(state, partition)
        return FoldedLog(
            ledgers=tuple(ledgers),
            state=state,
            entries=entries,
            partition=partition,
            read_from=read_from,
            begin=since.begin
            if since
            else LogPoint(topic_id=log.topic_id, partition=partition, offset=max(read_from, log.begin)),
            end=log.end,
        )

    def _entries(self, records: Sequence[ControlRecord]) -> Iterator[Entry]:
        """Return the entries of this stream. Records of the earlier read are not decoded again."""
        for record in records:
            known = self._known.get(record.offset)
            if known is None or known[0] is not record:
                self._known[record.offset] = known = record, entry_of(record, self.landing.name, self.lane)
            if known[1] is not None:
                yield known[1]

    def _warn(self, state: LandingState, partition: int) -> None:
        self.log(
            f"WARNING: {state.quarantined_count} records of {self.control.name} cannot be read and are skipped, "
            f"the ranges they concern are planned again (`{STATUS}` lists the records); the newest is "
            f"{state.quarantined[-1].describe(partition)}"
        )

    def own_partition(self) -> int:
        """Return the control partition of the newest ledgers; before any was read, the one of the hash."""
        return self.control.partition_for(self.landing.group_id) if self._named is None else self._named

    def _start(self, ledgers: Sequence[TableLedger]) -> tuple[int, int]:
        """Return the partition and offset that all ledgers need; without a ledger, the newest part of the log."""
        if ledgers:
            self._named = ledgers[0].section.control.partition
            return self._named, min(t.section.control.read_from for t in ledgers)
        partition = self.own_partition()
        borders = self.control.read(partition, BEYOND)
        return partition, max(borders.begin, borders.end - WITHOUT_LEDGER)

    def send(self, role: str, slot: SlotHolder, partition: int, records: Sequence[Outgoing]) -> int:
        """Send one transaction under the bounded id of this role and the cycle's slot; return the offset of its last
        record. Writers stay open for the next cycle in that slot.

        :raises FencedError: a newer attempt of the same role and slot took over
        """
        key = transactional_id(self.landing.name, self.lane, slot.deployment, slot.slot, role), partition
        # Two concurrent writers under one id would fence each other.
        with self._sending:
            if self._closed:
                raise ClosedError(
                    "LC6220", f"the session of landing {self.landing.name} is closed: see the next attempt"
                )
            rested = key in self._writers
            try:
                return self._sent(key, records)
            except FencedError:
                # Fenced by a run that had the slot while our writer was idle. A planner must read what it did; other
                # records are still valid, and a new writer sends them.
                if not rested or role == "plan":
                    raise
                return self._sent(key, records)
            finally:
                if self._closed:
                    self._let_writers_go()

    def _sent(self, key: tuple[str, int], records: Sequence[Outgoing]) -> int:
        if key not in self._writers:
            opening = ExitStack()
            self._writers[key] = opening, opening.enter_context(self.control.writer(*key))
        opened, writer = self._writers[key]
        try:
            return writer.send(records)[-1]
        except BaseException:
            # The broker aborts its open transaction with it.
            del self._writers[key]
            opened.close()
            raise

    def _let_writers_go(self) -> None:
        while self._writers:
            _, (opened, _) = self._writers.popitem()
            opened.close()


def cycle_id_of(session: LandingSession, run: RunIdentity) -> UUID:
    """Return the commit id of a run's cycle."""
    return cycle_id(run.deployment, session.landing.name, session.lane, run.dag_id, run.run_id, run.number)
