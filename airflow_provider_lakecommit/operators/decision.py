# SPDX-License-Identifier: Apache-2.0
"""What the operators that mend have in common: first they show, and only with a person's word they do what was shown.

Contract: a task without ``agreed`` writes nothing: it logs what would be done and returns it, for a person to read. A
task with ``agreed`` takes what such a task returned, looks again, and does just that; where more or something else
would come of it by now, it refuses. It also refuses without a decision: a name, or the answer of a task that asked a
person (``ApprovalOperator``), which must say *Approve* and name who did. An answer that nobody gave, like the default
after a timeout, is no decision. Who decided, and the run, are kept in the tables' history.

Failure story: a refusal fails the task for good, with what to do in its text; nothing is written then. A task that was
killed can run again: what is done already is not done twice, and is told.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.exceptions import DecisionError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["APPROVED", "DecisionTask", "NothingToDoError", "Shown", "decided", "decision_of", "not_as_shown"]

APPROVED = "Approve"
"""What an answer has to say: the option of Airflow's ``ApprovalOperator``."""
TEXT = "text"
"""In what is shown: all of it as text, in a form that a web page keeps."""
_NOBODY = ("", "none", "null")


class NothingToDoError(Exception):
    """There is nothing of what is asked for: the task ends skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What would be done: ``values`` are compared and handed on, ``lines`` are for people."""

    values: Mapping[str, Any]
    lines: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """As the task returns it."""
        return {**self.values, TEXT: "\n".join(f"    {line}" for line in self.lines)}


class DecisionTask(LandingTask):
    """Base of the operators that do what a person decides.

    :param landing: the landing, or the path of its YAML spec
    :param agreed: what a task of the same operator and arguments without it returned (``look.output``): just that is
        done. Without it nothing is written: what would be done is shown and returned (templated)
    :param decided_by: who decided, needed with ``agreed``: the answer of an ``ApprovalOperator`` (``approve.output``),
        or a name (templated)
    :param reason: why, kept in the tables' history; by default what was given as ``reason`` with the answer (templated)
    """

    template_fields: Sequence[str] = ("landing_name", "agreed", "decided_by", "reason")
    template_fields_renderers: ClassVar[dict[str, str]] = {"agreed": "json", "decided_by": "json"}
    ui_color = "#f6e3e3"
    command: ClassVar[str]
    """The command that does the same."""

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        agreed: Any = None,
        decided_by: Any = None,
        reason: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        # Said here: an XCom that is not there must not make one that acts into one that shows.
        self.only_shows = agreed is None
        self.agreed = agreed
        self.decided_by = decided_by
        self.reason = reason

    @abstractmethod
    def show(self, session: LandingSession) -> Shown:
        """Look what there is to be done; nothing is written.

        :raises NothingToDoError: nothing
        """

    @abstractmethod
    def act(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Do what was agreed to, and not more.

        :raises LakecommitError: it is not what was agreed to any more, or cannot be done
        :raises NothingToDoError: it is done already
        """

    def execute(self, context: Context) -> dict[str, Any]:
        """Show, or do."""
        with no_retry_in_vain(self):
            try:
                return self._show() if self.only_shows else self._act(context)
            except NothingToDoError as e:
                raise AirflowSkipException(str(e)) from None

    def _show(self) -> dict[str, Any]:
        with self.session() as session:
            shown = self.show(session)
        for line in shown.lines:
            self.log.info("%s", line)
        self.log.info(
            "nothing is written: a task with this one's output as `agreed` does it, once a person has decided"
        )
        return shown.to_dict()

    def _act(self, context: Context) -> dict[str, Any]:
        # Before anything is asked: without a decision no connection is even opened.
        agreed, decision = self._agreed(), self._decision(context)
        self.log.info("decided: %s", decision)
        with self.session() as session:
            return self.act(session, agreed, decision)

    def _agreed(self) -> Mapping[str, Any]:
        found = self.agreed
        if not isinstance(found, Mapping) or TEXT not in found:
            raise DecisionError(
                f"what was agreed to is not there (`agreed` is {type(found).__name__}): nothing is written. Give it "
                "the output of the task that shows it, and see whether that task ran"
            )
        if found.get("landing") != self.landing.name:
            raise DecisionError(
                f"what was agreed to is of landing {found.get('landing')!r}, this task is of {self.landing.name!r}: "
                "nothing is written"
            )
        return found

    def _decision(self, context: Context) -> Decision:
        who, why = decided(self.decided_by)
        ti = context["ti"]
        return Decision(
            command=self.command,
            actor=f"{who} in run {ti.run_id} of DAG {ti.dag_id}",
            host=socket.gethostname(),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            landing=self.landing.name,
            reason=(self.reason or why).strip(),
        )


def decision_of(command: str, context: Context, landing: str, reason: str) -> Decision:
    """What a task does by itself, as its DAG says."""
    ti = context["ti"]
    return Decision(
        command=command,
        actor=f"task {ti.task_id} in run {ti.run_id} of DAG {ti.dag_id}",
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
                f"the answer is {', '.join(map(str, chosen or ())) or 'empty'}, not {APPROVED}: nothing is written"
            )
        if answer.get("timedout") or not isinstance(user, Mapping) or not (user.get("name") or user.get("id")):
            raise DecisionError(
                f"nobody gave the answer {APPROVED}, it is the default after a timeout: nothing is written. Take the "
                "default of the task that asks away, or make it Reject"
            )
        given = answer.get("params_input")
        reason = given.get("reason") if isinstance(given, Mapping) else None
        return str(user.get("name") or user["id"]), reason if isinstance(reason, str) else ""
    if isinstance(answer, str) and answer.strip().lower() not in _NOBODY:
        return answer.strip(), ""
    raise DecisionError(
        "nobody has decided: nothing is written. Give `decided_by` the output of an ApprovalOperator, or a name"
    )


def not_as_shown(what: str) -> DecisionError:
    """The error where something else would come of it by now."""
    return DecisionError(f"{what}: that was not shown and agreed to, nothing is written. Look again, and decide anew")
