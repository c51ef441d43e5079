# SPDX-License-Identifier: Apache-2.0
"""Control records of a landing: those sent for each step of a cycle, and log records read as entries of the fold.

:func:`read_entry` returns the entry that the matching ``…_record`` function was made from. Keys are stable per landing
and role, so that observers can distinguish two coordinators of one group. Functions are pure: ids and times are
parameters. Records of other groups, lanes or producers are ignored (``None``); an unreadable record with our header
raises, because ignoring it could let a finished range be planned again.

All readers of a landing's log use :func:`entry_of`, so that they ignore the same records: an unreadable one becomes an
:class:`~airflow_provider_lakecommit.core.log.Unreadable`. Ignoring any record is safe: the ledger has what is in a
table, and a report that nobody accepted is planned again. A lost claim, release or voided attempt costs repeated work,
and never a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID, uuid5

from airflow_provider_lakecommit.control import headers as h
from airflow_provider_lakecommit.control.coverage import coverage_from_json, coverage_to_json
from airflow_provider_lakecommit.control.errors import UnverifiedError
from airflow_provider_lakecommit.control.events import Event, encode, head
from airflow_provider_lakecommit.control.packed_text import CORRUPTION, count, text
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Payload,
    PayloadType,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from airflow_provider_lakecommit.control.plan_json import plan_from_json, plan_to_json, time_from_json, time_to_json
from airflow_provider_lakecommit.core import (
    AttemptsVoided,
    CommitFailed,
    Coverage,
    Cycle,
    CycleClosed,
    CycleOpened,
    Directives,
    EndRequested,
    Entry,
    Plan,
    SliceFiles,
    SliceReport,
    SliceReported,
    TablePublished,
    Unreadable,
    group_id,
)
from airflow_provider_lakecommit.exceptions import WireError

_KEYS = UUID("0d7a7a52-6a0e-5b63-8f5e-3a50a3f8a7f1")
REASON_LENGTH = 300
_NOBODY = UUID(int=0)


class LogRecord(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> datetime: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes]]: ...


def table_reference(catalog: str, table: str, uuid: UUID) -> TableReference:
    """Return a table as events name it: ``namespace.name`` in a catalog, and its uuid."""
    *namespace, name = table.split(".")
    return TableReference(catalog=catalog, namespace=tuple(namespace), name=name, table_uuid=uuid)


class Outgoing(NamedTuple):
    """A record to produce."""

    key: bytes
    value: bytes
    headers: Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Makes the records of one role (``plan``, ``commit``, ``write``) of a landing's lane for one cycle. ``form`` is
    the events', for the connectors on the topic.
    """

    landing: str
    lane: str
    role: str
    commit_id: UUID
    form: str = "1.12"

    def opened(self, event_id: UUID, at: datetime, cycle: Cycle, plan: Plan, directives: Directives) -> Outgoing:
        values = {"kind": "open", "cycle": h.cycle_to_json(cycle), "plan": plan_to_json(plan)}
        values |= h.directives_to_json(directives)
        return self._record(event_id, at, StartCommit(commit_id=self.commit_id), values)

    def commit_failed(
        self,
        event_id: UUID,
        at: datetime,
        reason: str,
        task_attempt: str,
        directives: Directives,
        tables: Sequence[str] = (),
        main: str | None = None,
    ) -> Outgoing:
        """START_COMMIT again: a commit attempt failed, for these tables if known.

        :param main: the landing's data table, so that an observer knows whether it is among them
        """
        values = {"kind": "failed", "failed": reason, "task_attempt": task_attempt, **h.directives_to_json(directives)}
        if tables:
            values["tables"] = list(tables)
            if main is not None:
                values["main"] = main
        return self._record(event_id, at, StartCommit(commit_id=self.commit_id), values)

    def files(self, event_id: UUID, at: datetime, payload: DataWritten, report: SliceReport, table: str) -> Outgoing:
        """DATA_WRITTEN of one table of one slice."""
        values = {"kind": "files", "slice": str(report.slice_id), "attempt": str(report.attempt), "table": table}
        return self._record(event_id, at, payload, values)

    def reported(self, event_id: UUID, at: datetime, report: SliceReport) -> Outgoing:
        """DATA_COMPLETE of one slice. Only finished slices have positions."""
        done = report.blocked is None and report.failed is None
        assignments = tuple(
            TopicPartitionOffset(
                topic=s.span.partition.topic, partition=s.span.partition.partition, offset=s.span.range.end
            )
            for s in (report.spans if done else ())
        )
        payload = DataComplete(commit_id=self.commit_id, assignments=assignments)
        return self._record(event_id, at, payload, {"kind": "report", "report": h.report_to_json(report)})

    def end_request(self, event_id: UUID, at: datetime, *, job: UUID | None, reason: str) -> Outgoing:
        """DATA_COMPLETE without a position, which a connector ignores: tasks are asked to end early."""
        values = {"kind": "end", "job": None if job is None else str(job), "reason": reason}
        return self._record(event_id, at, DataComplete(commit_id=self.commit_id, assignments=()), values)

    def voided(self, event_id: UUID, at: datetime, attempts: Sequence[UUID]) -> Outgoing:
        """DATA_COMPLETE without a position, like :meth:`end_requested`: the files of these attempts will be deleted."""
        values = {"kind": "void", "attempts": [u.hex for u in attempts]}
        return self._record(event_id, at, DataComplete(commit_id=self.commit_id, assignments=()), values)

    def published(
        self,
        event_id: UUID,
        at: datetime,
        *,
        table: TableReference,
        snapshot_id: int,
        token: UUID,
        coverage: Coverage,
        directives: Directives,
        debt: float | None = None,
    ) -> Outgoing:
        """COMMIT_TO_TABLE."""
        values = {
            "kind": "published",
            "table": ".".join((*table.namespace, table.name)),
            "snapshot": snapshot_id,
            "token": str(token),
            "ranges": coverage_to_json(coverage),
            **({} if table.table_uuid is None else {"uuid": str(table.table_uuid)}),
            **({} if debt is None else {"debt": round(debt, 3)}),
            **h.directives_to_json(directives),
        }
        payload = CommitToTable(commit_id=self.commit_id, table=table, snapshot_id=snapshot_id)
        return self._record(event_id, at, payload, values)

    def closed(self, event_id: UUID, at: datetime, valid_through: datetime | None, directives: Directives) -> Outgoing:
        """COMMIT_COMPLETE."""
        payload = CommitComplete(commit_id=self.commit_id, valid_through=valid_through)
        through = None if valid_through is None else time_to_json(valid_through)
        values = {"kind": "closed", "valid_through": through, **h.directives_to_json(directives)}
        return self._record(event_id, at, payload, values)

    def _record(self, event_id: UUID, at: datetime, payload: Payload, values: dict[str, Any]) -> Outgoing:
        event = Event(id=event_id, timestamp=at, group_id=group_id(self.landing), payload=payload)
        return Outgoing(
            key=str(uuid5(_KEYS, f"{self.landing}\x1f{self.role}")).encode(),
            value=encode(event, form="1.10" if self.form == "1.10" else "1.12"),
            headers=h.header(
                {"lane": self.lane, **values}, f"the header of a {event.type.name} of landing {self.landing}"
            ),
        )


