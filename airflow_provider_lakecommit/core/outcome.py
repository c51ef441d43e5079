# SPDX-License-Identifier: Apache-2.0
"""How a run ended, as a table whose first matching row decides.

*Failed*: plan, a group or the commit failed, a slice is in no table, or a range needs a decision. *Success*: something
was published and nothing is missing. *Skipped*: there was nothing to publish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_lakecommit.core.commands import UNBLOCK

FAILED = frozenset({"failed", "upstream_failed"})
"""States of tasks whose work was not done."""

MAX_NAMED = 5
"""Slices and ranges named in a reason; the rest is counted."""

Verdict = Literal["success", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The commit task's report. ``causes`` say why slices were not done, ``stopped`` why planning waits for a user."""

    published: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    reason: str | None = None
    finished: bool = False
    note: str = ""
    causes: tuple[str, ...] = ()
    redundant: int = 0
    stopped: str = ""

    @classmethod
    def from_dict(cls, v: Mapping[str, Any]) -> Commit:
        """Read the dict that the commit task leaves for later tasks of its run."""
        return cls(
            published=tuple(f"{p['table']} snapshot {p['snapshot_id']}" for p in v["published"]),
            waiting=tuple(v["waiting"]),
            missing=tuple(v["missing"]),
            blocked=tuple(v["blocked"]),
            reason=v["reason"],
            finished=v["finished"],
            note=v["note"],
            causes=tuple(v.get("causes", ())),
            redundant=v.get("redundant", 0),
            stopped=v.get("stopped", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """All tasks of one run of a landing, after they have ended.

    ``groups`` are states of write tasks by map index. ``closed`` is missing if the commit task failed. ``failure``,
    ``unplanned`` and ``unwritten`` are the errors of the commit task, the plan task and the first failed group, if
    known.
    """

    plan: str | None
    groups: Mapping[int, str | None]
    commit: str | None
    closed: Commit | None
    failure: str = ""
    unplanned: str = ""
    unwritten: str = ""

    @property
    def failed_groups(self) -> list[int]:
        return sorted(g for g, state in self.groups.items() if state in FAILED)


def outcome_line(verdict: Verdict, reason: str, landed: str) -> str:
    """Return the line for the note of a run; *landed* is shown even if something is missing."""
    if verdict == "success":
        return landed or reason
    return f"{verdict}: {reason}" + (f"; landed: {landed}" if landed else "")


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    name: str
    applies: Callable[[Ended, Commit], bool]
    verdict: Verdict
    reason_for: Callable[[Ended, Commit], str]


def _numbers(items: list[int]) -> str:
    return ", ".join(map(str, items))


def _named(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - MAX_NAMED} more" if len(items) > MAX_NAMED else ""
    return "; ".join(items[:MAX_NAMED]) + more


def _led(commit: Commit, text: str, unwritten: str = "") -> str:
    """Return the text after its cause, if one is known, and before the remedy."""
    more = f" (and {len(commit.causes) - 1} more causes)" if len(commit.causes) > 1 else ""
    cause = f"{commit.causes[0]}{more}" if commit.causes else unwritten
    reason = f"{cause}; {text}" if cause else text
    return f"{reason}; {_HELPS}" if commit.blocked else reason


_HELPS = (
    "needs a hand: after a changed spec or table (`create` changes none that is there) it is tried again by itself, "
    f"else `{UNBLOCK}` (or --raise N, --skip) or LandingOperationOperator; other partitions go on"
)

_TWINS = " (*inactive assets* there mean that two landings have the same name: rename one of them)"
"""Airflow allows one asset of a name, and fails the other's commit task before it starts."""

TABLE = (
    OutcomeRule(
        "plan failed",
        lambda run, _: run.plan in FAILED,
        "failed",
        lambda run, _: (
            f"{run.unplanned}; the window was not planned"
            if run.unplanned
            else "the window was not planned: see the log of the plan task"
        ),
    ),
    OutcomeRule(
        "commit failed",
        lambda run, _: run.commit in FAILED or run.closed is None,
        "failed",
        lambda run, _: (
            f"{run.failure or f'the commit task ended {run.commit}, see its log{_TWINS}'}; it is unknown what was "
            "published; the next run publishes all finished slices"
        ),
    ),
    OutcomeRule(
        "finished before, slices missing",
        lambda _, commit: commit.finished and bool(commit.missing),
        "failed",
        lambda _, commit: (
            f"{commit.note}: that cycle is closed. The next run reads these slices; or clear the plan task of this "
            "run too"
        ),
    ),
    OutcomeRule(
        "finished before",
        lambda _, commit: commit.finished,
        "skipped",
        lambda _, commit: commit.note or "this run had already finished",
    ),
    OutcomeRule(
        "group failed",
        lambda run, _: bool(run.failed_groups),
        "failed",
        lambda run, commit: _led(
            commit,
            f"{len(run.failed_groups)} of {len(run.groups)} groups failed (map index {_numbers(run.failed_groups)})"
            + (f"; the next run reads again what is missing: {_named(commit.missing)}" if commit.missing else ""),
            run.unwritten,
        ),
    ),
    OutcomeRule(
        "slice missing",
        lambda _, commit: bool(commit.missing),
        "failed",
        lambda _, commit: _led(
            commit,
            f"slices of this run were not reported or not kept, the next run reads them: {_named(commit.missing)}",
        ),
    ),
    OutcomeRule(
        "range blocked",
        lambda _, commit: bool(commit.blocked),
        "failed",
        lambda _, commit: f"{_named(commit.blocked)}; {_HELPS}",
    ),
    OutcomeRule(
        "stopped",
        lambda _, commit: bool(commit.stopped),
        "failed",
        lambda _, commit: f"some ranges were not planned and need your decision: {commit.stopped}",
    ),
    OutcomeRule(
        "published",
        lambda _, commit: bool(commit.published),
        "success",
        lambda _, commit: (
            f"published {_named(commit.published)}{commit.note and f'; {commit.note}'}"
            + (f"; {commit.redundant} reports were redundant" if commit.redundant else "")
        ),
    ),
    OutcomeRule(
        "waiting",
        lambda _, commit: bool(commit.waiting),
        "skipped",
        lambda _, commit: f"the written files are kept and published later; waiting: {_named(commit.waiting)}",
    ),
    OutcomeRule("nothing to do", lambda _, __: True, "skipped", lambda _, commit: commit.reason or "nothing new"),
)
"""Read from the top; the last row always applies."""


def decide(run: Ended) -> tuple[Verdict, str]:
    """Return the state of the leaf task, which decides that of the run, and why."""
    commit = run.closed or Commit()
    row = next(row for row in TABLE if row.applies(run, commit))
    return row.verdict, row.reason_for(run, commit)
