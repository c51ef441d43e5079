# SPDX-License-Identifier: Apache-2.0
"""`reset offsets` and `reset hard`: where a landing continues.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.decisions.operation`, over
:mod:`~airflow_provider_lakecommit.operations.decisions.ledger_init` and
:mod:`~airflow_provider_lakecommit.operations.decisions.delete_back`. Nothing beyond the preview is given up: `latest`
is the end of the topic at that time.

Failure story: changes between preview and action are found before anything is written, and named.

With deletion of rows, those that are landed between
preview and action are deleted too, because they come after the new start and are read again. Refused is everything that
was not previewed: rows before those ranges, offsets that the source has removed since, or another topic.

After a kill some tables may be done and others not; the same task does the rest, even if the landing
continues after offsets that the source has removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import RESET_HARD, RESET_OFFSETS, Coverage, RangeSet, spoken
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations import lane_request, parse_offsets, parse_partition, parse_start, ranges_of
from airflow_provider_lakecommit.operators.decisions.operation import (
    ApprovedOperation,
    NothingToDoError,
    Preview,
    not_as_previewed,
)
from airflow_provider_lakecommit.operators.decisions.reset_assert import others_of
from airflow_provider_lakecommit.operators.tasks.arguments import is_stated, texts_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.operations import DeleteBack, InitPreview, Way


@dataclass(frozen=True, kw_only=True)
class ResetOffsets(ApprovedOperation):
    """Start or restart the ledger of a landing's tables, under a new epoch.

    :param start: where reading continues: `earliest`, `latest`, a time in ISO form, or `topic:0=15,topic:1=9`;
        other partitions are unchanged
    :param partitions: with a time, `earliest` or `latest`: only these, for example `topic:3`; several as a list, or
        with commas
    :param fill: leave skipped offsets to this backfill, for a ``BackfillOperator`` with that ``lane``
    :param delete: go back over landed offsets, and delete their rows in the same snapshot: the tables must have
        metadata columns
    :param fewer: with ``delete``: allow this although other writers have already deleted some of these rows
    :param again: go back over landed offsets; their rows are duplicated
    :param others: if a table's ledger is lost: whether it has rows of other landings, `present` or `missing`
    :param give_up_reported: also reported slices that cannot be published, and that the source has removed
    """

    name: ClassVar[str] = spoken(RESET_OFFSETS)
    start: str
    partitions: str | Sequence[str] | None = None
    fill: str = ""
    again: bool = False
    delete: bool = False
    fewer: bool = False
    others: str = "ask"
    give_up_reported: bool = False

    def check(self, landing: Landing) -> None:
        """Check where reading continues."""
        others_of(self.others)
        if self.delete and (self.again or self.fill):
            raise SpecError("LC8316", "`delete` deletes the rows: leave out `again` and `fill`")
        if is_stated(self.start):
            parse_start(self.start, "start:")

    def preview(self, session: LandingSession) -> Preview:
        """Return where each table would continue, and what that gives up."""
        if self.delete:
            return _preview_deletion(session, self.start, self._way(), fewer=self.fewer)
        from airflow_provider_lakecommit.operations import init_preview

        preview = init_preview(session, parse_start(self.start, "start:"), self._way())
        return self._values(session, preview), list(preview.lines())

    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Set it, giving up no more than was previewed."""
        if self.delete:
            return _delete_as_previewed(session, agreed, self.start, self._way(), decision, fewer=self.fewer)
        from airflow_provider_lakecommit.committer import OtherSections
        from airflow_provider_lakecommit.operations import init_preview, ledger_init

        if agreed.get("from") != self.start:
            raise not_as_previewed(f"start={self.start!r}")
        stated = parse_start(self.start, "start:")
        if stated == "latest" and not self.partitions:
            # The end of the topic at the time of the preview: later records were not approved to be given up.
            stated = parse_offsets(",".join(f"{p}={o}" for p, o in agreed["tables"][0]["next"].items()), "")
        preview = init_preview(session, stated, self._way())
        if more := _more(self._values(session, preview), agreed):
            raise not_as_previewed("; ".join(more))
        return ledger_init(
            session,
            stated,
            self._way(),
            agreed=preview,
            give_up_reported=self.give_up_reported,
            others=OtherSections(self.others),
            decision=decision,
        )

    def _way(self) -> Way:
        from airflow_provider_lakecommit.operations import Way

        only = {parse_partition(text) for text in texts_of(self.partitions)}
        return Way(only=only, fill=lane_request(name=self.fill).name if self.fill else "", again=self.again)

    def _values(self, session: LandingSession, preview: InitPreview) -> dict[str, Any]:
        ids = {p.topic: p.topic_id for t in preview.tables for p in t.ends}
        tables = [t.to_dict() for t in preview.tables]
        return {"landing": session.landing.name, "from": self.start, "topic_ids": ids, "tables": tables}


