# SPDX-License-Identifier: Apache-2.0
"""`lakecommit reset offsets` and its kin as tasks: where a landing goes on, shown by one and done by another after a
person's word.

Contract: thin over :mod:`~airflow_provider_lakecommit.repair.ledger_init` and
:mod:`~airflow_provider_lakecommit.repair.delete_back`; what a task needs of a person is in
:mod:`~airflow_provider_lakecommit.operators.decision`. Nothing beyond what was shown is given up: `latest` is where the
topic ended then. The other two of the family are here by name: blocked ranges, and what tables hold.

Failure story: what has changed between showing and doing is found before anything is written, and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core.offsets import RangeSet
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.lanes.asked import lane_asked
from airflow_provider_lakecommit.operators.attest import OTHERS, ResetAttestOperator, others_of
from airflow_provider_lakecommit.operators.decision import Shown, not_as_shown
from airflow_provider_lakecommit.operators.deletion import delete_as_shown, show_deletion
from airflow_provider_lakecommit.operators.reset_blocked import ResetBlockedOperator
from airflow_provider_lakecommit.operators.reset_task import ResetTask
from airflow_provider_lakecommit.repair.stated import parse_offsets, parse_partition, parse_start, ranges_of
from airflow_provider_lakecommit.reset_commands import RESET_HARD, RESET_OFFSETS
from airflow_provider_lakecommit.tasks.arguments import is_stated, texts_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core.decisions import Decision
    from airflow_provider_lakecommit.repair.init_preview import InitPreview
    from airflow_provider_lakecommit.repair.word import Way
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["OTHERS", "ResetAttestOperator", "ResetBlockedOperator", "ResetHardOperator", "ResetOffsetsOperator"]


class ResetOffsetsOperator(ResetTask):
    """Begin the ledger of a landing's tables, or begin it anew, under a new epoch.

    :param start: where reading goes on: `earliest`, `latest`, a time in ISO form, or `topic:0=15,topic:1=9`; partitions
        that are not named keep their place (templated)
    :param partitions: with a time, `earliest` or `latest`: only these, as `topic:3`; several as a list, or with commas
        (templated)
    :param fill: the lane that is left what it goes forward over, for a ``BackfillOperator`` with that ``lane``
        (templated)
    :param delete: go back over what is landed, and delete its rows in the same snapshot: the tables must have metadata
        columns
    :param fewer: with rows to delete: a table has fewer of them than were landed, since others deleted some
    :param again: go back over what is landed, too: it is read again, and its rows are in the tables twice
    :param others: where a table's ledger is lost: whether rows of other landings are in it, `there` or `gone`
    :param give_up_reported: also what is reported, cannot be published, and the source has no more

    .. seealso:: :ref:`howto/operator:ResetOffsetsOperator`
    """

    resets: ClassVar[str] = RESET_OFFSETS
    asks: ClassVar[Sequence[str]] = ("start", "partitions", "fill")

    def __init__(
        self,
        *,
        start: str,
        partitions: str | Sequence[str] | None = None,
        fill: str = "",
        again: bool = False,
        delete: bool = False,
        fewer: bool = False,
        others: str = "ask",
        give_up_reported: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.start = start
        self.partitions = partitions
        self.fill = fill
        self.again = again
        self.delete = delete
        self.fewer = fewer
        self.others = others_of(others)
        self.give_up_reported = give_up_reported
        if delete and (again or fill):
            raise SpecError("`delete` takes the rows out: say it without `again` and `fill`")
        if is_stated(start):
            parse_start(start, "start:")

    def show(self, session: LandingSession) -> Shown:
        """Where each table would go on, and what that gives up."""
        if self.delete:
            return show_deletion(session, self.start, self._way(), fewer=self.fewer)
        from airflow_provider_lakecommit.repair.init_preview import init_preview
        from airflow_provider_lakecommit.repair.wording import init_text

        preview = init_preview(session, parse_start(self.start, "start:"), self._way())
        return Shown(values=self._values(session, preview), lines=list(init_text(preview)))

    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Set it, giving up no more than was shown."""
        if self.delete:
            return delete_as_shown(session, agreed, self.start, self._way(), decision, fewer=self.fewer)
        from airflow_provider_lakecommit.committer.ledger_by_hand import OtherSections
        from airflow_provider_lakecommit.repair.init_preview import init_preview
        from airflow_provider_lakecommit.repair.ledger_init import ledger_init

        if agreed.get("from") != self.start:
            raise not_as_shown(f"start={self.start!r}")
        word = parse_start(self.start, "start:")
        if word == "latest" and not self.partitions:
            # Where the topic ended when it was shown: what came since was nobody's to give up.
            word = parse_offsets(",".join(f"{p}={o}" for p, o in agreed["tables"][0]["next"].items()), "")
        preview = init_preview(session, word, self._way())
        if more := _more(self._values(session, preview), agreed):
            raise not_as_shown("; ".join(more))
        return ledger_init(
            session,
            word,
            self._way(),
            agreed=preview,
            give_up_reported=self.give_up_reported,
            others=OtherSections(self.others),
            decision=decision,
        )

    def _way(self) -> Way:
        from airflow_provider_lakecommit.repair.word import Way

        only = {parse_partition(text) for text in texts_of(self.partitions)}
        return Way(only=only, fill=lane_asked(name=self.fill).name if self.fill else "", again=self.again)

    def _values(self, session: LandingSession, preview: InitPreview) -> dict[str, Any]:
        from airflow_provider_lakecommit.repair.wording import init_to_dict

        ids = {p.topic: p.topic_id for t in preview.tables for p in t.ends}
        tables = [init_to_dict(t) for t in preview.tables]
        return {"landing": session.landing.name, "from": self.start, "topic_ids": ids, "tables": tables}


class ResetHardOperator(ResetTask):
    """Delete all rows of a landing, and have it begin where its declaration says.

    The tables must have metadata columns, which tell whose rows are whose.

    :param fewer: a table has fewer rows of the landing than were landed, since others deleted some

    .. seealso:: :ref:`howto/operator:ResetHardOperator`
    """

    resets: ClassVar[str] = RESET_HARD

    def __init__(self, *, fewer: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fewer = fewer

    def show(self, session: LandingSession) -> Shown:
        """What goes of each table, and what cannot be read again."""
        return show_deletion(session, None, None, fewer=self.fewer)

    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Delete it, giving up no more than was shown."""
        return delete_as_shown(session, agreed, None, None, decision, fewer=self.fewer)


def _more(now: Mapping[str, Any], agreed: Mapping[str, Any]) -> list[str]:
    """What a ledger that begins by now would give up beyond what was shown."""
    if now["topic_ids"] != agreed.get("topic_ids"):
        return ["the topic was made anew, or another one is read"]
    before = {t["table"]: t for t in agreed["tables"]}
    found = []
    for t in now["tables"]:
        shown = before.get(t["table"], {})
        for what in ("given_up", "back", "again"):
            wanted, allowed = ranges_of(t[what]), ranges_of(shown.get(what, {}))
            more = {p: s - allowed.get(p, RangeSet()) for p, s in wanted.items()}
            found += [f"{t['table']} {what.replace('_', ' ')} {p[0]}[{p[1]}] {s}" for p, s in more.items() if s]
        if t["lost"] and t["lost"] != shown.get("lost"):
            found.append(f"{t['table']} loses {t['lost']}")
    return found
