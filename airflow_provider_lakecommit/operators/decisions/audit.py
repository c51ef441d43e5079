# SPDX-License-Identifier: Apache-2.0
"""`reset audit`: publish windows that their checks refuse, or drop them from their branch.

Contract: that of :mod:`~airflow_provider_lakecommit.operators.decisions.operation`, over
:mod:`~airflow_provider_lakecommit.operations.reset.audit`.

Failure story: a branch that has moved since the preview is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import RESET_AUDIT, spoken
from airflow_provider_lakecommit.operators.decisions.operation import ApprovedOperation, NothingToDoError, Preview

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession

__all__ = ["ResetAudit"]


@dataclass(frozen=True, kw_only=True)
class ResetAudit(ApprovedOperation):
    """Publish what a branch has and `main` lacks without its checks, or drop it.

    :param drop: put the branch back on `main`; the records are read again
    """

    name: ClassVar[str] = spoken(RESET_AUDIT)
    drop: bool = False

    def preview(self, session: LandingSession) -> Preview:
        """Return what would be published or dropped."""
        from airflow_provider_lakecommit.operations import audit_preview

        found = audit_preview(session, drop=self.drop)
        if not found.tables:
            raise NothingToDoError("; ".join(found.lines()))
        return Preview(values={"landing": session.landing.name, **found.to_dict()}, lines=list(found.lines()))

    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Publish or drop exactly what was previewed."""
        from airflow_provider_lakecommit.operations import decide_audit

        return decide_audit(session, agreed, decision)
