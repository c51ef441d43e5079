# SPDX-License-Identifier: Apache-2.0
"""How a run ended, as one table: the first row that applies decides.

Contract: pure. A run is *failed* when somebody should look (plan, a group or the commit failed, a slice of it is in no
table, a range needs a hand), *success* when something was published and nothing of it is missing, *skipped* when there
was nothing to publish: nothing new, a window that waits for an older one or was landed by others, a run that was
finished before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_provider_lakecommit.core.commands import RESET_BLOCKED

FAILED = frozenset({"failed", "upstream_failed"})
"""Task states that mean that the work of a task was not done."""

MAX_NAMED = 5
"""Slices and ranges named in a reason; the rest is counted."""

Verdict = Literal["success", "skipped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What the commit task reported before it ended. ``published`` names table and snapshot, ``causes`` say why slices
    of the run were not done; ``redundant`` reports told what others had told, and count in nothing; ``stopped`` is why
    no window is planned before a person acts.
    """

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
        """Of the dict that the commit task leaves for later tasks of its run."""
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

    ``groups`` are the states of the write tasks by map index; ``closed`` is absent when the commit task died or failed,
    ``failure`` then is its error, if it could tell; ``unplanned`` is that of the plan task, ``unwritten`` that of the
    first group that failed.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The state of the leaf task, which is that of the run, and why."""

    verdict: Verdict
    reason: str

    def line(self, landed: str) -> str:
        """For the note of a run.

        :param landed: what was landed, which is said also where something is missing
        """
        if self.verdict == "success":
            return landed or self.reason
        return f"{self.verdict}: {self.reason}" + (f"; landed: {landed}" if landed else "")


@dataclass(frozen=True, slots=True)
class OutcomeRule:
    """One row of the table: when it applies, what it means, what it says."""

    name: str
    applies: Callable[[Ended, Commit], bool]
    verdict: Verdict
    says: Callable[[Ended, Commit], str]


def _numbers(items: list[int]) -> str:
    return ", ".join(map(str, items))


def _named(items: tuple[str, ...]) -> str:
    more = f" and {len(items) - MAX_NAMED} more" if len(items) > MAX_NAMED else ""
    return "; ".join(items[:MAX_NAMED]) + more


def _led(commit: Commit, text: str, unwritten: str = "") -> str:
    """The cause first, where one is told; what helps last."""
    more = f" (and {len(commit.causes) - 1} more causes)" if len(commit.causes) > 1 else ""
    cause = f"{commit.causes[0]}{more}" if commit.causes else unwritten
    told = f"{cause}; {text}" if cause else text
    return f"{told}; {_HELPS}" if commit.blocked else told


_HELPS = (
    "needs a hand: after a changed spec or table (`create` changes none that is there) it is tried again by itself, "
    f"else `{RESET_BLOCKED}` (--retry, --raise or --skip) or LandingOperationOperator; other partitions go on"
)

_TWINS = " (*inactive assets* there mean that two landings have the same name: rename one of them)"
"""Airflow has one asset of a name, and fails the commit task of the other before it begins."""

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
    OutcomeRule(
        "nothing to do",
        lambda _, __: True,
        "skipped",
        lambda _, commit: commit.reason or "nothing new",
    ),
)
"""Read from the top; the last row always applies."""


def decide(run: Ended) -> Outcome:
    """The outcome of a run whose other tasks have all ended."""
    commit = run.closed or Commit()
    row = next(row for row in TABLE if row.applies(run, commit))
    return Outcome(verdict=row.verdict, reason=row.says(run, commit))
