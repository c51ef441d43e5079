# SPDX-License-Identifier: Apache-2.0
"""Expire old snapshots of a landing's tables, on request.

Contract: only snapshots of the branch's own past that are older than the ledger, and that no branch or tag needs, see
:mod:`~airflow_provider_lakecommit.iceberg.ledger.trim`; of any writer. So the ledger, and the snapshots between the
head and it, stay. Data files stay: a sweep removes those of this landing that no snapshot has any more, and the engines
of other writers theirs.

Failure story: tables fail independently. A request that fails, or whose outcome is unknown, is reported; the same
command does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.iceberg import expire_older, old_snapshots

SNAPSHOT_AGE = timedelta(days=7)
"""Younger snapshots stay unless less is requested: readers may still use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredSnapshots:
    """The result for one table: how many snapshots may be expired, the newest one's time, and how many were."""

    table: str
    old: int = 0
    newest: datetime | None = None
    expired: int = 0
    left: int = 0
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "old": self.old,
            "newest": None if self.newest is None else self.newest.isoformat(),
            "expired": self.expired,
            "left": self.left,
            **({"error": self.error} if self.error else {}),
        }


def expire(
    session: LandingSession, *, older_than: timedelta, keep: int = 0, remove: bool
) -> Iterator[ExpiredSnapshots]:
    """Expire old snapshots, table by table.

    :param older_than: by the clock of the committing process
    :param keep: number of the newest snapshots to keep
    :param remove: expire; otherwise only return what would be expired
    """
    for name in session.landing.tables:
        try:
            yield _expire(session, name, older_than, keep, remove)
        except LakecommitError as e:
            yield ExpiredSnapshots(table=name, error=str(e))


def _expire(session: LandingSession, name: str, older_than: timedelta, keep: int, remove: bool) -> ExpiredSnapshots:
    branch, audited = session.landing.branch, bool(session.landing.checks)
    before_ms = int((session.now() - older_than).timestamp() * 1000)
    loaded = session.tables.load(name)
    old = old_snapshots(loaded, branch, before_ms=before_ms, keep=keep, audited=audited)
    expired = 0
    if old and remove:
        expired = expire_older(session.tables, name, branch, before_ms=before_ms, keep=keep, audited=audited)
    short = remove and expired < len(old)
    return ExpiredSnapshots(
        table=name,
        old=len(old),
        newest=max((datetime.fromtimestamp(s.timestamp_ms / 1000, UTC) for s in old), default=None),
        expired=expired,
        left=len(loaded.metadata.snapshots) - expired,
        error=f"only {expired} of {len(old)} were expired, because of other commits or a catalog error; run it again"
        if short
        else "",
    )
