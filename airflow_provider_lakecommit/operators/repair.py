# SPDX-License-Identifier: Apache-2.0
"""`lakecommit unblock`, `ledger init`, `ledger attest` as tasks: shown by one, done by another after a person's word.

Contract: thin over the functions of the command line, see :mod:`~airflow_provider_lakecommit.repair.unblock`,
:mod:`~airflow_provider_lakecommit.repair.ledger_init` and :mod:`~airflow_provider_lakecommit.repair.attest`;
what a task needs of a person is in :mod:`~airflow_provider_lakecommit.operators.decision`. Nothing beyond what was
shown is given up: ranges are those that were shown, `latest` is where the topic ended then.

Failure story: what has changed between showing and doing is found before anything is written, and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core.budgets import parse_budget
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.offsets import RangeSet
from airflow_provider_lakecommit.core.retry import own_budget
from airflow_provider_lakecommit.exceptions import BlockedRangeError, SpecError
from airflow_provider_lakecommit.lanes.asked import lane_asked
from airflow_provider_lakecommit.operators.arguments import is_stated, texts_of
from airflow_provider_lakecommit.operators.attest import OTHERS, LedgerAttestOperator, others_of
from airflow_provider_lakecommit.operators.decision import DecisionTask, NothingToDoError, Shown, not_as_shown
from airflow_provider_lakecommit.repair.stated import parse_offsets, parse_partition, parse_ranges, parse_start

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core.decisions import Decision
    from airflow_provider_lakecommit.repair.init_preview import InitPreview
    from airflow_provider_lakecommit.repair.unblock import BlockedPart
    from airflow_provider_lakecommit.repair.word import Way
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["OTHERS", "LedgerAttestOperator", "LedgerInitOperator", "UnblockOperator"]

Named = dict[tuple[str, int], RangeSet]
_HOW = ("raise", "retry", "skip", "skip whole")


class UnblockOperator(DecisionTask):
    """Say how to go on with blocked ranges.

    :param how: `raise`: read them again under ``budget``; `retry`: under the landing's own budget, after records, table
        or spec were mended; `skip`: go on without their bad records, recorded as skipped; `skip whole`: also without
        the good records of these ranges (templated)
    :param budget: of `raise`: dead letters that a slice may have, and their share, as in `500` or `500:0.2` (templated)
    :param partitions: only these, as `topic:3`; several as a list, or with commas (templated)
    :param ranges: only these offsets, as `topic:3=15-20`; several likewise (templated)

    .. seealso:: :ref:`howto/operator:UnblockOperator`
    """

    template_fields: Sequence[str] = (*DecisionTask.template_fields, "how", "budget", "partitions", "ranges")
    command: ClassVar[str] = "unblock"

    def __init__(
        self,
        *,
        how: str,
        budget: str | int | None = None,
        partitions: str | Sequence[str] | None = None,
        ranges: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.how = how
        self.budget = budget
        self.partitions = partitions
        self.ranges = ranges
        if is_stated(how, budget):
            self._asked()
        if is_stated(partitions, ranges):
            self._chosen()

    def show(self, session: LandingSession) -> Shown:
        """What is blocked, and what would become of it."""
        from airflow_provider_lakecommit.repair.unblock import blocked_parts

        asked = self._asked()
        try:
            parts = blocked_parts(session, *self._chosen())
        except BlockedRangeError as e:
            raise NothingToDoError(str(e)) from None
        values = {"landing": session.landing.name, **asked, "blocked": [str(p) for p in parts], "ranges": _plain(parts)}
        return Shown(values=values, lines=[f"{self._becomes(p)}: {p}" for p in parts])

    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Unblock the ranges that were shown."""
        from airflow_provider_lakecommit.repair.unblock import blocked_parts, unblock

        asked = self._asked()
        if different := [f"{name} is {value!r}" for name, value in asked.items() if agreed.get(name) != value]:
            raise not_as_shown("; ".join(different))
        try:
            parts = blocked_parts(session, None, _ranges(agreed["ranges"]))
        except BlockedRangeError:
            raise NothingToDoError("nothing of what was agreed to is blocked any more: it is done already") from None
        if changed := [str(p) for p in parts if str(p) not in agreed["blocked"]]:
            raise not_as_shown("; ".join(changed))
        declared = session.landing
        own = own_budget(declared.budget, declared.dead_letter_table) if asked["how"] == "retry" else None
        return unblock(
            session,
            ranges=_ranges(_plain(parts)),
            raise_to=own or self._budget(),
            skip=asked["how"] in ("skip", "skip whole"),
            only_bad=asked["how"] == "skip",
            decision=decision,
        )

    def _asked(self) -> dict[str, Any]:
        """What this task is to do, as it is compared with what was shown."""
        how = " ".join(str(self.how).split()).lower()
        if how not in _HOW:
            raise SpecError(f"how={self.how!r}: say {', '.join(_HOW[:-1])} or {_HOW[-1]}")
        budget = self._budget() if how == "raise" else None
        return {"how": how, "budget": None if budget is None else [budget.max_records, budget.max_ratio]}

    def _chosen(self) -> tuple[set[tuple[str, int]] | None, Named | None]:
        """The partitions and the ranges that are meant; ``None``: all."""
        partitions, ranges = texts_of(self.partitions), texts_of(self.ranges)
        return {parse_partition(text) for text in partitions} or None, parse_ranges(ranges, "ranges:") or None

    def _budget(self) -> Budget | None:
        if " ".join(str(self.how).split()).lower() != "raise":
            return None
        if self.budget is None or not str(self.budget).strip():
            raise SpecError("how='raise' needs a budget, as in 500 or 500:0.2")
        records, ratio = parse_budget(str(self.budget))
        return Budget(max_records=records, max_ratio=ratio)

    def _becomes(self, part: BlockedPart) -> str:
        match self._asked()["how"]:
            case "raise":
                return f"READS AGAIN, with up to {self.budget} dead letters"
            case "retry":
                return "READS AGAIN, as the landing says now"
            case "skip" if part.good is None:
                return "CANNOT be skipped without its good records (how='skip whole' gives up all of it)"
            case "skip" if part.good:
                return f"READS AGAIN, without its {part.bad} bad records"
            case _:
                return "GIVES UP all of"


