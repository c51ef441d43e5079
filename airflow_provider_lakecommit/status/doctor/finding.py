# SPDX-License-Identifier: Apache-2.0
"""A finding of the doctor, and how a failing check becomes one.

Contract: a check yields findings and raises nothing that :func:`checked` does not turn into a finding, so one run shows
all problems. ``FAIL`` keeps a run from landing, ``warn`` may cause problems later. A check that needs what another one
found broken is not tried, and ``skip`` names that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_lakecommit.exceptions import LakecommitError


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check: the observation, and the remedy."""

    check: str
    level: Level
    observed: str
    remedy: str = ""


def ok(check: str, observed: str) -> CheckResult:
    return CheckResult(check=check, level=Level.OK, observed=observed)


def warn(check: str, observed: str, remedy: str) -> CheckResult:
    return CheckResult(check=check, level=Level.WARN, observed=observed, remedy=remedy)


def fail(check: str, observed: str, remedy: str) -> CheckResult:
    return CheckResult(check=check, level=Level.FAIL, observed=observed, remedy=remedy)


def checked(check: str, check_all: Callable[[], Iterable[CheckResult]]) -> list[CheckResult]:
    """Return the findings of a check; an error of the check becomes a finding."""
    out: list[CheckResult] = []
    try:
        out.extend(check_all())
    except LakecommitError as e:
        out.append(fail(check, str(e), "follow the message"))
    except Exception as e:  # a failing check must not end the doctor
        out.append(fail(check, f"{type(e).__name__}: {e}", "unexpected error: report it with this line"))
    return out


def failed(*found: CheckResult) -> str:
    """Return the first check that failed; empty if none did."""
    return next((f.check for f in found if f.level is Level.FAIL), "")


def skipped(check: str, because: str) -> CheckResult:
    return CheckResult(check=check, level=Level.SKIP, observed=f"not checked, because {because!r} failed")


def checked_after(
    needed: Sequence[CheckResult], check: str, check_all: Callable[[], Iterable[CheckResult]]
) -> list[CheckResult]:
    """Return the findings of a check, or that it was skipped because one of the needed checks failed."""
    return [skipped(check, because)] if (because := failed(*needed)) else checked(check, check_all)
