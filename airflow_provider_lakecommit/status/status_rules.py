# SPDX-License-Identifier: Apache-2.0
"""Decide whether a landing is healthy: the final verdict of `lakecommit status`, for scripts and alerts.

The first reason that applies decides, the worst first. Unknown is not healthy: a landing that never ran, a missing
topic, an unknown age are *behind*.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from airflow_provider_lakecommit.core import CLOCKS_APART
from airflow_provider_lakecommit.cycle import first_of
from airflow_provider_lakecommit.iceberg import Condition
from airflow_provider_lakecommit.status.partition_status import OPEN_FOR
from airflow_provider_lakecommit.status.status import Status

IN_ORDER = frozenset({str(Condition.PRESENT), str(Condition.ABSENT), "missing"})
"""Conditions of a table's ledger that need no decision."""


class StatusVerdict(StrEnum):
    """The state of a landing, worst first."""

    STALLED = "stalled"
    BLOCKED = "blocked"
    BEHIND = "behind"
    WELL = "well"


def _needs_decision(found: Status) -> str | None:
    tables = [f"{t.table}: its ledger is {t.condition}" for t in found.tables if t.condition not in IN_ORDER]
    removed = [
        f"{p.removed} offsets of {p.partition} were removed from the source before they were landed"
        for p in found.partitions
        if p.removed
    ]
    # The scan of the logs is newer than the newest cycle.
    stopped = [f"not all is planned: {why}" for why in [found.diverged or found.stopped] if why]
    texts = [*(f"{b} is blocked" for b in found.blocked), *tables, *removed, *stopped]
    more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
    return f"{texts[0]}{more}" if texts else None


def _unknown(found: Status) -> str | None:
    if found.missing_topics:
        return f"{first_of([f'topic {name}' for name in found.missing_topics])} missing"
    nothing = [t.table for t in found.tables if t.condition != str(Condition.PRESENT)]
    return f"nothing was landed in {nothing[0]} yet" if nothing else None


def _unpublished(found: Status) -> str | None:
    waits = [f"{t.unpublished} rows of {t.table}" for t in found.tables if t.unpublished]
    return f"{', '.join(waits)} wait on their branch: main lacks them until their checks pass" if waits else None


def _blocked_by_transactions(found: Status) -> str | None:
    stale = [p for p in found.partitions if p.stale_transaction]
    if not stale:
        return None
    first, more = stale[0], f", and in {len(stale) - 1} more partitions" if len(stale) > 1 else ""
    return (
        f"a transaction has blocked {first.open_transactions} offsets of {first.partition} from {first.stable} on for "
        f"more than {OPEN_FOR.total_seconds() / 60:.0f} minutes{more}: nothing after it is landed until it ends; "
        "find it with `kafka-transactions.sh find-hanging` and end it with `abort`"
    )


def _late(found: Status, lag: int | None, age: timedelta | None) -> str | None:
    if lag is None and age is not None:
        return None
    most = lag or 0
    limit = f", --max-lag is {most}" if lag is not None else ""
    return f"{found.lag} offsets are not landed{limit}" if found.lag > most else None


def _old(found: Status, limit: timedelta | None) -> str | None:
    if limit is None:
        return None
    if found.valid_through is None:
        return f"the tables' valid-through time is unknown, --max-age is {limit}"
    age = found.at - found.valid_through
    if age < -CLOCKS_APART:
        return f"the tables are valid through {found.valid_through.isoformat()}, in the future: a clock is wrong"
    if age <= limit:
        return None
    return f"the tables are valid through {found.valid_through.isoformat()}, --max-age is {limit}"


def status_verdict(found: Status, lag: int | None = None, age: timedelta | None = None) -> tuple[StatusVerdict, str]:
    """Return the verdict, and its reason unless all is well.

    :param lag: accepted number of offsets; without this and `age`, nothing may be unread
    :param age: accepted age of the valid-through time
    """
    reasons = (
        (StatusVerdict.STALLED, found.stalled or None),
        (StatusVerdict.BLOCKED, _needs_decision(found)),
        (StatusVerdict.BEHIND, _unknown(found)),
        (StatusVerdict.BEHIND, _unpublished(found)),
        (StatusVerdict.BEHIND, _blocked_by_transactions(found)),
        (StatusVerdict.BEHIND, _late(found, lag, age)),
        (StatusVerdict.BEHIND, _old(found, age)),
    )
    return next(((verdict, why) for verdict, why in reasons if why is not None), (StatusVerdict.WELL, ""))