def read_entry(record: LogRecord, landing: str, lane: str) -> Entry | None:
    """Return the entry of a record of the control topic, or ``None`` if it is not of this landing's lane.

    :raises WireError: it is of this landing and unreadable or not trusted, or has our header and is no control event
    """
    if record.value is None:
        return None
    try:
        about = head(record.value)
    except WireError:
        if any(name == h.HEADER for name, _ in record.headers):
            raise
        return None
    if about.group_id != group_id(landing):
        return None
    values = h.find(record.headers)
    if values is None or values.get("lane") != lane:
        return None
    if (doubt := getattr(record, "doubt", None)) is not None:
        raise UnverifiedError("LC2362", f"{doubt}; nothing is taken from it")
    try:
        entry = _entry(record, about.type, about.commit_id, values)
        return None if entry is None else replace(entry, event=about.id)
    except CORRUPTION as e:
        raise WireError(
            "LC2363",
            f"control record at offset {record.offset} of landing {landing} is corrupt: {type(e).__name__} {e}",
        ) from e


def entry_from_values(
    record: LogRecord, kind: PayloadType, commit_id: UUID, values: Mapping[str, Any], published: Coverage | None = None
) -> Entry | None:
    """Return the entry of a record whose head and header were read already; ``None`` if it is damaged. For observers of
    very many records.

    :param published: the ranges in the header, of one that publishes
    """
    try:
        return _entry(record, kind, commit_id, values, published)
    except (WireError, *CORRUPTION):
        return None


