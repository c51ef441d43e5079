# SPDX-License-Identifier: Apache-2.0
"""`lakecommit pause`, `resume` and `publish-now`: whether a landing plans windows, and the end of open ones."""

from __future__ import annotations

from argparse import Namespace
from typing import Any
from uuid import uuid4

from airflow_provider_lakecommit.cli.runs.process import identity
from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, ends_with_preview
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import PAUSE, PUBLISH_NOW, RESUME, spoken
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.operations import publish_now
from airflow_provider_lakecommit.operations.decisions import pause as words
from airflow_provider_lakecommit.status import read_status


def pause(session: LandingSession, options: Namespace, output: Output) -> int:
    """Plan no more windows; with ``--drain`` publish the records that open ones have read."""
    return _switch(session, options, output, f"{spoken(PAUSE)} --drain" if options.drain else spoken(PAUSE))


def resume(session: LandingSession, options: Namespace, output: Output) -> int:
    return _switch(session, options, output, spoken(RESUME))


def publish(session: LandingSession, options: Namespace, output: Output) -> int:
    name = session.landing.name
    if options.dry_run:
        return _preview(session, options, output, ends=True)
    actor = decision_of(spoken(PUBLISH_NOW), name, options.reason).actor
    output.answer({"landing": name, **_publish(session, options, f"{actor} requested publication now")})
    return Exit.DONE


def _switch(session: LandingSession, options: Namespace, output: Output, command: str) -> int:
    resumes, drains = command == spoken(RESUME), getattr(options, "drain", False)
    if options.dry_run:
        return _preview(session, options, output, ends=drains, plans=resumes)
    action = words.resume if resumes else words.suspend
    done = action(session, decision_of(command, session.landing.name, options.reason))
    if drains:
        done["published"] = _publish(session, options, "the landing is drained")
    output.answer(done)
    return Exit.DONE


def _publish(session: LandingSession, options: Namespace, why: str) -> dict[str, Any]:
    reason = f"{why}{options.reason and f': {options.reason}'}"
    return publish_now(session, identity(uuid4()), reason, wait=options.wait.total_seconds())


def _preview(
    session: LandingSession, options: Namespace, output: Output, *, ends: bool, plans: bool | None = None
) -> int:
    found = read_status(session, None)
    ending = [str(c.cycle.commit_id) for c in found.cycles if c.live(found.at) and c.plan.slices] if ends else []
    values = {"landing": found.landing, "suspended": found.suspended or None, "would_end": ending}
    lines = []
    if plans is not None:
        now = f"is suspended by {found.suspended}" if found.suspended else "is not suspended"
        does = "plan windows again" if plans else "plan no more windows"
        lines.append(f"landing {found.landing} {now}; it would {does}")
    if ends:
        lines.append(f"{len(ending)} open windows would end and be published")
        if waits := max(t.pending_slices for t in found.tables):
            lines.append(f"{waits} reported slices wait to be published")
    return int(ends_with_preview(options, output, values, lines, gives_up=False) or Exit.DONE)
