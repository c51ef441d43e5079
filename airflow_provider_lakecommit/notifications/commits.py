# SPDX-License-Identifier: Apache-2.0
"""Tells people by any notifier of theirs: once when commits stall, once when they are back.

Contract: two callbacks of a :class:`StalledCommitSensor`, one for its skips, failures and waits, one for its successes.
However often the sensor runs, each transition is sent once. What was sent last is kept in a Variable of Airflow, one
for each name, so it outlives runs, workers and deployments; it is kept after it was sent, so that a failure to send is
made good by the next run. Only what the sensor saw is sent: it leaves that as ``reason`` in the context. A sensor that
could not look, or was killed, says nothing of commits.

Failure story: an error of the notifier that sends is raised, and logged by Airflow; the state of the task stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, Variable

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["CommitsRecoveredNotifier", "CommitsStalledNotifier"]

STALLED, FLOWING = "stalled", "flowing"

Send = Callable[..., Any]


class _TransitionNotifier(BaseNotifier):
    """Sends when the state is not the one that was sent last."""

    state = ""

    def __init__(self, send: Send | Sequence[Send], *, name: str | None = None) -> None:
        super().__init__()
        self.send = send
        self.name = name

    def notify(self, context: Context) -> None:
        """Send, if it is news."""
        if "reason" not in context:
            return
        ti = context["ti"]
        key = f"lakecommit_commits_{self.name or f'{ti.dag_id}.{ti.task_id}'}"
        last = Variable.get(key, default=FLOWING)
        if last == self.state:
            return
        for send in self.send if isinstance(self.send, Sequence) else (self.send,):
            send(context)
        Variable.set(key, self.state, description="what was told last of commits; kept by airflow-provider-lakecommit")


class CommitsStalledNotifier(_TransitionNotifier):
    """Reports once that commits stall: for `on_skipped_callback`, `on_failure_callback` or `on_wait_callback`.

    :param send: what sends: a notifier (Slack, mail, …) or anything that takes the context; or several. ``reason`` in
        the context, and in its templates, is what was seen
    :param name: of what is watched; that of the task by default. Sensors of one connector in several DAGs tell it once
        if they give the same name
    """

    state = STALLED


class CommitsRecoveredNotifier(_TransitionNotifier):
    """Once when they are back: for `on_success_callback`. Takes the same as :class:`CommitsStalledNotifier`."""

    state = FLOWING
