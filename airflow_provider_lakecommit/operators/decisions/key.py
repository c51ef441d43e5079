# SPDX-License-Identifier: Apache-2.0
"""`reset key`: make the rows of a table unique by `upsert.key`, or append again.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.decisions.operation`, over
:mod:`~airflow_provider_lakecommit.operations.decisions.key_change`.

Failure story: more rows to delete than were previewed, or another key, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import RESET_KEY, spoken
from airflow_provider_lakecommit.operators.decisions.operation import ApprovedOperation, Preview

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession


@dataclass(frozen=True, kw_only=True)
class ResetKey(ApprovedOperation):
    """Make the rows of a table unique by the landing's `upsert.key`; without one, append again."""

    name: ClassVar[str] = spoken(RESET_KEY)

    def preview(self, session: LandingSession) -> Preview:
        """Return how many rows would go."""
        from airflow_provider_lakecommit.operations import key_preview

        found = key_preview(session)
        return Preview(values={"landing": session.landing.name, **found.to_dict()}, lines=list(found.lines()))

    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Delete no more rows than were previewed."""
        from airflow_provider_lakecommit.operations import change_key

        return change_key(session, agreed, decision)
