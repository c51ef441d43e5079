# SPDX-License-Identifier: Apache-2.0
"""`publish-now`: publish what running windows have read, without waiting for their end.

Contract: see :mod:`~airflow_provider_lakecommit.operations.decisions.publish_now`. It gives nothing up, so it needs no
approval. The runs of these windows end with success as usual: later runs plan the rest of their windows, and the notes
of the runs report it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import PUBLISH_NOW, spoken
from airflow_provider_lakecommit.landing import span_of
from airflow_provider_lakecommit.operators.decisions.operation import DirectOperation

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession, RunIdentity
    from airflow_provider_lakecommit.landing import Landing


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
        """Request the end of the windows, wait, and publish the rest."""
        from airflow_provider_lakecommit.operations import publish_now

        why = f"{decision.actor} requested publication now"
        done = publish_now(session, run, why, wait=span_of(self.wait, "wait").total_seconds())
        session.log(str(done))
        return {"landing": session.landing.name, **done.to_dict()}
