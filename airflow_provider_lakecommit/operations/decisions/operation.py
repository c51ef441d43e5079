# SPDX-License-Identifier: Apache-2.0
"""One operation on a landing, for the command line and for tasks: its arguments, and the functions that do it.

Contract: an operation knows nothing of options or of Airflow's tasks. Its class is light, because DAG files import it.
The module that does the work has these functions and is loaded when one is called:

- ``preview(session, request)`` returns the effect, and writes nothing
- ``propose(session, request)`` returns it as JSON and lines for an approval, and raises if there is none
- ``confirm(session, request, agreed)`` returns the present effect, and refuses one that is larger or different
- ``apply(session, request, found, decision)`` does exactly this effect

A command applies the preview that it has just shown; a task applies the confirmed proposal of another task.

Failure story: a refusal fails for good and states what to do; nothing is written then. What was killed can run again:
finished work is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.exceptions import DecisionError

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Decision
    from airflow_provider_lakecommit.cycle import LandingSession
    from airflow_provider_lakecommit.landing import Landing

Proposal = tuple[dict[str, Any], list[str]]
"""The effect of an operation for an approval: values, which are compared later, and lines for display."""


class NothingToDoError(Exception):
    """There is nothing to do: a task ends skipped."""


class Operation:
    """Base of the operations: a frozen dataclass whose fields are the arguments.

    :param name: the spelling of its command, without the program
    """

    name: ClassVar[str]
    command: ClassVar[str] = ""
    """The name in the tables' history; ``name`` if empty."""

    home: ClassVar[str] = ""
    """The module that does the work, within the operations."""

    def check(self, landing: Landing) -> None:
        """Check values that are known when a DAG is parsed.

        :raises LakecommitError: a value is invalid
        :raises ValueError: likewise
        """

    def preview(self, session: LandingSession) -> Any:
        """Return the effect; write nothing."""
        return self._module.preview(session, self)

    def propose(self, session: LandingSession) -> Proposal:
        """Return the effect for an approval; write nothing.

        :raises NothingToDoError: there is no effect
        """
        values, lines = self._module.propose(session, self)
        return values, [*lines]

    def apply(self, session: LandingSession, found: Any, decision: Decision) -> dict[str, Any]:
        """Do exactly what was previewed.

        :raises LakecommitError: it is impossible by now
        """
        return dict(self._module.apply(session, self, found, decision))

    def apply_agreed(self, session: LandingSession, agreed: Mapping[str, Any], decision: Decision) -> dict[str, Any]:
        """Do exactly what was approved.

        :param agreed: the values of the proposal
        :raises LakecommitError: the effect differs from the approved one, or is impossible
        :raises NothingToDoError: it is done already
        """
        return self.apply(session, self._module.confirm(session, self, agreed), decision)

    def works_in(self) -> str:
        """Return the module that does the work; it may depend on the arguments."""
        return self.home

    @property
    def _module(self) -> Any:
        return import_module(f"airflow_provider_lakecommit.operations.{self.works_in()}")


def not_as_previewed(what: str) -> DecisionError:
    """Return the error for an effect that differs from the preview."""
    return DecisionError(
        "LC8320", f"{what}: this was not previewed and approved, nothing is written. Preview again, and decide again"
    )
