# SPDX-License-Identifier: Apache-2.0
"""Check that no two Airflows have the same deployment id: they would give up each other's runs, and no work gets done.

The sign is a cycle that a run of the same deployment gave up for dead, and that continued. A run that was cleared after
its end does so too, so it is a warning, which names the runs. A cycle that ended with its epoch was not given up for
dead. Two Airflows whose runs never overlap, or have the same names, leave no such sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from airflow_provider_lakecommit.core import CommitFailed, Cycle, CycleClosed, CycleOpened, Entry, SliceReported
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, ok, warn

CHECK = "deployment id"
SHOWN = 3


def lived_on(entries: Iterable[Entry]) -> dict[Cycle, Cycle]:
    """Return the cycles that continued after a run of their deployment gave them up, each with that run's cycle."""
    opened: dict[UUID, CycleOpened] = {}
    given_up: dict[UUID, Cycle] = {}
    epochs: set[UUID] = set()
    out: dict[Cycle, Cycle] = {}
    for e in entries:
        if isinstance(e, CycleOpened):
            opened.setdefault(e.commit_id, e)
            epochs = {t.epoch for t in e.plan.targets} or epochs
            found = (opened[dead] for dead in e.directives.released if dead in opened)
            given_up.update((f.commit_id, e.cycle) for f in found if _given_up_for_dead(f, e.cycle, epochs))
        elif isinstance(e, SliceReported | CommitFailed | CycleClosed) and e.commit_id in given_up:
            out[opened[e.commit_id].cycle] = given_up[e.commit_id]
    return out


def _given_up_for_dead(e: CycleOpened, by: Cycle, epochs: set[UUID]) -> bool:
    """Return True if another run of its deployment gave it up, and not because its epochs are over."""
    another = e.cycle.deployment == by.deployment and (e.cycle.dag, e.cycle.run) != (by.dag, by.run)
    return bool(by.deployment) and another and not epochs.isdisjoint(t.epoch for t in e.plan.targets)


def deployments(session: LandingSession) -> Iterable[CheckResult]:
    try:
        found = lived_on(session.read_state(()).entries)
    except ControlTopicError as e:
        yield ok(CHECK, f"no records could be read yet: {e}")
        return
    if not found:
        yield ok(CHECK, "no run continued after another run of its deployment had given it up")
        return
    shown = ", ".join(f"{c.run} of {c.dag} (by {by.run})" for c, by in list(found.items())[-SHOWN:])
    names = ", ".join(sorted({c.deployment for c in found}))
    yield warn(
        CHECK,
        f"{len(found)} runs of deployment {names} continued after another of its runs had given them up: {shown}",
        "if two Airflows have that [lakecommit] deployment_id, give each its own; runs that were cleared after their "
        "end look the same",
    )
