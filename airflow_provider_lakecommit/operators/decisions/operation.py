# SPDX-License-Identifier: Apache-2.0
"""What operations on a landing have in common: a preview first, and what was previewed after an approval.

Contract: an operation takes its arguments and a session, and knows nothing of Airflow's tasks. A preview writes
nothing. An approved operation does just what was previewed; where more or something else would come of it by now, it
refuses. It also refuses without a decision: a name, or the answer of an ``ApprovalOperator``, which must say *Approve*
and name the user. A default after a timeout is no decision. The decision and the run are kept in the tables' history.

Failure story: a refusal fails the task for good, with what to do in its text; nothing is written then. A task that was
killed can run again: what is done already is not done twice.
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.exceptions import DecisionError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import LandingSession, RunIdentity
    from airflow_provider_lakecommit.landing import Landing

__all__ = [
    "APPROVED",
    "TEXT",
    "ApprovedOperation",
    "DirectOperation",
    "NothingToDoError",
    "Operation",
    "Preview",
    "decided",
    "decision_by",
    "decision_of",
    "not_as_previewed",
]

APPROVED = "Approve"
"""What an answer has to say: the option of Airflow's ``ApprovalOperator``."""
TEXT = "text"
"""In what is shown: all of it as text, in a form that a web page keeps."""
_NOBODY = ("", "none", "null")


class NothingToDoError(Exception):
    """There is nothing of what is asked for: the task ends skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What would be done: ``values`` are compared and handed on, ``lines`` are for people."""

    values: Mapping[str, Any]
    lines: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """As the task returns it."""
        return {**self.values, TEXT: "\n".join(f"    {line}" for line in self.lines)}


class Operation(ABC):
    """Base of the operations: a frozen dataclass whose fields are the arguments.

    :param name: the spelling of its command, without the program
    """

    name: ClassVar[str]
    command: ClassVar[str] = ""
    """What the tables' history keeps; the name where it is empty."""

    def check(self, landing: Landing) -> None:  # noqa: B027
        """Check values that are stated when the DAG is parsed.

        :raises LakecommitError: they cannot be meant
        :raises ValueError: likewise
        """


class ApprovedOperation(Operation, ABC):
    """Base of the operations that a user approves."""

    @abstractmethod
    def preview(self, session: LandingSession) -> Preview:
        """Return what would be done; nothing is written.

        :raises NothingToDoError: nothing
        """

    @abstractmethod
    def apply(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Do what was agreed to, and not more.

        :raises LakecommitError: it is not what was agreed to any more, or cannot be done
        :raises NothingToDoError: it is done already
        """


class DirectOperation(Operation, ABC):
    """Base of the operations that give nothing up, and so need no approval."""

    @abstractmethod
    def perform(self, session: LandingSession, run: RunIdentity, decision: Decision) -> dict[str, Any]:
        """Do it."""


def decision_of(command: str, context: Context, landing: str, reason: str) -> Decision:
    """Return the decision of a task that needs no approval: that of its DAG."""
    return _decision(command, f"task {context['ti'].task_id}", context, landing, reason)


def decision_by(answer: Any, command: str, context: Context, landing: str, reason: str) -> Decision:
    """Return the decision of a user.

    :param answer: of a task that asked for approval, or a name
    :param reason: by default the one that was given with the answer
    :raises DecisionError: nobody approved
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
    """Who decided, and the reason that was given with it.

    :param answer: of a task that asked a person, or a name
    :raises DecisionError: nobody did, or decided against it
    """
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
                f"nobody gave the answer {APPROVED}, it is the default after a timeout: nothing is written. Take the "
                "default of the task that asks away, or make it Reject",
            )
        given = answer.get("params_input")
        reason = given.get("reason") if isinstance(given, Mapping) else None
        return str(user.get("name") or user["id"]), reason if isinstance(reason, str) else ""
    if isinstance(answer, str) and answer.strip().lower() not in _NOBODY:
        return answer.strip(), ""
    raise DecisionError(
        "LC8319",
        "nobody has decided: nothing is written. Give `decided_by` the output of an ApprovalOperator, or a name",
    )


def not_as_previewed(what: str) -> DecisionError:
    """The error where something else would come of it by now."""
    return DecisionError(
        "LC8320", f"{what}: that was not shown and agreed to, nothing is written. Look again, and decide anew"
    )