def _entry(
    record: LogRecord, kind: PayloadType, commit_id: UUID, v: Mapping[str, Any], published: Coverage | None = None
) -> Entry | None:
    of: dict[str, Any] = {"offset": record.offset, "at": record.timestamp, "commit_id": commit_id}
    match (kind, v.get("kind")):
        case (PayloadType.START_COMMIT, "open"):
            cycle, plan = h.cycle_from_json(v["cycle"]), plan_from_json(v["plan"])
            return CycleOpened(**of, cycle=cycle, plan=plan, directives=h.directives_from_json(v))
        case (PayloadType.START_COMMIT, "failed"):
            return CommitFailed(
                **of,
                reason=text(v["failed"]),
                task_attempt=text(v["task_attempt"]),
                tables=tuple(text(t) for t in v.get("tables", ())),
                directives=h.directives_from_json(v),
            )
        case (PayloadType.DATA_WRITTEN, "files"):
            return SliceFiles(**of, attempt=UUID(v["attempt"]), table=text(v["table"]), value=record.value or b"")
        case (PayloadType.DATA_COMPLETE, "report"):
            return SliceReported(**of, report=h.report_from_json(v["report"]))
        case (PayloadType.DATA_COMPLETE, "end"):
            return EndRequested(**of, job=None if v["job"] is None else UUID(v["job"]), reason=text(v["reason"]))
        case (PayloadType.DATA_COMPLETE, "void"):
            return AttemptsVoided(**of, attempts=tuple(map(UUID, v["attempts"])))
        case (PayloadType.COMMIT_TO_TABLE, "published"):
            return TablePublished(
                **of,
                table=text(v["table"]),
                snapshot_id=count(v["snapshot"]),
                token=UUID(v["token"]),
                coverage=coverage_from_json(v["ranges"]) if published is None else published,
                directives=h.directives_from_json(v),
                uuid=UUID(v["uuid"]) if "uuid" in v else None,
                debt=float(v["debt"]) if isinstance(v.get("debt"), int | float) else None,
            )
        case (PayloadType.COMMIT_COMPLETE, "closed"):
            through = None if v["valid_through"] is None else time_from_json(v["valid_through"])
            return CycleClosed(**of, valid_through=through, directives=h.directives_from_json(v))
        case _:
            raise ValueError(f"{kind.name} with header kind {v.get('kind')!r}")


def entry_of(record: LogRecord, landing: str, lane: str) -> Entry | None:
    """Return the entry of a record, or ``None`` if it is not of this lane of the landing."""
    try:
        if (cause := next((value for name, value in record.headers if name == h.CORRUPT_BATCH), None)) is not None:
            # Whose they were, nobody knows.
            return _unreadable(record, f"damage: it is not what was written ({cause.decode(errors='replace')})")
        if any(name == h.CORRUPT_HEADERS for name, _ in record.headers):
            return _without_headers(record, landing)
        return read_entry(record, landing, lane)
    except WireError as e:
        return _unreadable(record, str(e))


def _without_headers(record: LogRecord, landing: str) -> Entry | None:
    """Return an unreadable entry if the event is of the landing, which may have been one of ours."""
    try:
        ours = record.value is not None and head(record.value).group_id == group_id(landing)
    except WireError:
        return None
    return _unreadable(record, "its headers cannot be read") if ours else None


def _unreadable(record: LogRecord, reason: str) -> Unreadable:
    shown = "".join(letter if letter.isprintable() else "�" for letter in " ".join(reason.split()))
    short = shown if len(shown) <= REASON_LENGTH else f"{shown[:REASON_LENGTH]}…"
    return Unreadable(offset=record.offset, at=record.timestamp, commit_id=_NOBODY, reason=short)


def lanes_in(records: Iterable[LogRecord], landing: str) -> frozenset[str]:
    """Return the streams of the landing that have readable records."""
    found: set[object] = set()
    for record in records:
        with suppress(WireError):
            if record.value is not None and head(record.value).group_id == group_id(landing):
                found.add((h.find(record.headers) or {}).get("lane"))
    return frozenset(lane for lane in found if isinstance(lane, str))


def read_entries(records: Iterable[LogRecord], landing: str, lane: str) -> tuple[Entry, ...]:
    """Return the entries of a lane of the landing, and unreadable ones."""
    return tuple(entry for record in records if (entry := entry_of(record, landing, lane)) is not None)
