# SPDX-License-Identifier: Apache-2.0
"""A finding of the doctor, and how a failing check becomes one.

Contract: a check yields findings and raises nothing that :func:`looked` does not turn into a finding, so one run shows
all problems. ``FAIL`` keeps a run from landing, ``warn`` may cause problems later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_lakecommit.exceptions import LakecommitError


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check: the observation, and the remedy."""

    check: str
    level: Level
    seen: str
    remedy: str = ""


def ok(check: str, seen: str) -> CheckResult:
    return CheckResult(check=check, level=Level.OK, seen=seen)


def warn(check: str, seen: str, remedy: str) -> CheckResult:
    return CheckResult(check=check, level=Level.WARN, seen=seen, remedy=remedy)


def fail(check: str, seen: str, remedy: str) -> CheckResult:
    return CheckResult(check=check, level=Level.FAIL, seen=seen, remedy=remedy)


def looked(check: str, look: Callable[[], Iterable[CheckResult]]) -> list[CheckResult]:
    """Return the findings of a check; an error of the check becomes a finding."""
    out: list[CheckResult] = []
    try:
        out.extend(look())
    except LakecommitError as e:
        out.append(fail(check, str(e), "follow the message"))
    except Exception as e:  # a failing check must not end the doctor
        out.append(fail(check, f"{type(e).__name__}: {e}", "unexpected error: report it with this line"))
    return out
