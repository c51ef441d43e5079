# SPDX-License-Identifier: Apache-2.0
"""`lakecommit dead-letters replay` as tasks: shown by one, done by another after a person's word.

Contract: thin over :mod:`~airflow_provider_lakecommit.dead_letters.replay`; what a task needs of a person is in
:mod:`~airflow_provider_lakecommit.operators.decision`. Only offsets that were shown are replayed.

Failure story: a task that was killed can run again: what is replayed already is not replayed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.operators.decision import DecisionTask, NothingToDoError, Shown
from airflow_provider_lakecommit.repair.stated import parse_ranges
from airflow_provider_lakecommit.tasks.arguments import is_stated, texts_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core.decisions import Decision
    from airflow_provider_lakecommit.core.offsets import Coverage
    from airflow_provider_lakecommit.dead_letters.letters import Selection
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["ReplayDeadLettersOperator"]


class ReplayDeadLettersOperator(DecisionTask):
    """Make rows of open dead letters, after a fix of the table, the landing, or of the values in the dead-letter table.

    :param kinds: only these, as `wrong_value` or `wrong_value:id`; several as a list, or with commas (templated)
    :param ranges: only these offsets, as `topic:3=15-20`; several likewise (templated)
    :param since: only of records with a time from then on, as ISO text (templated)
    :param until: only of records with a time before that (templated)
    :param limit: not more than so many
    :param table: a dead-letter table that the landing had before (templated)

    .. seealso:: :ref:`howto/operator:ReplayDeadLettersOperator`
    """

    template_fields: Sequence[str] = (*DecisionTask.template_fields, "kinds", "ranges", "since", "until", "table")
    command: ClassVar[str] = "dead-letters replay"

    def __init__(
        self,
        *,
        kinds: str | Sequence[str] | None = None,
        ranges: str | Sequence[str] | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
        table: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kinds = kinds
        self.ranges = ranges
        self.since = since
        self.until = until
        self.limit = limit
        self.table = table
        if is_stated(ranges):
            parse_ranges(texts_of(ranges), "ranges")

    def show(self, session: LandingSession) -> Shown:
        """How many would be rows now, and why others would not."""
        from airflow_provider_lakecommit.dead_letters.replay import replay

        found = replay(session, self._selection(), table=self.table or None)
        if not found.letters:
            why = "; ".join(f"{n} {kind}: {found.reasons[kind]}" for kind, n in found.refused.most_common())
            raise NothingToDoError(f"no dead letter of {session.landing.name} would be a row now{why and f': {why}'}")
        lines = [f"{found.letters} dead letters would be rows now: {found.coverage}"[:2000]]
        lines += [f"{n} stay open, {kind}: {found.reasons[kind]}" for kind, n in found.refused.most_common()]
        values = {"landing": session.landing.name, "letters": found.letters, "ranges": _texts(found.coverage)}
        return Shown(values=values, lines=lines)

    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Replay those that were shown."""
        from dataclasses import replace

        from airflow_provider_lakecommit.dead_letters.replay import replay

        shown = parse_ranges(agreed["ranges"], "agreed")
        done = replay(session, replace(self._selection(), ranges=shown), table=self.table or None, decision=decision)
        if not done.letters:
            raise NothingToDoError(f"nothing of what was shown is open any more: {done.to_dict()['not_open']}")
        self.log.info("%s dead letters were replayed, %s rows", done.letters, done.rows)
        return {"landing": session.landing.name, **done.to_dict()}

    def _selection(self) -> Selection:
        from airflow_provider_lakecommit.dead_letters.letters import Selection

        return Selection(
            kinds=tuple(texts_of(self.kinds)),
            ranges=parse_ranges(texts_of(self.ranges), "ranges"),
            since=_moment(self.since),
            until=_moment(self.until),
            limit=self.limit,
        )


def _moment(text: str | None) -> datetime | None:
    from datetime import UTC

    found = datetime.fromisoformat(text) if text else None
    return found if found is None or found.tzinfo else found.replace(tzinfo=UTC)


def _texts(coverage: Coverage) -> list[str]:
    """As ``ranges`` takes them."""
    return [f"{p.topic}:{p.partition}={r.start}-{r.end}" for p, r in coverage.items()]
