# SPDX-License-Identifier: Apache-2.0
"""Decide about windows on a branch that ``main`` lacks: `lakecommit reset blocked --release`, or `--drop`.

Contract: *release* lets the next commit publish them without their checks, so that its run notifies the consumers of
the table. *Drop* puts the branch back on ``main``: the next run reads their records again, by the rules of then. Both
record the decision in the ledger, and do exactly what the preview showed: a branch that has moved since is refused.

Failure story: each table is decided in its own commit. After a kill between two, the next preview shows the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.core import (
    PAUSE,
    RESET_BLOCKED,
    RESET_OFFSETS,
    RESUME,
    Coverage,
    Decision,
    removed,
    spoken,
)
from airflow_provider_lakecommit.cycle import LandingSession, unpublished_of
from airflow_provider_lakecommit.exceptions import LedgerError, SpecError
from airflow_provider_lakecommit.iceberg import LedgerState, SnapshotRecord, read_ledger, release, restart
from airflow_provider_lakecommit.operations.decisions.operation import NothingToDoError, Proposal, not_as_previewed
from airflow_provider_lakecommit.operations.decisions.requests import ResetBlocked
from airflow_provider_lakecommit.operations.decisions.stated import is_stated


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """What a table's branch has and ``main`` lacks: ``rows`` and ``ranges`` of so many ``snapshots``. The source no
    longer has the ranges ``lost``. ``apart`` is what prevents ``main`` from moving there, apart from checks. ``cut``:
    further snapshots have expired, whose rows are not counted. ``undone`` are decisions that only the branch has.
    """

    table: str
    head_id: int | None
    snapshots: int
    rows: int
    ranges: Coverage
    lost: Coverage
    since: datetime | None
    apart: str
    cut: bool = False
    undone: tuple[Decision, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "head": self.head_id,
            "snapshots": self.snapshots,
            "rows": self.rows,
            "ranges": str(self.ranges),
            "lost": len(self.lost),
            "apart": self.apart,
            "undone": [str(d) for d in self.undone],
        }


def _lines(found: Sequence[HeldBack], branch: str, *, drop: bool) -> Iterator[str]:
    if not found:
        yield f"main has all of branch {branch}, or gets it by the next run: there is nothing to decide"
    for t in found:
        since = f", since {t.since:%Y-%m-%d %H:%M}" if t.since else ""
        many = f"at least {t.rows}" if t.cut else t.rows
        yield (
            f"{t.table}: main lacks {many} rows in {t.snapshots} snapshots of branch {branch}{since}: "
            f"{t.ranges or 'no range'}"
        )
        if t.apart:
            yield f"  {t.apart}"
        if not drop:
            yield "  the next run PUBLISHES them without their checks"
            continue
        yield "  DROPS them from the branch; the next run reads their records again"
        yield from (f"  UNDOES the decision of {d}" for d in t.undone)
        if t.lost:
            yield (
                f"  LOSES {len(t.lost)} records, which the source no longer has: {t.lost}. The next run asks where "
                f"to go on: `{RESET_OFFSETS} SPEC --from earliest`"
            )


def _values(found: Sequence[HeldBack], branch: str, *, drop: bool) -> dict[str, Any]:
    return {"branch": branch, "drop": drop, "tables": [t.to_dict() for t in found]}


def audit_preview(session: LandingSession, *, drop: bool) -> tuple[HeldBack, ...]:
    """Return the tables that a decision is about; writes nothing.

    :param drop: instead of a release
    :raises LedgerError: the landing has no checks
    """
    landing = session.landing
    if not landing.checks:
        raise LedgerError(
            "LC7055", f"landing {landing.name} has no `publish.checks`, so no window waits on a branch for a decision"
        )
    marks = session.source.watermarks(missing_ok=True).partitions if drop else {}
    out = []
    for name, (table, found) in unpublished_of(session).items():
        if not drop and not found.changes_rows and found.released_id is not None:
            # Decided already: the next run publishes it.
            continue
        own = [r for r in found.records if r.landing == landing.name]
        ranges = Coverage.union(r.ranges for r in own if r.publishes)
        out.append(
            HeldBack(
                table=name,
                head_id=found.head_id,
                snapshots=len(found.snapshots),
                rows=found.rows,
                ranges=ranges,
                lost=removed(ranges, marks) if drop else Coverage(),
                since=min((r.at for r in own), default=None),
                apart=found.apart or found.rolled_back,
                cut=found.cut,
                undone=_undone(found.records, read_ledger(table.metadata, MAIN_BRANCH)) if drop else (),
            )
        )
    return tuple(out)


def _undone(records: Sequence[SnapshotRecord], main: LedgerState) -> tuple[Decision, ...]:
    """Return the decisions that the ledger of ``main`` lacks; a paused landing stays paused."""
    stays = (spoken(PAUSE), spoken(RESUME), spoken(RESET_BLOCKED))
    new = dict.fromkeys(d for r in reversed(records) for d in r.decisions if d not in main.decisions)
    return tuple(d for d in new if not d.command.startswith(stays))


def preview(session: LandingSession, request: ResetBlocked) -> tuple[HeldBack, ...]:
    return audit_preview(session, drop=_drops(request))


def _drops(request: ResetBlocked) -> bool:
    return request.way == "drop"


def propose(session: LandingSession, request: ResetBlocked) -> Proposal:
    values = request.values()
    if any(is_stated(chosen) and chosen for chosen in (request.partitions, request.ranges)):
        raise SpecError("LC8362", f"how={request.how!r} is about all refused rows: leave out partitions and ranges")
    found, branch, drop = preview(session, request), session.landing.branch, _drops(request)
    lines = [*_lines(found, branch, drop=drop)]
    if not found:
        raise NothingToDoError("; ".join(lines))
    return {**values, **_values(found, branch, drop=drop)}, lines


def confirm(session: LandingSession, request: ResetBlocked, agreed: Mapping[str, Any]) -> tuple[HeldBack, ...]:
    """Return the previewed decision about what ``main`` still lacks.

    :raises LakecommitError: ``main`` lacks snapshots of other tables by now, or the source more of their records
    """
    request.check_agreed(agreed)
    now = preview(session, request)
    previewed = {t["table"]: t for t in agreed["tables"]}
    if new := [t.table for t in now if t.table not in previewed]:
        raise LedgerError("LC7056", f"{', '.join(new)}: main lacks snapshots that were not in the preview: repeat it")
    if more := [f"{t.table} loses {t.lost}" for t in now if len(t.lost) > previewed[t.table]["lost"]]:
        raise not_as_previewed("; ".join(more))
    return tuple(replace(t, head_id=previewed[t.table]["head"]) for t in now)


def apply(
    session: LandingSession, request: ResetBlocked, found: Sequence[HeldBack], decision: Decision
) -> dict[str, Any]:
    return decide_audit(session, found, decision, drop=_drops(request))


def decide_audit(
    session: LandingSession, found: Sequence[HeldBack], decision: Decision, *, drop: bool
) -> dict[str, Any]:
    """Do what the preview showed.

    :raises LakecommitError: a branch has moved since; or ``main`` cannot take it
    """
    landing = session.landing
    decide, verb = (restart, "drops") if drop else (release, "releases")
    for t in found:
        decide(
            session.tables,
            t.table,
            landing.branch,
            landing=landing.name,
            head_id=t.head_id,
            decision=replace(decision, what=f"{verb} {t.rows} rows of branch {landing.branch}: {t.ranges}"),
        )
    return _values(found, landing.branch, drop=drop)
