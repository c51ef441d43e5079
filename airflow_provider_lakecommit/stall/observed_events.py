# SPDX-License-Identifier: Apache-2.0
"""Control records as the five events that an observer of commits sees, the same for landings and for the connector.

Our header adds what the connector cannot express: a failed commit attempt, a range that needs a decision. An unreadable
record must not stop an observer: it is ``None``, and so are the records of backfills.

Which control records an observer of commits accepts.

A record without a required signature is ignored, and so is a repeated one: each event of a landing has its own id, so a
copy is a forgery. Once a group is known as a landing, records without our header are not its own. Groups of Kafka
Connect sign nothing and are accepted. Of each group the newest :data:`REMEMBERED` records that start or end a cycle are
recognised when repeated; a copy of an older one counts until the landing's next cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_lakecommit.control import (
    CORRUPTION,
    HEADER,
    YEARS,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    PayloadType,
    TableReference,
    coverage_from_json,
    decode,
    glance,
    refusal_from_json,
    spans_from_json,
    time_from_json,
)
from airflow_provider_lakecommit.control import headers as h
from airflow_provider_lakecommit.core import LIVE, WHY_BLOCKED, Coverage, RefusalState, Span
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.stall.group_state import EventKind, ObservedEvent

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import ControlRecord

GROUP_LENGTH = 1000
"""A group with a longer name is ignored: the state of each group is bounded."""
SHOWN_LENGTH = 200
"""A group with a longer name is not displayed."""
KEY_LENGTH = 200
LATEST_MICROS = int(datetime(YEARS[-1], 1, 1, tzinfo=UTC).timestamp()) * 1_000_000

_KINDS = {
    int(PayloadType.START_COMMIT): EventKind.START,
    int(PayloadType.DATA_WRITTEN): EventKind.WRITTEN,
    int(PayloadType.DATA_COMPLETE): EventKind.ANSWERED,
    int(PayloadType.COMMIT_TO_TABLE): EventKind.PUBLISHED,
    int(PayloadType.COMMIT_COMPLETE): EventKind.COMPLETED,
}


class ObservedRecord(NamedTuple):
    """A control record: its group, the observed event, and our header, if it has one."""

    group: str
    event: ObservedEvent
    header: Mapping[str, Any] | None


def observed_record(
    value: bytes | None,
    *,
    key: bytes | None,
    headers: Sequence[tuple[str, bytes]],
    group: str | None = None,
    at: float | None = None,
    bodies: bool = True,
    completion_timeout: float | None = None,
) -> ObservedRecord | None:
    """Return the content of a control record.

    :param group: skip records of other groups
    :param at: seconds of the epoch at which it counts as seen; by default the time given by its sender
    :param bodies: also read what only the body has: tables, partitions, valid-through
    :param completion_timeout: seconds after which an open cycle of a landing has failed
    """
    if value is None:
        return None
    try:
        number, micros, who, commit = glance(value)
        name = group if group is not None and who == group.encode() else who.decode()
        if (group is not None and name != group) or len(name) > GROUP_LENGTH:
            return None
        kind = _KINDS[number]
        if not 0 <= micros <= LATEST_MICROS:
            return None
        sender = key if key is None or len(key) <= KEY_LENGTH else sha256(key).digest()
        event = ObservedEvent(kind, micros / 1e6 if at is None else at, commit, sender)
        header = h.find(headers) if headers else None
        if header is not None and header.get("lane", LIVE) != LIVE:
            # A backfill does not show whether the live stream's commits get through.
            return None
        if header is not None:
            event = _ours(event, header, completion_timeout)
        elif bodies and kind is not EventKind.START:
            event = _body(event, value)
    except (WireError, *CORRUPTION):
        return None
    return ObservedRecord(name, event, header)


def group_of(value: bytes | None) -> str | None:
    """Return the group of a control record, if its name can be displayed."""
    if value is None:
        return None
    try:
        name = glance(value)[2].decode()
    except (WireError, *CORRUPTION):
        return None
    return name if name.isprintable() and len(name) <= SHOWN_LENGTH else None


def _body(event: ObservedEvent, value: bytes) -> ObservedEvent:
    match decode(value).payload:
        case DataWritten(table=table, data_files=files, delete_files=deletes):
            # The connector commits no file without rows.
            number = sum(1 for f in (*(files or ()), *(deletes or ())) if f.record_count)
            records = sum(f.record_count for f in files or ())
            return event._replace(table=_name(table), table_id=_id(table), files=number, records=records)
        case DataComplete(assignments=assignments):
            parts = assignments or ()
            answered = frozenset((a.topic, a.partition) for a in parts)
            return event._replace(partitions=answered, timed=all(a.timestamp is not None for a in parts))
        case CommitToTable(table=table):
            return event._replace(table=_name(table), table_id=_id(table))
        case CommitComplete(valid_through=through):
            if through is not None and through.year not in YEARS:
                raise ValueError(f"nothing is valid through {through.isoformat()}")
            return event._replace(valid_through=None if through is None else through.timestamp())
    return event


def _name(table: TableReference) -> str:
    return ".".join((*table.namespace, table.name))


def _id(table: TableReference) -> bytes | None:
    return None if table.table_uuid is None else table.table_uuid.bytes


def _ours(event: ObservedEvent, header: dict[str, Any], completion_timeout: float | None) -> ObservedEvent:
    """Return a landing's event: its header has everything that matters."""
    match header.get("kind"):
        case "open":
            deadline = None if completion_timeout is None else event.at + completion_timeout
            plan = header.get("plan", {})
            refused = refusal_from_json(plan)
            full = refused is not None and refused.budget_full
            why = str(plan.get("reason") or "") if refused is RefusalState.DEBT else ""
            return event._replace(
                deadline=deadline, full=full, deferred=why, covers=_raised(header), reads=_reads(plan)
            )
        case "failed":
            return event._replace(failed=str(header.get("failed")), beside=_beside(header), covers=_raised(header))
        case "report":
            return _reported(event, header["report"])
        case "published":
            # Ranges that a user gave up are published too.
            return event._replace(table=str(header["table"]), covers=coverage_from_json(header["ranges"]))
        case "closed":
            through = header["valid_through"]
            seconds = None if through is None else time_from_json(through).timestamp()
            return event._replace(valid_through=seconds, covers=_raised(header))
    return event


