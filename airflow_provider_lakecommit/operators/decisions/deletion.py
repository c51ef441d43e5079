# SPDX-License-Identifier: Apache-2.0
"""Going back with deletion of rows, as tasks preview and apply it.

Contract: thin over :mod:`~airflow_provider_lakecommit.operations.reset.delete_back`. Rows that are landed between
preview and action are deleted too, because they come after the new start and are read again. Refused is everything that
was not previewed: rows before those ranges, offsets that the source has removed since, or another topic.

Failure story: after a kill some tables may be done and others not; the same task does the rest, even if the landing
continues after offsets that the source has removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.core import RangeSet
from airflow_provider_lakecommit.operations import parse_start, ranges_of
from airflow_provider_lakecommit.operators.decisions.operation import NothingToDoError, Preview, not_as_previewed

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession
    from airflow_provider_lakecommit.operations import DeleteBack, Way

__all__ = ["delete_as_previewed", "preview_deletion"]

BEYOND = 1 << 62


def preview_deletion(session: LandingSession, start: str | None, way: Way | None, *, fewer: bool) -> Preview:
    """Return the rows to delete.

    :param start: the first offsets; ``None``: all rows of the landing
    :param fewer: accept tables with fewer rows than were landed
    :raises NothingToDoError: nothing is landed
    :raises LakecommitError: the rows to delete cannot be identified
    """
    from airflow_provider_lakecommit.operations import check_rows

    found = _preview(session, start, way)
    if not found.deletes and start is not None:
        raise NothingToDoError(f"the tables have no rows of landing {session.landing.name}: no row is deleted")
    check_rows(found.tables, fewer=fewer)
    return Preview(values={"landing": session.landing.name, "from": start, **_values(found)}, lines=list(found.lines()))


def delete_as_previewed(
    session: LandingSession,
    agreed: Mapping[str, Any],
    start: str | None,
    way: Way | None,
    decision: Decision,
    *,
    fewer: bool,
) -> dict[str, Any]:
    """Apply the preview.

    :param agreed: the values of :func:`preview_deletion`
    :raises DecisionError: the effect would now be another one
    :raises LakecommitError: it cannot be done
    """
    from dataclasses import replace

    from airflow_provider_lakecommit.core import Coverage
    from airflow_provider_lakecommit.operations import delete_back

    if "topic_ids" not in agreed or agreed.get("from") != start:
        raise not_as_previewed(f"start={start!r}")
    found = _preview(session, start, way)
    if more := list(_more(_values(found), agreed)):
        raise not_as_previewed("; ".join(more))
        # If an attempt was killed after deleting the rows, the landing's new start must still be set.
    known = {(p.topic, p.partition): p for p in session.source.watermarks().partitions}
    previewed = {known[p]: ranges for p, ranges in ranges_of(agreed["removed"]).items() if p in known}
    return delete_back(session, replace(found, removed=found.removed | Coverage(previewed)), decision, fewer=fewer)


def _preview(session: LandingSession, start: str | None, way: Way | None) -> DeleteBack:
    from airflow_provider_lakecommit.operations import PLAIN, delete_preview

    return delete_preview(session, None if start is None else parse_start(start, "start:"), way or PLAIN)


def _values(found: DeleteBack) -> dict[str, Any]:
    ids = {p.topic: p.topic_id for t in found.tables for p in t.replaced.ranges.parts}
    return {"topic_ids": ids, **found.to_dict()}


def _more(now: Mapping[str, Any], agreed: Mapping[str, Any]) -> Iterator[str]:
    """Return what would be deleted or given up beyond the preview."""
    previewed_ids = agreed["topic_ids"]
    if any(previewed_ids.get(topic, its_id) != its_id for topic, its_id in now["topic_ids"].items()):
        yield "the topic was recreated"
    before = {t["table"]: ranges_of(t["ranges"]) for t in agreed["tables"]}
    for t in now["tables"]:
        for p, ranges in ranges_of(t["ranges"]).items():
            previewed = before.get(t["table"], {}).get(p, RangeSet())
            first = previewed.ranges[0].start if previewed else BEYOND
            if more := ranges - RangeSet.of((first, BEYOND)):
                yield f"{t['table']} deletes {p[0]}[{p[1]}] {more}"
    for what in ("removed", "before"):
        allowed = ranges_of(agreed[what])
        for p, ranges in ranges_of(now[what]).items():
            if more := ranges - allowed.get(p, RangeSet()):
                yield f"{what} {p[0]}[{p[1]}] {more}"
