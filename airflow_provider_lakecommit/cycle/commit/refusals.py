# SPDX-License-Identifier: Apache-2.0
"""Reported slices that a table refuses: voided, kept under their own partition spec, or unpublishable.

Contract: a slice whose epoch is over for this table, or whose ranges it already has, is *not taken*: the log has no
record of it, since every reader sees it in the table's ledger, and the other tables still take it. A slice is voided,
for all tables, only if its ranges can be read again. Otherwise, a slice of an older partition spec is *kept*: appended
under that spec. The rest is *unpublishable*: it stays pending, and :meth:`Refusals.check` raises its losses after
everything else is published.

Failure story: if the source does not report its offsets, that is an error and nothing is voided: the next commit tries
again.

Before a commit publishes anything, what has too many rejected records is blocked:
:mod:`~airflow_provider_lakecommit.core.budgets` decides. Each range that is left out of a complete window is
reported as blocked, which takes back its finished slice. What is left out of other windows waits. A slice that the
source no longer has is published with its dead letters: taking it back would lose it.

Failure story: after a crash, the next commit decides again, on the same reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from uuid import UUID

from airflow_provider_lakecommit.control import Outgoing
from airflow_provider_lakecommit.core import (
    RESET_OFFSETS,
    AcceptedSlice,
    Over,
    blocking,
    losses,
    losses_text,
    over_by_window,
    removed,
)
from airflow_provider_lakecommit.cycle.results import CycleTicket
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.iceberg import Grounds
from airflow_provider_lakecommit.kafka import SourceState


@dataclass(slots=True, kw_only=True)
class Refusals:
    """Refusals of one table in one commit. All tables share ``voided``; ``not_taken`` is this table's."""

    session: LandingSession
    table: str
    voided: dict[UUID, str]
    not_taken: dict[UUID, str] = field(default_factory=dict)
    kept: set[UUID] = field(default_factory=set)
    unpublishable: dict[UUID, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    _source: SourceState | None = None

    def of(self, accepted: Sequence[AcceptedSlice]) -> list[AcceptedSlice]:
        """Return the slices that may still be published."""
        out = {*self.voided, *self.not_taken, *self.unpublishable}
        return [a for a in accepted if a.report.attempt not in out]

    def refuse(self, accepted: AcceptedSlice, grounds: Grounds | None, reason: str) -> None:
        """Decide the disposition of a slice that is not appended as it is.

        :raises SourceUnavailableError: the source does not report its offsets
        """
        attempt = accepted.report.attempt
        if grounds in (Grounds.EPOCH, Grounds.OVERLAP):
            self.not_taken[attempt] = f"{self.table} rejects {reason}; its missing ranges are read again"
            self.session.log(self.not_taken[attempt])
        elif not removed(accepted.coverage, self._marks().partitions):
            self.voided[attempt] = f"{reason}; its range is read again"
            self.session.log(f"{self.table}: voided {self.voided[attempt]}")
        elif grounds is Grounds.SPEC and attempt not in self.kept:
            self.session.log(f"{self.table}: {accepted.coverage} is published with its own partition spec: {reason}")
            self.kept.add(attempt)
        else:
            self.unpublishable[attempt] = (reason, losses([accepted], self._marks().partitions))

    def of_one_spec(self, chunk: tuple[AcceptedSlice, ...], default: int) -> tuple[AcceptedSlice, ...]:
        """Return the chunk up to the first slice of another partition spec: a commit has one manifest."""
        specs = [self._spec_of(a, default) for a in chunk]
        first = next((s for s in specs if s is not None), None)
        return chunk[: next((n for n, s in enumerate(specs) if s not in (None, first)), len(chunk))]

    def check(self) -> None:
        """:raises SourceError: slices can be neither published nor read again"""
        if not self.unpublishable:
            return
        lost = losses_text(loss for _, some in self.unpublishable.values() for loss in some)
        reasons = [reason for reason, _ in self.unpublishable.values()]
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        raise SourceError(
            "LC6203",
            f"{self.table}: {reasons[0]}{more}. The slice is not voided: the source no longer has its records, so that "
            f"would lose {lost}. Fix the cause, and the next commit publishes the slice; or give it up with "
            f"`{RESET_OFFSETS} SPEC --from earliest --give-up-reported`",
        )

    def _spec_of(self, accepted: AcceptedSlice, default: int) -> int | None:
        report = accepted.report.table(self.table)
        if report is None or not report.files:
            return None
        return report.spec_id if accepted.report.attempt in self.kept else default

    def _marks(self) -> SourceState:
        if self._source is None:
            self._source = self.session.source.watermarks(missing_ok=True)
        return self._source


def block_over_ratio(session: LandingSession, ticket: CycleTicket, folded: FoldedLog) -> FoldedLog:
    """Send the decisions that are due; return the log with them."""
    budget, now, cycles = session.landing.budget, session.now(), folded.state.cycles
    records: list[Outgoing] = []
    for over in _over(session, ticket, folded):
        for one in over.slices if over.decided else ():
            plan, sender = cycles[one.commit_id].plan, session.sender("write", one.commit_id)
            for blocked in blocking(over, one, plan, budget.max_ratio, session.new_id):
                session.log(f"blocked {blocked.coverage}: {blocked.blocked}")
                records.append(sender.reported(session.new_id(), now, blocked))
    if not records:
        return folded
    sent = session.send("commit", ticket, folded.partition, records)
    return session.read_state(folded.ledgers, since=folded, until=sent)


def within_ratio(
    session: LandingSession, ticket: CycleTicket, folded: FoldedLog, accepted: Sequence[AcceptedSlice]
) -> list[AcceptedSlice]:
    """Return the slices that are not left out of their windows."""
    out = {a.report.attempt for window in _over(session, ticket, folded) for a in window.slices}
    return [a for a in accepted if a.report.attempt not in out]


def _over(session: LandingSession, ticket: CycleTicket, folded: FoldedLog) -> list[Over]:
    """:raises SourceUnavailableError: a window has too many rejected records, and the source does not report its
    offsets
    """
    marks = cache(lambda: session.source.watermarks(missing_ok=True).partitions)

    def replaceable(accepted: AcceptedSlice) -> bool:
        return not removed(accepted.coverage, marks())

    budget, now = session.landing.budget, session.now()
    return over_by_window(folded.state, folded.entries, budget, ticket.commit_id, now, replaceable)
