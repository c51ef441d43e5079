# SPDX-License-Identifier: Apache-2.0
"""Format the effects of a decision: previews as lines and as plain values.

Contract: the command line and the operators use these. A preview as plain values passes through JSON unchanged, so a
user can approve it elsewhere and later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.core import BACKFILL, LAND, Coverage
from airflow_provider_lakecommit.operations.decisions.ledger_init import BEHIND

if TYPE_CHECKING:
    from airflow_provider_lakecommit.operations.decisions.assertion import AssertedTable, Assertion
    from airflow_provider_lakecommit.operations.decisions.section_init import InitPreview, InitTable


def init_text(preview: InitPreview) -> Iterable[str]:
    """Format the effect of a decision on a ledger as text."""
    if preview.unknown:
        yield f"BEGINS a new landing: {preview.unknown}"
    for t in preview.tables:
        ends = ", ".join(f"{p} {o}" for p, o in t.ends.items())
        yield f"{t.table}: would {'begin' if t.begins else 'continue'} at {ends}"
        yield from (f"  {what}: {_counted(ranges, t.record_bytes)}{more}" for what, ranges, more in _parts(t) if ranges)
        if t.keyed and t.again:
            yield "  until they are read again, rows of their keys show OLDER states, and deleted rows are back"
            if t.not_moved_back:
                others = ", ".join(map(str, t.not_moved_back))
                yield f"  keys that also have records in {others} may STAY so: go back in these partitions, too"
        if t.lost:
            yield f"  LOSES, reported and no longer readable: {t.lost}"
        if t.reported:
            yield f"  voids reported slices: {_counted(t.reported)}"
        if t.sink:
            yield (
                f"  TAKES OVER from connector {t.sink}, which must be stopped: its topic was recreated, and it is "
                "unknown what the connector has landed of the new one"
            )
        if t.behind:
            yield f"  {BEHIND.format(_counted(t.behind))}"


def _parts(t: InitTable) -> Iterable[tuple[str, Coverage, str]]:
    return (
        ("publishes first, because the source no longer has it", t.published, ""),
        ("GIVES UP, never read", t.given_up, ""),
        (f"leaves to backfill {t.lane}, which `{BACKFILL}` lands", t.filled, ""),
        ("reads AGAIN, although its rows are in the table", t.again, ""),
        ("does NOT read again what was in this table before", t.not_again, ""),
        ("goes BACK over", t.back, ": now other records than the landed ones"),
    )


def init_to_dict(t: InitTable) -> dict[str, Any]:
    """Return the same of one table, for JSON."""
    return {
        "table": t.table,
        "next": {str(p): o for p, o in t.ends.items()},
        "published_first": t.published.to_dict(),
        "given_up": t.given_up.to_dict(),
        "back": t.back.to_dict(),
        "again": t.again.to_dict(),
        "older": [str(p) for p in t.not_moved_back] if t.keyed and t.again else None,
        "filled": t.filled.to_dict(),
        "lane": t.lane or None,
        "bytes": {
            what: len(ranges) * t.record_bytes
            for what, ranges in (("given_up", t.given_up), ("again", t.again), ("filled", t.filled))
        },
        "stays": t.behind.to_dict(),
        "voided": t.reported.to_dict(),
        "not_again": t.not_again.to_dict(),
        "lost": t.lost,
        "connector": t.sink or None,
    }


def assertion_text(asserted: Assertion) -> Iterable[str]:
    """Format all pending assertions as text."""
    for t in asserted.tables:
        reason = f" ({t.state.reason})" if t.state.reason else ""
        yield f"{t.table}: ledger {t.state.condition}{reason}; asserted by {t.source}"
        if t.rows is not None:
            yield f"  has {t.rows} rows now, of all writers"
        for p in sorted(t.section.starts):
            yield f"  {p}: landed {t.section.covered[p]}, continues at {t.section.end(p)}"
        if t.again:
            yield f"  read AGAIN, though the ledger or the control log has it: {t.again}: duplicated if its rows exist"
        if t.never_read:
            yield f"  never read, though neither ledger nor log has it: {t.never_read}: lost if its rows are missing"
        if t.unpublished:
            yield (
                f"  is REPORTED and not published, and never will be: {t.unpublished}: lost if its rows are missing; "
                f"if the ledger is in order, publish it with `{LAND}`"
            )
        if t.voided:
            yield f"  voids reported slices, so they are read again: {t.voided}"
        for text in (*t.own_lost, *t.others_lost):
            yield f"  reported, not published, and no longer in the source: {text}"


def assertion_to_dict(t: AssertedTable) -> dict[str, Any]:
    """Format the pending assertion for one table for JSON."""
    return {
        "table": t.table,
        "from": t.source,
        "condition": str(t.state.condition),
        "reason": t.state.reason,
        "rows": t.rows,
        "lost": "; ".join(t.own_lost),
        "before": t.before.to_dict(),
        "announced": t.announced.to_dict(),
        "reported": t.reported.to_dict(),
        "attested": t.section.covered.to_dict(),
        "next": {str(p): t.section.end(p) for p in sorted(t.section.starts)},
        "read_again": t.again.to_dict(),
        "never_read": t.never_read.to_dict(),
    }


def _counted(coverage: Coverage, record_bytes: int = 0) -> str:
    size = f", about {len(coverage) * record_bytes} bytes" if record_bytes else ""
    return f"{coverage} ({len(coverage)} offsets{size})"
