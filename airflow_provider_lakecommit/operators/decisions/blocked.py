# SPDX-License-Identifier: Apache-2.0
"""`reset blocked`: how blocked ranges and refused rows continue.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.decisions.operation`, over
:mod:`~airflow_provider_lakecommit.operations.decisions.unblock` and
:mod:`~airflow_provider_lakecommit.operations.decisions.audit`. It applies to what was previewed only.

Failure story: changes between preview and action are found before anything is written, and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import RESET_BLOCKED, Budget, Coverage, RangeSet, own_budget, parse_budget, spoken
from airflow_provider_lakecommit.exceptions import BlockedRangeError, SpecError
from airflow_provider_lakecommit.operations import parse_partition, parse_ranges, ranges_of
from airflow_provider_lakecommit.operators.decisions.operation import (
    ApprovedOperation,
    NothingToDoError,
    Preview,
    not_as_previewed,
)
from airflow_provider_lakecommit.operators.tasks.arguments import is_stated, texts_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.operations import BlockedPart

_OF_AUDITS = ("release", "drop")
_HOW = ("raise", "retry", "skip", "skip whole", *_OF_AUDITS)


@dataclass(frozen=True, kw_only=True)
class ResetBlocked(ApprovedOperation):
    """Continue with blocked ranges, or with rows that `publish.checks` refuse.

    :param how: `raise`: read them again under ``budget``; `retry`: under the landing's own budget, after records, table
        or spec were fixed; `skip`: continue without their bad records, recorded as skipped; `skip whole`: also without
        the good records of these ranges; `release`: publish all refused rows; `drop`: take them off their branch, and
        read their records again
    :param budget: of `raise`: dead letters that a slice may have, and their share, for example `500` or `500:0.2`
    :param partitions: only these, for example `topic:3`; several as a list, or with commas
    :param ranges: only these offsets, for example `topic:3=15-20`; several likewise
    """

    name: ClassVar[str] = spoken(RESET_BLOCKED)
    how: str
    budget: str | int | None = None
    partitions: str | Sequence[str] | None = None
    ranges: str | Sequence[str] | None = None

    def check(self, landing: Landing) -> None:
        """Check ``how`` and the ranges."""
        if is_stated(self.how, self.budget):
            self._request()
        if is_stated(self.partitions, self.ranges):
            self._chosen()

    def preview(self, session: LandingSession) -> Preview:
        """Return the blocked ranges and the effect on them."""
        from airflow_provider_lakecommit.operations import blocked_parts

        request = self._request()
        if request["how"] in _OF_AUDITS:
            return self._refused_rows(session, request)
        try:
            parts = blocked_parts(session, *self._chosen())
        except BlockedRangeError as e:
            raise NothingToDoError(str(e)) from None
        blocked = {"blocked": [str(p) for p in parts], "ranges": _plain(parts)}
        values = {"landing": session.landing.name, **request, **blocked}
        return values, [f"{self._becomes(p)}: {p}" for p in parts]

    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Decide about what was previewed."""
        from airflow_provider_lakecommit.operations import blocked_parts, decide_audit, unblock

        request = self._request()
        if different := [f"{name} is {value!r}" for name, value in request.items() if agreed.get(name) != value]:
            raise not_as_previewed("; ".join(different))
        if request["how"] in _OF_AUDITS:
            return decide_audit(session, agreed, decision)
        try:
            parts = blocked_parts(session, None, ranges_of(agreed["ranges"]))
        except BlockedRangeError:
            raise NothingToDoError("no agreed range is blocked any more: already done") from None
        if changed := [str(p) for p in parts if str(p) not in agreed["blocked"]]:
            raise not_as_previewed("; ".join(changed))
        declared = session.landing
        own = own_budget(declared.budget, declared.dead_letter_table) if request["how"] == "retry" else None
        return unblock(
            session,
            ranges=ranges_of(_plain(parts)),
            raise_to=own or self._budget(),
            skip=request["how"] in ("skip", "skip whole"),
            only_bad=request["how"] == "skip",
            decision=decision,
        )

    def _refused_rows(self, session: LandingSession, request: Mapping[str, Any]) -> Preview:
        from airflow_provider_lakecommit.operations import audit_preview

        if (is_stated(self.partitions) and self.partitions) or (is_stated(self.ranges) and self.ranges):
            raise SpecError("LC8362", f"how={self.how!r} is about all refused rows: leave out partitions and ranges")
        found = audit_preview(session, drop=request["how"] == "drop")
        if not found.tables:
            raise NothingToDoError("; ".join(found.lines()))
        return {"landing": session.landing.name, **request, **found.to_dict()}, list(found.lines())

    @property
    def _way(self) -> str:
        return " ".join(str(self.how).split()).lower()

    def _request(self) -> dict[str, Any]:
        """Return the arguments as they are compared with the preview."""
        if self._way not in _HOW:
            raise SpecError("LC8313", f"how={self.how!r}: use {', '.join(_HOW[:-1])} or {_HOW[-1]}")
        budget = self._budget()
        return {"how": self._way, "budget": None if budget is None else [budget.max_records, budget.max_ratio]}

    def _chosen(self) -> tuple[set[tuple[str, int]] | None, dict[tuple[str, int], RangeSet] | None]:
        """Return the chosen partitions and ranges; ``None``: all."""
        partitions, ranges = texts_of(self.partitions), texts_of(self.ranges)
        return {parse_partition(text) for text in partitions} or None, parse_ranges(ranges, "ranges:") or None

    def _budget(self) -> Budget | None:
        if self._way != "raise":
            return None
        if self.budget is None or not str(self.budget).strip():
            raise SpecError("LC8314", "how='raise' needs a budget, for example 500 or 500:0.2")
        records, ratio = parse_budget(str(self.budget))
        return Budget(max_records=records, max_ratio=ratio)

    def _becomes(self, part: BlockedPart) -> str:
        match self._request()["how"]:
            case "raise":
                return f"READS AGAIN, with up to {self.budget} dead letters"
            case "retry":
                return "READS AGAIN, under the landing's current budget"
            case "skip" if part.good is None:
                return "CANNOT be skipped without its good records (how='skip whole' gives up all of it)"
            case "skip" if part.good:
                return f"READS AGAIN, without its {part.bad} bad records"
            case _:
                return "GIVES UP all of"


def _plain(parts: Sequence[BlockedPart]) -> dict[str, list[list[int]]]:
    return Coverage.of((p.span.partition, p.span.range) for p in parts).to_dict()
