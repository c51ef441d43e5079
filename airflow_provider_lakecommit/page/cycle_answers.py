# SPDX-License-Identifier: Apache-2.0
"""The status API's answers about cycles and open windows: group by group, slice by slice.

``read`` is the sum of the counts from ``landed`` to ``deleted``, all source offsets; ``rows`` are the written ones per
table. Names are shared with the command line (:mod:`~airflow_provider_lakecommit.core.status_fields`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from airflow_provider_lakecommit.core import account_fields, cycle_fields
from airflow_provider_lakecommit.page.observed_cycle import (
    FINISHED,
    CycleOutcome,
    ObservedCycle,
    SliceOutcome,
    SliceWork,
    under_way,
)

MOST_WINDOWS = 10
MOST_SLICES = 500
MOST_SPANS = 20
SIGNS = 8


class CycleMark(BaseModel):
    """A cycle as the strip draws it. A connector's ``landed`` are the records in its announced files."""

    commit_id: str
    began: datetime
    outcome: CycleOutcome
    landed: int
    files: int


class AccountAnswer(BaseModel):
    """Source offsets that were read, by disposition. ``landed`` gave rows."""

    read: int
    landed: int
    rejected: int
    filtered: int
    gaps: int
    skipped: int
    superseded: int = 0
    deleted: int = 0


class CycleAnswer(AccountAnswer, CycleMark):
    """A complete cycle. ``run`` belongs to this Airflow if ``dag`` is one of the landing's ``dags``; ``written`` is
    when the last of its slices was reported.
    """

    written: datetime | None
    ended: datetime | None
    dag: str
    run: str
    tables: list[str]
    planned: int
    groups: int
    slices: int
    slices_done: int
    slices_troubled: int
    redundant: int
    rows: dict[str, int]
    bytes: int
    left: int
    reason: str
    failures: int
    failed: str
    end_asked: str


class SliceAnswer(AccountAnswer):
    """A slice of an open window. ``attempt`` is the author of the report that counts, by the first letters of its id;
    ``reports`` are those of all attempts, including replicas; ``seconds`` are those of its work.
    """

    slice_id: str
    group: int
    outcome: SliceOutcome
    ranges: list[str]
    offsets: int
    reports: int
    attempt: str
    reported: datetime | None
    rows: int
    files: int
    bytes: int
    seconds: float | None
    reason: str


class GroupAnswer(BaseModel):
    """A partition group of a window: the work of one mapped task. A negative ``group`` holds slices that were cut
    again.
    """

    group: int
    slices: int
    slices_done: int
    slices_troubled: int
    offsets: int
    read: int
    bytes: int
    redundant: int
    reported: datetime | None


class WindowAnswer(AccountAnswer):
    """An open window. Of very many slices only the first are listed, problems before all; the groups count all."""

    commit_id: str
    began: datetime
    dag: str
    run: str
    planned: int
    slices_total: int
    slices_done: int
    redundant: int
    rows: dict[str, int]
    bytes: int
    failed: str
    end_asked: str
    groups: list[GroupAnswer]
    slices: list[SliceAnswer]


def mark_of(c: ObservedCycle, outcome: CycleOutcome) -> CycleMark:
    return CycleMark(commit_id=c.commit_id, began=moment(c.began), outcome=outcome, landed=c.records, files=c.files)


def cycle_of(c: ObservedCycle, outcome: CycleOutcome) -> CycleAnswer:
    found: dict[str, Any] = {
        **c._asdict(),
        **cycle_fields(commit_id=c.commit_id, dag=c.dag, run=c.run),
        **account_fields(c.counts),
        "landed": c.records,
        "began": moment(c.began),
        "outcome": outcome,
        "written": time_or_none(c.last_report),
        "ended": time_or_none(c.ended),
        "slices_done": c.done,
        "slices_troubled": c.undone,
        "rows": dict(c.rows),
    }
    return CycleAnswer(**found)


def windows_of(pairs: Sequence[tuple[ObservedCycle, CycleOutcome]]) -> list[WindowAnswer]:
    """Return open windows with slices, newest first."""
    found = [c for c in reversed(under_way(tuple(c for c, _ in pairs))) if c.work]
    return [_window(c) for c in found[:MOST_WINDOWS]]


def _window(c: ObservedCycle) -> WindowAnswer:
    work = list(c.work.values())
    groups: dict[int, list[SliceWork]] = {}
    for w in work:
        groups.setdefault(w.group, []).append(w)
    by_need = sorted(work, key=lambda w: (not w.reason, w.group, w.spans[:1]))
    return WindowAnswer(
        **cycle_fields(commit_id=c.commit_id, dag=c.dag, run=c.run),
        **account_fields(c.counts),
        began=moment(c.began),
        planned=c.planned,
        slices_total=c.slices,
        slices_done=c.done,
        redundant=c.redundant,
        rows=dict(c.rows),
        bytes=c.bytes,
        failed=c.failed,
        end_asked=c.end_asked,
        groups=[_group(number, groups[number]) for number in sorted(groups)],
        slices=[_slice(w) for w in by_need[:MOST_SLICES]],
    )


def _group(number: int, work: Sequence[SliceWork]) -> GroupAnswer:
    reported = [w.at for w in work if w.at is not None]
    return GroupAnswer(
        group=number,
        slices=len(work),
        slices_done=sum(1 for w in work if w.outcome in FINISHED),
        slices_troubled=sum(1 for w in work if w.reason),
        offsets=sum(len(s) for w in work for s in w.spans),
        read=sum(w.counts.total for w in work if w.outcome in FINISHED),
        bytes=sum(w.bytes for w in work),
        redundant=sum(max(0, w.reports - 1) for w in work),
        reported=time_or_none(max(reported, default=None)),
    )


def _slice(w: SliceWork) -> SliceAnswer:
    found: dict[str, Any] = {
        **w._asdict(),
        **account_fields(w.counts),
        "slice_id": str(w.slice_id),
        "ranges": [str(s) for s in w.spans[:MOST_SPANS]],
        "offsets": sum(len(s) for s in w.spans),
        "attempt": w.attempt.hex[:SIGNS] if w.attempt else "",
        "reported": time_or_none(w.at),
    }
    return SliceAnswer(**found)


def time_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
