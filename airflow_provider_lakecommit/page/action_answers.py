# SPDX-License-Identifier: Apache-2.0
"""The answer of the status API about actions, version 1.

Contract: that of :mod:`~airflow_provider_lakecommit.page.answers`. ``enabled`` is the option of the deployment; without
it there is no action. An action that the user may not run has the reason in ``hindrance``.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel

from airflow_provider_lakecommit.page.actions import Action


class ActionAnswer(BaseModel):
    """A request to Airflow: pause and unpause DAGs, then run one."""

    kind: str
    does: str
    now: str
    dag: str
    conf: dict[str, str]
    pauses: list[str]
    unpauses: list[str]
    asks: bool
    hindrance: str


class ActionsAnswer(BaseModel):
    """All actions of a landing."""

    enabled: bool
    actions: list[ActionAnswer]


def actions_answer(found: Iterable[Action], *, enabled: bool) -> ActionsAnswer:
    # Its fields are those of the action.
    told = [ActionAnswer.model_validate(a, from_attributes=True) for a in found]
    return ActionsAnswer(enabled=enabled, actions=told)
