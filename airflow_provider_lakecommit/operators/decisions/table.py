# SPDX-License-Identifier: Apache-2.0
"""The operations on a landing by their names, and those whose whole work is one call.

Contract: a name is the spelling of the command without the program, from
:mod:`~airflow_provider_lakecommit.core.commands`. The class has the arguments with their types, and the action.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import PUBLISH_NOW, RESET_KEY, spoken
from airflow_provider_lakecommit.landing import span_of
from airflow_provider_lakecommit.operators.decisions.adopt import Adopt
from airflow_provider_lakecommit.operators.decisions.blocked import ResetBlocked
from airflow_provider_lakecommit.operators.decisions.dead_letters import ReplayDeadLetters
from airflow_provider_lakecommit.operators.decisions.migrate import Migrate
from airflow_provider_lakecommit.operators.decisions.offsets import ResetHard, ResetOffsets
from airflow_provider_lakecommit.operators.decisions.operation import (
    ApprovedOperation,
    DirectOperation,
    Operation,
    Preview,
)
from airflow_provider_lakecommit.operators.decisions.reset_assert import ResetAssert

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession, RunIdentity
    from airflow_provider_lakecommit.landing import Landing


@dataclass(frozen=True, kw_only=True)
class ResetKey(ApprovedOperation):
    """Make the rows of a table unique by the landing's `upsert.key`; without one, append again. More rows to delete
    than were previewed, or another key, is refused.
    """

    name: ClassVar[str] = spoken(RESET_KEY)

    def preview(self, session: LandingSession) -> Preview:
        """Return how many rows would go."""
        from airflow_provider_lakecommit.operations import key_preview

        found = key_preview(session)
        return {"landing": session.landing.name, **found.to_dict()}, list(found.lines())

    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Delete no more rows than were previewed."""
        from airflow_provider_lakecommit.operations import change_key

        return change_key(session, agreed, decision)


@dataclass(frozen=True, kw_only=True)
class PublishNow(DirectOperation):
    """Stop open windows at the current record and publish them.

    :param wait: time that the runs have to publish their windows; this task publishes the rest. A timedelta, seconds,
        or a text such as ``1m30s``
    """

    name: ClassVar[str] = spoken(PUBLISH_NOW)
    wait: timedelta | str | float = timedelta(minutes=1)

    def check(self, landing: Landing) -> None:
        span_of(self.wait, "wait")

    def perform(self, session: LandingSession, run: RunIdentity, decision: Decision) -> dict[str, Any]:
        """Request the end of the windows, wait, and publish the rest. The runs of these windows end with success as
        usual, and their notes report it.
        """
        from airflow_provider_lakecommit.operations import publish_now

        why = f"{decision.actor} requested publication now"
        done = publish_now(session, run, why, wait=span_of(self.wait, "wait").total_seconds())
        session.log(str(done))
        return {"landing": session.landing.name, **done.to_dict()}


_ALL: tuple[type[Operation], ...] = (
    ResetOffsets,
    ResetHard,
    ResetBlocked,
    ResetAssert,
    Migrate,
    ResetKey,
    Adopt,
    ReplayDeadLetters,
    PublishNow,
)
OPERATIONS: Mapping[str, type[Operation]] = {kind.name: kind for kind in _ALL}
""" ``reset offsets``, ``dead-letters``, … """