@dataclass(frozen=True, kw_only=True)
class ResetHard(ApprovedOperation):
    """Delete all rows of a landing, and restart it where its declaration says.

    The tables must have metadata columns, which identify the landing of a row.

    :param fewer: allow this although other writers have already deleted some of these rows
    """

    name: ClassVar[str] = spoken(RESET_HARD)
    fewer: bool = False

    def preview(self, session: LandingSession) -> Preview:
        """Return the rows to delete, and what cannot be read again."""
        return _preview_deletion(session, None, None, fewer=self.fewer)

    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Delete them, giving up no more than was previewed."""
        return _delete_as_previewed(session, agreed, None, None, decision, fewer=self.fewer)


def _more(now: Mapping[str, Any], agreed: Mapping[str, Any]) -> list[str]:
    """Return what a new ledger would give up beyond the preview."""
    if now["topic_ids"] != agreed.get("topic_ids"):
        return ["the topic was recreated, or another one is read"]
    before = {t["table"]: t for t in agreed["tables"]}
    found = []
    for t in now["tables"]:
        previewed = before.get(t["table"], {})
        for what in ("given_up", "back", "again"):
            more = _beyond(t[what], previewed.get(what, {}))
            found += [f"{t['table']} {what.replace('_', ' ')} {text}" for text in more]
        if t["lost"] and t["lost"] != previewed.get("lost"):
            found.append(f"{t['table']} loses {t['lost']}")
    return found


BEYOND = 1 << 62


def _preview_deletion(session: LandingSession, start: str | None, way: Way | None, *, fewer: bool) -> Preview:
    """Return the rows to delete.

    :param start: the first offsets; ``None``: all rows of the landing
    """
    from airflow_provider_lakecommit.operations import check_rows

    found = _preview(session, start, way)
    if not found.deletes and start is not None:
        raise NothingToDoError(f"the tables have no rows of landing {session.landing.name}: no row is deleted")
    check_rows(found.tables, fewer=fewer)
    return {"landing": session.landing.name, "from": start, **_values(found)}, list(found.lines())


def _delete_as_previewed(
    session: LandingSession,
    agreed: Mapping[str, Any],
    start: str | None,
    way: Way | None,
    decision: Decision,
    *,
    fewer: bool,
) -> dict[str, Any]:
    """Delete what the preview showed."""
    from airflow_provider_lakecommit.operations import delete_back

    if "topic_ids" not in agreed or agreed.get("from") != start:
        raise not_as_previewed(f"start={start!r}")
    found = _preview(session, start, way)
    if more := list(_deleted_more(_values(found), agreed)):
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


def _deleted_more(now: Mapping[str, Any], agreed: Mapping[str, Any]) -> Iterator[str]:
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
        yield from (f"{what} {text}" for text in _beyond(now[what], agreed[what]))


def _beyond(now: Mapping[str, Any], agreed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ranges that the preview did not have, as text."""
    allowed = ranges_of(agreed)
    for (topic, number), ranges in ranges_of(now).items():
        if more := ranges - allowed.get((topic, number), RangeSet()):
            yield f"{topic}[{number}] {more}"