def _reads(plan: Mapping[str, Any]) -> tuple[float, tuple[Span, ...]] | None:
    """Return when a plan read the source, and its ranges; ``None`` if it has none, except if nothing is blocked."""
    spans = tuple(span for one in plan.get("slices", ()) for span in spans_from_json(one[2]))
    waits = not plan.get("ends") or "refusal" in plan or str(plan.get("reason")).startswith(WHY_BLOCKED)
    return (time_from_json(plan["asked_at"]).timestamp(), spans) if spans or not waits else None


def _reported(event: ObservedEvent, report: dict[str, Any]) -> ObservedEvent:
    """Return a range that failed or is over its budget; several are first retried one by one."""
    if report["blocked"] is None and report.get("failed") is None:
        return event
    spans = spans_from_json(report["spans"])
    event = event._replace(covers=Coverage.of((s.partition, s.range) for s in spans), alone=len(spans) == 1)
    if report["blocked"] is None:
        return event._replace(tried=str(report["failed"]))
    return event._replace(blocked=str(report["blocked"])) if event.alone else event._replace(covers=None)


def _beside(header: dict[str, Any]) -> tuple[str, ...]:
    """Return the tables that failed, if the data table was committed."""
    tables = tuple(map(str, header.get("tables", ())))
    return () if header.get("main") in (None, *tables) else tables


def _raised(header: dict[str, Any]) -> Coverage | None:
    ranges = [item for coverage, _ in header.get("raised", ()) for item in coverage_from_json(coverage).items()]
    return Coverage.of(ranges) if ranges else None


PROGRESS_KINDS = frozenset({EventKind.START, EventKind.COMPLETED})
"""Events that cause a new state at once. The others are many, and change no cycle."""
REMEMBERED = 256


def is_ours(record: ControlRecord) -> bool:
    return any(name == HEADER for name, _ in record.headers)


class VerifiedRecords:
    """The accepted records of each group of one topic."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, None]] = {}

    def __call__(self, record: ControlRecord, group: str, kind: EventKind, *, landing: bool) -> bool:
        """Return True if the record is accepted. ``landing``: the group is known as a landing."""
        if record.doubt is not None:
            return False
        if not is_ours(record):
            return not landing
        return kind not in PROGRESS_KINDS or self._is_new(group, hash(record.value))

    def _is_new(self, group: str, digest: int) -> bool:
        known = self._known.setdefault(group, {})
        if digest in known:
            return False
        known[digest] = None
        if len(known) > REMEMBERED:
            del known[next(iter(known))]
        return True
