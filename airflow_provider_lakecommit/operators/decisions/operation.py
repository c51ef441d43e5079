# SPDX-License-Identifier: Apache-2.0
"""Common base of the operations on a landing: first a preview, then exactly the preview after an approval.

Contract: an operation takes its arguments and a session, and knows nothing of Airflow's tasks. A preview writes
nothing. An approved operation does exactly what was previewed, and refuses if its effect would now be larger or
different. It also refuses without a decision: a name, or the answer of an ``ApprovalOperator``, which must be *Approve*
and name the user. A default after a timeout is no decision. The tables' history keeps the decision and the run.

Failure story: a refusal fails the task for good and states what to do; nothing is written then. A task that was
killed can run again: finished work is not repeated.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.exceptions import DecisionError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import LandingSession, RunIdentity
    from airflow_provider_lakecommit.landing import Landing

APPROVED = "Approve"
"""The required answer: the option of Airflow's ``ApprovalOperator``."""
_NOBODY = ("", "none", "null")


class NothingToDoError(Exception):
    """There is nothing to do: the task ends skipped."""


Preview = tuple[dict[str, Any], list[str]]
"""The effect of an operation: values, which are compared and handed on, and lines for display."""


class Operation(ABC):
    """Base of the operations: a frozen dataclass whose fields are the arguments.

    :param name: the spelling of its command, without the program
    """

    name: ClassVar[str]
    command: ClassVar[str] = ""
    """The name in the tables' history; ``name`` if empty."""

    def check(self, landing: Landing) -> None:  # noqa: B027
        """Check values that are known when the DAG is parsed.

        :raises LakecommitError: a value is invalid
        :raises ValueError: likewise
        """


class ApprovedOperation(Operation, ABC):
    """Base of the operations that a user approves."""

    @abstractmethod
    def preview(self, session: LandingSession) -> Preview:
        """Return the effect; write nothing.

        :raises NothingToDoError: there is no effect
        """

    @abstractmethod
    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Do exactly what was approved.

        :raises LakecommitError: the effect differs from the approved one, or is impossible
        :raises NothingToDoError: it is done already
        """


class DirectOperation(Operation, ABC):
    """Base of the operations that give nothing up and need no approval."""

    @abstractmethod
    def perform(self, session: LandingSession, run: RunIdentity, decision: Decision) -> dict[str, Any]:
        """Do it."""


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
    return Decision(
        command=command,
        actor=f"{user} in run {ti.run_id} of DAG {ti.dag_id}",
        host=socket.gethostname(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        landing=landing,
        reason=reason.strip(),
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
        "LC8319",
        "no decision: nothing is written. Pass the output of an ApprovalOperator, or a name, as `decided_by`",
    )


def not_as_previewed(what: str) -> DecisionError:
    """Return the error for an effect that differs from the preview."""
    return DecisionError(
        "LC8320", f"{what}: this was not previewed and approved, nothing is written. Preview again, and decide again"
    )
