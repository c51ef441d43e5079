# SPDX-License-Identifier: Apache-2.0
"""`reset assert`: state what the tables hold if their ledger cannot.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.decisions.operation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import RESET_ASSERT, Decision, spoken
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations import parse_offsets
from airflow_provider_lakecommit.operators.decisions.operation import ApprovedOperation, Preview, not_as_previewed
from airflow_provider_lakecommit.operators.tasks.arguments import is_stated, texts_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle import LandingSession
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.operations import Assertion

OTHERS = ("ask", "present", "missing")
"""Answers about rows of other landings; by default none, and a table with such rows is refused."""


@dataclass(frozen=True, kw_only=True)
class ResetAssert(ApprovedOperation):
    """State what the tables hold, if their ledger cannot. Give one of ``snapshot_id``, ``from_log`` and ``at``.

    :param snapshot_id: take the ledger of this snapshot
    :param from_log: take what the control topic reports as published
    :param at: everything below these offsets, for example `topic:0=15,topic:1=9`
    :param tables: only these; by default those whose ledger is not in order
    :param others: if a table's ledger is lost: whether it has rows of other landings, `present` or `missing`
    :param give_up_reported: also reported slices that the source has removed
    """

    name: ClassVar[str] = spoken(RESET_ASSERT)
    snapshot_id: str | int | None = None
    from_log: bool = False
    at: str | None = None
    tables: str | Sequence[str] | None = None
    others: str = "ask"
    give_up_reported: bool = False

    def check(self, landing: Landing) -> None:
        """Check that exactly one of the three is given, and its value."""
        if (self.snapshot_id is not None) + self.from_log + (self.at is not None) != 1:
            raise SpecError("LC8321", "give one of `snapshot_id`, `from_log` and `at`")
        others_of(self.others)
        if is_stated(self.snapshot_id, self.at, self.tables):
            self._stated(landing)

    def preview(self, session: LandingSession) -> Preview:
        """Return the statement about each table, and what is read again."""
        asserted = self._asserted(session)
        return self._values(session, asserted), list(asserted.lines())

    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Write the statement."""
        from airflow_provider_lakecommit.committer import OtherSections
        from airflow_provider_lakecommit.operations import assert_tables

        asserted = self._asserted(session)
        now, before = (_without_rows(v) for v in (self._values(session, asserted), agreed))
        if different := [str(t) for t in now if t not in before]:
            raise not_as_previewed("; ".join(different))
        give_up, rows = self.give_up_reported, OtherSections(self.others)
        return assert_tables(session, asserted, decision=decision, give_up_reported=give_up, rows_of_others=rows)

    def _asserted(self, session: LandingSession) -> Assertion:
        from airflow_provider_lakecommit.operations.decisions import assertion

        tables, offsets = self._stated(session.landing)
        if self.from_log:
            return assertion.from_log(session, tables)
        if offsets is not None:
            return assertion.from_offsets(session, offsets, tables)
        return assertion.from_snapshot(session, int(str(self.snapshot_id)))

    def _stated(self, landing: Landing) -> tuple[list[str] | None, dict[tuple[str, int], int] | None]:
        """Return the chosen tables, and the stated offsets if given."""
        tables, known = texts_of(self.tables) or None, landing.tables
        if strange := [t for t in tables or () if t not in known]:
            raise SpecError("LC8322", f"tables: {strange[0]!r} is unknown; the landing has {', '.join(known)}")
        if self.snapshot_id is not None and not str(self.snapshot_id).isdecimal():
            raise SpecError("LC8323", f"snapshot_id={self.snapshot_id!r}: use the id (a number) of a snapshot")
        return tables, None if self.at is None else parse_offsets(self.at, _OFFSETS.format(self.at))

    def _values(self, session: LandingSession, asserted: Assertion) -> dict[str, Any]:
        ids = {p.topic: p.topic_id for p in asserted.marks}
        tables = [t.to_dict() for t in asserted.tables]
        return {"landing": session.landing.name, "topic_ids": ids, "tables": tables}


def others_of(others: str) -> str:
    """Check the answer about rows of other landings before it is approved."""
    if others not in OTHERS:
        raise SpecError("LC8324", f"others={others!r}: use {', '.join(OTHERS[:-1])} or {OTHERS[-1]}")
    return others


def _without_rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the statement about each table. Rows and reports are for display only: other writers may add some at any
    time, and ``lost`` covers reports that cannot be read again.
    """
    tables = [{name: v for name, v in t.items() if name not in ("rows", "reported")} for t in values["tables"]]
    return [{"topic_ids": values.get("topic_ids"), **t} for t in tables]


_OFFSETS = "at={!r}: use TOPIC:PARTITION=OFFSET,… for example orders:0=1500, or the same as a JSON object"
