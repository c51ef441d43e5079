# SPDX-License-Identifier: Apache-2.0
"""`dead-letters --replay`: open dead letters become rows.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.decisions.operation`, over
:mod:`~airflow_provider_lakecommit.operations.dead_letters.replay`. Only previewed offsets are replayed.

Failure story: a task that was killed can run again: replayed dead letters are not replayed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import DEAD_LETTERS, spoken
from airflow_provider_lakecommit.operations import parse_ranges
from airflow_provider_lakecommit.operators.decisions.operation import ApprovedOperation, NothingToDoError, Preview
from airflow_provider_lakecommit.operators.tasks.arguments import is_stated, texts_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.operations import Selection


@dataclass(frozen=True, kw_only=True)
class ReplayDeadLetters(ApprovedOperation):
    """Replay open dead letters, after a fix of the table, the landing, or of the values in the dead-letter table.

    :param kinds: only these, for example `wrong_value` or `wrong_value:id`; several as a list, or with commas
    :param ranges: only these offsets, for example `topic:3=15-20`; several likewise
    :param since: only of records at or after this time, as ISO text
    :param until: only of records before this time
    :param limit: at most this many
    :param table: a former dead-letter table of the landing
    """

    name: ClassVar[str] = spoken(DEAD_LETTERS)
    command: ClassVar[str] = f"{spoken(DEAD_LETTERS)} --replay"
    kinds: str | Sequence[str] | None = None
    ranges: str | Sequence[str] | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    table: str | None = None

    def check(self, landing: Landing) -> None:
        if is_stated(self.ranges):
            parse_ranges(texts_of(self.ranges), "ranges")

    def preview(self, session: LandingSession) -> Preview:
        """Return how many can become rows, and why others cannot."""
        from airflow_provider_lakecommit.operations import replay

        found = replay(session, self._selection(), table=self.table or None)
        if not found.dead_letters:
            why = "; ".join(f"{n} {kind}: {found.reasons[kind]}" for kind, n in found.refused.most_common())
            raise NothingToDoError(f"no dead letter of {session.landing.name} can become a row{why and f': {why}'}")
        lines = [f"{found.dead_letters} dead letters can become rows: {found.coverage}"[:2000]]
        lines += [f"{n} stay open, {kind}: {found.reasons[kind]}" for kind, n in found.refused.most_common()]
        ranges = [f"{p.topic}:{p.partition}={r.start}-{r.end}" for p, r in found.coverage.items()]
        return {"landing": session.landing.name, "letters": found.dead_letters, "ranges": ranges}, lines

    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Replay the previewed dead letters."""
        from airflow_provider_lakecommit.operations import replay

        chosen = replace(self._selection(), ranges=parse_ranges(agreed["ranges"], "agreed"))
        done = replay(session, chosen, table=self.table or None, decision=decision)
        if not done.dead_letters:
            raise NothingToDoError(f"no previewed dead letter is open any more: {done.to_dict()['not_open']}")
        session.log(f"Replayed {done.dead_letters} dead letters as {done.rows} rows")
        return {"landing": session.landing.name, **done.to_dict()}

    def _selection(self) -> Selection:
        from airflow_provider_lakecommit.operations import Selection

        return Selection(
            kinds=tuple(texts_of(self.kinds)),
            ranges=parse_ranges(texts_of(self.ranges), "ranges"),
            since=_moment(self.since),
            until=_moment(self.until),
            limit=self.limit,
        )


def _moment(text: str | None) -> datetime | None:
    found = datetime.fromisoformat(text) if text else None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)
