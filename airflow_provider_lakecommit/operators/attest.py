# SPDX-License-Identifier: Apache-2.0
"""`lakecommit reset attest` as a task: what the tables hold, where their ledger cannot say it.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.decision`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operators.decision import Shown, not_as_shown
from airflow_provider_lakecommit.operators.reset_task import ResetTask
from airflow_provider_lakecommit.repair.stated import parse_offsets
from airflow_provider_lakecommit.reset_commands import RESET_ATTEST
from airflow_provider_lakecommit.tasks.arguments import is_stated, texts_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.repair.attest import Attested
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["OTHERS", "ResetAttestOperator", "others_of"]

OTHERS = ("ask", "there", "gone")
"""What can be said of them; by default nothing is, and where there are some it is refused."""


class ResetAttestOperator(ResetTask):
    """Say what the tables hold, where their ledger cannot. Give one of ``snapshot_id``, ``from_log`` and ``at``.

    :param snapshot_id: what the ledger in this snapshot says (templated)
    :param from_log: what the control topic says was published
    :param at: everything below these offsets, as `topic:0=15,topic:1=9` (templated)
    :param tables: only these; by default those whose ledger is not in order (templated)
    :param others: where a table's ledger is lost: whether rows of other landings are in it, `there` or `gone`
    :param give_up_reported: also what is reported, and the source has no more

    .. seealso:: :ref:`howto/operator:ResetAttestOperator`
    """

    resets: ClassVar[str] = RESET_ATTEST
    asks: ClassVar[Sequence[str]] = ("snapshot_id", "at", "tables")

    def __init__(
        self,
        *,
        snapshot_id: str | int | None = None,
        from_log: bool = False,
        at: str | None = None,
        tables: str | Sequence[str] | None = None,
        others: str = "ask",
        give_up_reported: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (snapshot_id is not None) + bool(from_log) + (at is not None) != 1:
            raise ValueError("give one of `snapshot_id`, `from_log` and `at`")
        self.snapshot_id = snapshot_id
        self.from_log = from_log
        self.at = at
        self.tables = tables
        self.others = others_of(others)
        self.give_up_reported = give_up_reported
        if is_stated(snapshot_id, at, tables):
            self._stated()

    def show(self, session: LandingSession) -> Shown:
        """What would be said of each table, what is read again then, and what never."""
        from airflow_provider_lakecommit.repair.wording import attest_text

        said = self._said(session)
        return Shown(values=self._values(session, said), lines=list(attest_text(said)))

    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Say it."""
        from airflow_provider_lakecommit.committer.ledger_by_hand import OtherSections
        from airflow_provider_lakecommit.repair.attest import attest

        said = self._said(session)
        now, before = (_without_rows(v) for v in (self._values(session, said), agreed))
        if different := [str(t) for t in now if t not in before]:
            raise not_as_shown("; ".join(different))
        rows = OtherSections(self.others)
        return attest(session, said, decision=decision, give_up_reported=self.give_up_reported, rows_of_others=rows)

    def _said(self, session: LandingSession) -> Attested:
        from airflow_provider_lakecommit.repair import attest as word

        tables, offsets = self._stated()
        if self.from_log:
            return word.from_log(session, tables)
        if offsets is not None:
            return word.from_offsets(session, offsets, tables)
        return word.from_snapshot(session, int(str(self.snapshot_id)))

    def _stated(self) -> tuple[list[str] | None, dict[tuple[str, int], int] | None]:
        """The tables that are meant, and what all of them hold, if that is said."""
        tables, known = texts_of(self.tables) or None, self.landing.tables
        if strange := [t for t in tables or () if t not in known]:
            raise SpecError(f"tables: {strange[0]!r}: the landing has {', '.join(known)}")
        if self.snapshot_id is not None and not str(self.snapshot_id).isdecimal():
            raise SpecError(f"snapshot_id={self.snapshot_id!r}: the number of a snapshot is needed")
        return tables, None if self.at is None else parse_offsets(self.at, _OFFSETS.format(self.at))

    def _values(self, session: LandingSession, said: Attested) -> dict[str, Any]:
        from airflow_provider_lakecommit.repair.wording import attest_to_dict

        ids = {p.topic: p.topic_id for p in said.marks}
        tables = [attest_to_dict(t) for t in said.tables]
        return {"landing": session.landing.name, "topic_ids": ids, "tables": tables}


def others_of(others: str) -> str:
    """A word on the rows of other landings; wrong, it would be told after it was agreed to.

    :raises SpecError: it is none
    """
    if others not in OTHERS:
        raise SpecError(f"others={others!r}: say {', '.join(OTHERS[:-1])} or {OTHERS[-1]}")
    return others


def _without_rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What is said of each table. Rows and reports are shown for a person's judgement; others may add some at any time,
    and of a report that cannot be read again ``lost`` tells.
    """
    tables = [{name: v for name, v in t.items() if name not in ("rows", "reported")} for t in values["tables"]]
    return [{"topic_ids": values.get("topic_ids"), **t} for t in tables]


_OFFSETS = "at={!r}: say TOPIC:PARTITION=OFFSET,… as in orders:0=1500, or the same as a JSON object"
