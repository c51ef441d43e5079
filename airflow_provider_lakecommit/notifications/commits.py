# SPDX-License-Identifier: Apache-2.0
"""Notifications by any notifier: once when commits stall, once when they recover.

Contract: two callbacks of a :class:`StalledCommitSensor`, one for its skips, failures and waits, one for its successes.
However often the sensor runs, each transition is sent once. The last sent state is kept in a Variable of Airflow, one
per name, so it outlives runs, workers and deployments; it is written after the notification, so the next run repeats a
failed one. Only the sensor's observation is sent: the sensor leaves it as ``reason`` in the context, with its
``verdict``. A sensor that could not read, or was killed, reports nothing, and so does one that passes on too little
evidence: a stall that fell out of `look_back`, or whose control topic was recreated, has not recovered.

Failure story: an error of the notifier is raised, and logged by Airflow; the state of the task stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier, Variable

if TYPE_CHECKING:
    from airflow.sdk import Context

STALLED, FLOWING = "stalled", "flowing"

Send = Callable[..., Any]


class _TransitionNotifier(BaseNotifier):
    """Sends when the state differs from the last sent one."""

    state = ""
    no_evidence: Collection[str] = ()
    """Verdicts that do not show the state."""

    def __init__(self, send: Send | Sequence[Send], *, name: str | None = None) -> None:
        super().__init__()
        self.send = send
        self.name = name

    def notify(self, context: Context) -> None:
        """Send a changed state."""
        if "reason" not in context or context.get("verdict") in self.no_evidence:
            return
        ti = context["ti"]
        key = f"lakecommit_commits_{self.name or f'{ti.dag_id}.{ti.task_id}'}"
        last = Variable.get(key, default=FLOWING)
        if last == self.state:
            return
        for send in self.send if isinstance(self.send, Sequence) else (self.send,):
            send(context)
        Variable.set(key, self.state, description="last reported state of commits; kept by airflow-provider-lakecommit")


class CommitsStalledNotifier(_TransitionNotifier):
    """Report once that commits stall: for `on_skipped_callback`, `on_failure_callback` or `on_wait_callback`.

    :param send: a notifier (Slack, mail, …) or any function of the context; or several. ``reason`` in the context, and
        in its templates, is the observation
    :param name: name of the watched group; the task's by default. Sensors of one connector in several DAGs with the
        same name report once
    """

    state = STALLED


class CommitsRecoveredNotifier(_TransitionNotifier):
    """Report once that commits recovered: for `on_success_callback`. Arguments of :class:`CommitsStalledNotifier`."""

    state = FLOWING
    no_evidence = ("unknown", "slowing")
