# SPDX-License-Identifier: Apache-2.0
"""Who decided that a task acts: its DAG, or a user who approved a preview.

Contract: an approval is a name, or the answer of an ``ApprovalOperator``, which must be *Approve* and name the user. A
default after a timeout is no decision. The tables' history keeps the decision and the run.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.exceptions import DecisionError

if TYPE_CHECKING:
    from airflow.sdk import Context

APPROVED = "Approve"
"""The required answer: the option of Airflow's ``ApprovalOperator``."""
_NOBODY = ("", "none", "null")


def decision_of(command: str, context: Context, landing: str, reason: str) -> Decision:
    """Return the decision of a task that needs no approval: its DAG decides."""
    return _decision(command, f"task {context['ti'].task_id}", context, landing, reason)


def decision_by(answer: Any, command: str, context: Context, landing: str, reason: str) -> Decision:
    """Return the decision of a user.

    :param reason: by default the reason in the answer
    """
    user, given = decided(answer)
    return _decision(command, user, context, landing, reason or given)


def _decision(command: str, user: str, context: Context, landing: str, reason: str) -> Decision:
    ti = context["ti"]
    return decision_now(command, f"{user} in run {ti.run_id} of DAG {ti.dag_id}", reason, landing)


def decision_now(command: str, actor: str, reason: str, landing: str = "") -> Decision:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Decision(
        command=command, actor=actor, host=socket.gethostname(), at=at, landing=landing, reason=reason.strip()
    )


def decided(answer: Any) -> tuple[str, str]:
    """Return the user who decided, and the reason in the answer. The answer is that of an approval task, or a name."""
    if isinstance(answer, Mapping):
        chosen, user = answer.get("chosen_options"), answer.get("responded_by_user")
        if list(chosen or ()) != [APPROVED]:
            raise DecisionError(
                "LC8317",
                f"the answer is {', '.join(map(str, chosen or ())) or 'empty'}, not {APPROVED}: nothing is written",
            )
        if answer.get("timedout") or not isinstance(user, Mapping) or not (user.get("name") or user.get("id")):
            raise DecisionError(
                "LC8318",
                f"no user answered {APPROVED}, it is the default after a timeout: nothing is written. Remove the "
                "default from the approval task, or set it to Reject",
            )
        given = answer.get("params_input")
        reason = given.get("reason") if isinstance(given, Mapping) else None
        return str(user.get("name") or user["id"]), reason if isinstance(reason, str) else ""
    if isinstance(answer, str) and answer.strip().lower() not in _NOBODY:
        return answer.strip(), ""
    raise DecisionError(
        "LC8319", "no decision: nothing is written. Pass the output of an ApprovalOperator, or a name, as `decided_by`"
    )