class LedgerInitOperator(DecisionTask):
    """Begin the ledger of a landing's tables, or begin it anew, under a new epoch.

    :param start: where reading goes on: `earliest`, `latest`, a time in ISO form, or `topic:0=15,topic:1=9`; partitions
        that are not named keep their place (templated)
    :param partitions: with a time, `earliest` or `latest`: only these, as `topic:3`; several as a list, or with commas
        (templated)
    :param fill: the lane that is left what it goes forward over, for a ``BackfillOperator`` with that ``lane``
        (templated)
    :param again: go back over what is landed, too: it is read again, and its rows are in the tables twice
    :param others: where a table's ledger is lost: whether rows of other landings are in it, `there` or `gone`
    :param give_up_reported: also what is reported, cannot be published, and the source has no more

    .. seealso:: :ref:`howto/operator:LedgerInitOperator`
    """

    template_fields: Sequence[str] = (*DecisionTask.template_fields, "start", "partitions", "fill")
    command: ClassVar[str] = "ledger init"

    def __init__(
        self,
        *,
        start: str,
        partitions: str | Sequence[str] | None = None,
        fill: str = "",
        again: bool = False,
        others: str = "ask",
        give_up_reported: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.start = start
        self.partitions = partitions
        self.fill = fill
        self.again = again
        self.others = others_of(others)
        self.give_up_reported = give_up_reported
        if is_stated(start):
            parse_start(start, "start:")

    def show(self, session: LandingSession) -> Shown:
        """Where each table would go on, and what that gives up."""
        from airflow_provider_lakecommit.repair.init_preview import init_preview
        from airflow_provider_lakecommit.repair.wording import init_text

        preview = init_preview(session, parse_start(self.start, "start:"), self._way())
        return Shown(values=self._values(session, preview), lines=list(init_text(preview)))

    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Set it, giving up no more than was shown."""
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


def _plain(parts: Sequence[BlockedPart]) -> dict[str, list[list[int]]]:
    from airflow_provider_lakecommit.core.offsets import Coverage

    return Coverage.of((p.span.partition, p.span.range) for p in parts).to_dict()


def _ranges(plain: Mapping[str, Sequence[Sequence[int]]]) -> Named:
    return {parse_partition(p): RangeSet.of(*((int(a), int(b)) for a, b in ranges)) for p, ranges in plain.items()}


def _more(now: Mapping[str, Any], agreed: Mapping[str, Any]) -> list[str]:
    """What a ledger that begins by now would give up beyond what was shown."""
    if now["topic_ids"] != agreed.get("topic_ids"):
        return ["the topic was made anew, or another one is read"]
    before = {t["table"]: t for t in agreed["tables"]}
    found = []
    for t in now["tables"]:
        shown = before.get(t["table"], {})
        for what in ("given_up", "back", "again"):
            wanted, allowed = _ranges(t[what]), _ranges(shown.get(what, {}))
            more = {p: s - allowed.get(p, RangeSet()) for p, s in wanted.items()}
            found += [f"{t['table']} {what.replace('_', ' ')} {p[0]}[{p[1]}] {s}" for p, s in more.items() if s]
        if t["lost"] and t["lost"] != shown.get("lost"):
            found.append(f"{t['table']} loses {t['lost']}")
    return found
