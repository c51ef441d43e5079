# SPDX-License-Identifier: Apache-2.0
"""The connections of one landing's lane, and its state: the control log folded over the ledgers of its tables.

Contract: a state is made of ledgers that were read from the tables before and of the log that is read now, so that what
was published in between is seen as accepted at worst, never as missing. The control partition that a ledger names wins
over the hash. Only the tables decide what has landed.

Failure story: nothing here retries; each error of the connections below says what is away. Several threads may work at
one session. After :meth:`LandingSession.close` a thread that hung and comes back does nothing more: its next step is
refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from airflow_provider_lakecommit.committer import LogPoint
from airflow_provider_lakecommit.control import (
    BEYOND,
    ControlRecord,
    ControlTopic,
    Outgoing,
    Record,
    Sender,
    entry_of,
    read_decided,
    read_entries,
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
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.kafka import SourceTopics
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.signing import SigningKeys

__all__ = ["BEYOND", "FoldedLog", "LandingSession", "RunIdentity", "TableKey", "cycle_id_of"]

WITHOUT_LEDGER = 2000
"""Records looked back at while no ledger can be read: only open cycles are wanted then."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdentity:
    """Whose cycle it is. ``number`` counts the cycles of one run; ``attempt`` tells task attempts apart, it is part of
    no identity; ``turn`` tells which of several runs follows (:mod:`~airflow_provider_lakecommit.cycle.session.turns`).
    """

    deployment: str
    dag_id: str
    run_id: str
    number: int = 0
    attempt: str = "1"
    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedLog:
    """One look at the truth (ledgers) and the messages (log), folded. ``begin`` is from where the log was there to be
    read, ``end`` where the next look reads on.
    """

    ledgers: tuple[TableLedger, ...]
    state: LandingState
    entries: tuple[Entry, ...]
    partition: int
    read_from: int
    begin: LogPoint
    end: int

    def just_opened(self, commit_id: UUID) -> CycleState:
        """The cycle whose START was sent, and stands below ``end``.

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
    """What names a table in this process: landings that share it, and their catalog, take turns."""

    catalog: str
    table: str

    def __str__(self) -> str:
        return self.table


@dataclass(kw_only=True)
class LandingSession:
    """Connections of one landing's lane.

    :param place: what names the catalog in this process, by default the landing's connection
    :param lent: the tables belong to somebody else, who closes them
    :param yields: why no window is opened now, since others go first; empty: one may be
    """

    landing: Landing
    kafka: Mapping[str, Any] = field(repr=False)
    tables: Tables
    control: ControlPort
    source: SourcePort
    lane: str = LIVE
    now: Callable[[], datetime] = _utc_now
    new_id: Callable[[], UUID] = uuid4
    log: Callable[[str], None] = print
    place: str = ""
    lent: bool = False
    yields: Callable[[], str] = str
    _sending: threading.Lock = field(default_factory=threading.Lock, init=False)
    _writers: dict[tuple[str, int], tuple[ExitStack, WriterPort]] = field(default_factory=dict, init=False)
    _closed: bool = field(default=False, init=False)
    _named: int | None = field(default=None, init=False)
    _seen: dict[int, tuple[ControlRecord, Entry | None]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def connect(
        cls, landing: Landing, kafka: Mapping[str, Any], catalog: Mapping[str, Any], *, log: Callable[[str], None]
    ) -> LandingSession:
        """Nothing is contacted here."""
        return cls(
            landing=landing,
            kafka=kafka,
            tables=Tables(catalog),
            control=ControlTopic(landing.control_topic_name, kafka, wanted=[landing.group_id]),
            source=SourceTopics(kafka, landing.topic_names),
            log=log,
        )

    def without_secrets(self, text: str) -> str:
        """A text that others may read, without those of its connections."""
        return self.tables.without_secrets(redacted(text, self.kafka))

    def key(self, table: str) -> TableKey:
        """The name of a table for its turns."""
        return TableKey(catalog=self.place or self.landing.connections.iceberg, table=table)

    @property
    def signed(self) -> bool:
        """Return True if unsigned control records of this landing are ignored."""
        return SigningKeys.of(self.kafka) is not None

    def close(self) -> None:
        """Let go of all connections, from any thread, also twice."""
        self._closed = True
        self.close_writers()
        self.control.close()
        self.source.close()
        if not self.lent:
            self.tables.close()

    def close_writers(self) -> None:
        """Close what this session alone has open, where it shares its connections with another one."""
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

        :param since: a look whose entries are kept, so that only what came after it is read
        :param until: an offset that must be seen: that of a record just sent
        """
        partition, read_from = (since.partition, since.read_from) if since else self._start(ledgers)
        start = since.end if since else read_from
        log = (
            read_decided(self.control, partition, start)
            if until is None
            else self.control.read(partition, start, until=until)
        )
        if since is None:
            self._seen = {offset: seen for offset, seen in self._seen.items() if offset >= start}
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
        """Those of this lane. A record that the look before had, too, is not decoded a second time."""
        for record in records:
            seen = self._seen.get(record.offset)
            if seen is None or seen[0] is not record:
                self._seen[record.offset] = seen = record, entry_of(record, self.landing.name, self.lane)
            if seen[1] is not None:
                yield seen[1]

    def _warn(self, state: LandingState, partition: int) -> None:
        self.log(
            f"WARNING: {state.quarantined_count} records of {self.control.name} cannot be read and are skipped, "
            f"the ranges they concern are planned again (`{STATUS}` lists the records); the newest is "
            f"{state.quarantined[-1].told(partition)}"
        )

    def all_entries(
        self, since: datetime | None = None, lane: str | None = None
    ) -> Iterator[tuple[int, tuple[Entry, ...]]]:
        """What the log holds of a lane by partition: the landing's was another one if partitions were added.

        :param since: what is older by the records' own times is left out
        :param lane: by default this one
        """
        for partition in range(self.control.describe().partitions):
            start = 0 if since is None else self.control.first_since(partition, since)
            records = () if start is None else self.control.read(partition, start).records
            yield partition, read_entries(records, self.landing.name, lane or self.lane)

    def own_partition(self) -> int:
        """Return the control partition that the newest ledgers named; before any was read, the one of the hash."""
        return self.control.partition_for(self.landing.group_id) if self._named is None else self._named

    def _start(self, ledgers: Sequence[TableLedger]) -> tuple[int, int]:
        """Partition and offset that all ledgers need; without a ledger, the newest part of the log."""
        if ledgers:
            self._named = ledgers[0].section.control.partition
            return self._named, min(t.section.control.read_from for t in ledgers)
        partition = self.own_partition()
        borders = self.control.read(partition, BEYOND)
        return partition, max(borders.begin, borders.end - WITHOUT_LEDGER)

    def send(self, role: str, whose: SlotHolder, partition: int, records: Sequence[Outgoing]) -> int:
        """One transaction under the bounded id of this role and the cycle's slot; returns the offset of its last
        record. Writers stay open for the next cycle in that slot.

        :raises FencedError: a newer attempt of the same role and slot took over
        """
        key = transactional_id(self.landing.name, self.lane, whose.deployment, whose.slot, role), partition
        values = [(r.key, r.value, r.headers) for r in records]
        # Two writers at once under one id would shut out each other.
        with self._sending:
            if self._closed:
                raise ClosedError(
                    "LC6220", f"the session of landing {self.landing.name} is closed: see the next attempt"
                )
            rested = key in self._writers
            try:
                return self._sent(key, values)
            except FencedError:
                # By a run that had the slot while our writer rested. A planner has to look at what that one did; what
                # others have to say is so all the same, and is said by a writer that is opened now.
                if not rested or role == "plan":
                    raise
                return self._sent(key, values)
            finally:
                if self._closed:
                    self._let_writers_go()

    def _sent(self, key: tuple[str, int], values: Sequence[Record]) -> int:
        if key not in self._writers:
            opening = ExitStack()
            self._writers[key] = opening, opening.enter_context(self.control.writer(*key))
        opened, writer = self._writers[key]
        try:
            return writer.send(values)[-1]
        except BaseException:
            # What it may have open is aborted with it.
            del self._writers[key]
            opened.close()
            raise

    def _let_writers_go(self) -> None:
        while self._writers:
            _, (opened, _) = self._writers.popitem()
            opened.close()


def cycle_id_of(session: LandingSession, run: RunIdentity) -> UUID:
    """Commit id of a run's cycle."""
    return cycle_id(run.deployment, session.landing.name, session.lane, run.dag_id, run.run_id, run.number)
