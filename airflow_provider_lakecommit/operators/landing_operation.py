# SPDX-License-Identifier: Apache-2.0
"""One operation of the command line on a landing as a task.

Contract: a task without ``agreed`` writes nothing: it logs a preview and returns it for a user to read. A task with
``agreed`` takes the preview of such a task, scans again, and does exactly that. Operations and their arguments are in
:data:`OPERATIONS`; both are checked when the DAG is parsed. An operation that gives nothing up needs no approval, and
runs at once.

Failure story: that of :mod:`~airflow_provider_lakecommit.operations.decisions.operation`. A task with nothing to do
ends skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecommit.core import PUBLISH_NOW, spoken
from airflow_provider_lakecommit.exceptions import DecisionError, SpecError
from airflow_provider_lakecommit.landing import Landing, span_of
from airflow_provider_lakecommit.operations import (
    NothingToDoError,
    Operation,
    ReplayDeadLetters,
    ResetAssert,
    ResetBlocked,
    ResetHard,
    ResetKey,
    ResetOffsets,
)
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain
from airflow_provider_lakecommit.operators.tasks.adopt import Adopt
from airflow_provider_lakecommit.operators.tasks.arguments import check_arguments, filled, one_of
from airflow_provider_lakecommit.operators.tasks.decision import decision_by, decision_of
from airflow_provider_lakecommit.operators.tasks.migrate import Migrate

if TYPE_CHECKING:
    from airflow.sdk import Context
    from airflow.sdk.definitions.mappedoperator import OperatorPartial

    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession, RunIdentity

__all__ = ["LandingOperationOperator"]

TEXT, OPERATION = "text", "operation"
"""Keys of a preview: its full text, in a form that a web page keeps, and its operation."""


@dataclass(frozen=True, kw_only=True)
class PublishNow(Operation):
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
        return {"landing": session.landing.name, **done}


OPERATIONS: Mapping[str, type[Operation]] = {
    kind.name: kind
    for kind in (
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
}
""" ``reset offsets``, ``dead-letters``, … """


class LandingOperationOperator(LandingTask):
    """Preview an operation on a landing, or do what a user has approved.

    Returns what the command prints with ``--json``.

    :param landing: the landing, or the path of its YAML spec
    :param operation: name of the command without the program: ``reset offsets``, ``reset hard``, ``reset blocked``,
        ``reset assert``, ``reset migrate``, ``reset key``, ``connect adopt``, ``dead-letters`` (replays them), or
        ``publish-now``
    :param arguments: those of the operation, by name (templated)
    :param agreed: the output of a task of the same operation and arguments without ``agreed`` (``preview.output``):
        exactly that is done. Without it nothing is written: a preview is logged and returned (templated)
    :param decided_by: who approved, needed with ``agreed``: the answer of an ``ApprovalOperator`` (``approve.output``),
        or a name (templated)
    :param reason: why, kept in the tables' history; by default the reason in the answer (templated)

    .. seealso:: :ref:`howto/operator:LandingOperationOperator`
    """

    template_fields: Sequence[str] = ("landing_name", "operation", "arguments", "agreed", "decided_by", "reason")
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(("arguments", "agreed", "decided_by"), "json")
    ui_color = "#f6e3e3"

    @classmethod
    def partial(cls, **kwargs: Any) -> OperatorPartial:
        """Return the partial operator of the base class; check the operation now.

        :raises SpecError: an operation or an argument that is unknown
        """
        if "operation" in kwargs:
            task = _task_name(kwargs)
            kind = OPERATIONS[one_of(kwargs["operation"], OPERATIONS, f"{task}: operation")]
            if "arguments" in kwargs:
                check_arguments(kind, kwargs["arguments"] or {}, f"{task}: {kwargs['operation']}")
        return super().partial(**kwargs)

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        operation: str,
        arguments: Mapping[str, Any] | None = None,
        agreed: Any = None,
        decided_by: Any = None,
        reason: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        self.operation = one_of(operation, OPERATIONS, f"{_task_name(kwargs)}: operation")
        self.arguments = arguments
        # Decided here: a missing XCom must not turn an action into a preview.
        self.only_previews = agreed is None
        self.agreed = agreed
        self.decided_by = decided_by
        self.reason = reason
        kind = OPERATIONS[self.operation]
        if kind is PublishNow and not (agreed is None and decided_by is None):
            raise SpecError("LC8337", f"{self._name}: it needs no approval: leave out `agreed` and `decided_by`")
        given = {} if arguments is None else arguments
        check_arguments(kind, given, self._name)
        if isinstance(given, Mapping):
            _check_values(kind(**given), self.landing, self._name)

    @property
    def _name(self) -> str:
        return f"{_task_name({'task_id': self.task_id})}: {self.operation}"

    def execute(self, context: Context) -> dict[str, Any]:
        """Preview or apply."""
        with no_retry_in_vain(self):
            try:
                arguments = {} if self.arguments is None else self.arguments
                operation = filled(OPERATIONS[self.operation], arguments, self._name)
                _check_values(operation, self.landing, self._name)
                return self._execute(operation, context)
            except NothingToDoError as e:
                raise AirflowSkipException(str(e)) from None

    def _execute(self, operation: Operation, context: Context) -> dict[str, Any]:
        command = operation.command or operation.name
        if isinstance(operation, PublishNow):
            decision = decision_of(command, context, self.landing.name, self.reason)
            with self.session() as session:
                return operation.perform(session, self.identity(context), decision)
        if self.only_previews:
            return self._preview(operation)
        # Before any connection is opened.
        agreed = self._agreed()
        decision = decision_by(self.decided_by, command, context, self.landing.name, self.reason)
        self.log.info("decision: %s", decision)
        with self.session() as session:
            return operation.apply_agreed(session, agreed, decision)

    def _preview(self, operation: Operation) -> dict[str, Any]:
        with self.session() as session:
            values, lines = operation.propose(session)
        for line in lines:
            self.log.info("%s", line)
        self.log.info("Nothing is written. After an approval, a task with this output as `agreed` applies it")
        text = "\n".join(f"    {line}" for line in lines)
        return {"landing": self.landing.name, **values, TEXT: text, OPERATION: self.operation}

    def _agreed(self) -> Mapping[str, Any]:
        found = self.agreed
        if not isinstance(found, Mapping) or TEXT not in found:
            raise DecisionError(
                "LC8339",
                f"the preview is missing (`agreed` is {type(found).__name__}): nothing is written. Pass the output "
                "of the preview task, and check that this task ran",
            )
        for what, own in (("landing", self.landing.name), (OPERATION, self.operation)):
            if found.get(what) != own:
                raise DecisionError(
                    "LC8340",
                    f"the preview is of {what} {found.get(what)!r}, this task is of {own!r}: nothing is written",
                )
        return found


def _task_name(kwargs: Mapping[str, Any]) -> str:
    return f"LandingOperationOperator {kwargs.get('task_id', '')!r}"


def _check_values(operation: Operation, landing: Landing, task: str) -> None:
    """:raises SpecError: a value is invalid"""
    try:
        operation.check(landing)
    except (SpecError, ValueError) as e:
        raise SpecError("LC8341", f"{task}: {e}") from None
