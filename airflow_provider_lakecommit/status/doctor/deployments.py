# SPDX-License-Identifier: Apache-2.0
"""Check that no two Airflows have one deployment id. They give up each other's runs, which they do not know, and end
each other's tasks; nothing is lost or doubled by it, and nothing gets done.

Contract: the newest records of the landing are read, nothing is written. What can be seen is a cycle that a run of the
same deployment gave up for dead, and that went on all the same. A run that was cleared after it had ended does so too,
so that it is a warning, which names the runs. What ended with its epoch was not given up for dead.

Failure story: two Airflows whose runs never overlap, or have the same names, leave no such sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from airflow_provider_lakecommit.core import CommitFailed, Cycle, CycleClosed, CycleOpened, Entry, SliceReported
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, ok, warn

__all__ = ["deployments", "lived_on"]

CHECK = "deployment id"
SHOWN = 3


def lived_on(entries: Iterable[Entry]) -> dict[Cycle, Cycle]:
    """The cycles that went on after a run of their deployment had given them up, each with the one that did."""
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
    """By another run of its deployment, and not because its epochs are over."""
    another = e.cycle.deployment == by.deployment and (e.cycle.dag, e.cycle.run) != (by.dag, by.run)
    return bool(by.deployment) and another and not epochs.isdisjoint(t.epoch for t in e.plan.targets)


def deployments(session: LandingSession) -> Iterable[CheckResult]:
    """What is seen of it."""
    try:
        found = lived_on(session.read_state(()).entries)
    except ControlTopicError as e:
        yield ok(CHECK, f"nothing was read yet: {e}")
        return
    if not found:
        yield ok(CHECK, "no run went on that another one of its deployment had given up")
        return
    shown = ", ".join(f"{c.run} of {c.dag} (by {by.run})" for c, by in list(found.items())[-SHOWN:])
    names = ", ".join(sorted({c.deployment for c in found}))
    yield warn(
        CHECK,
        f"{len(found)} runs of deployment {names} went on after another of its runs had given them up: {shown}",
        "if two Airflows have that [lakecommit] deployment_id, give each its own; runs that were cleared after their "
        "end do so too",
    )
