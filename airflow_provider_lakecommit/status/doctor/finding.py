# SPDX-License-Identifier: Apache-2.0
"""A finding of the doctor, and how a look that fails becomes one.

Contract: a check yields findings and raises nothing that :func:`looked` does not turn into a finding, so one run shows
everything that is wrong. ``FAIL`` is what keeps a run from landing, ``warn`` what may bite later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_lakecommit.exceptions import LakecommitError

__all__ = ["CheckResult", "Level", "fail", "looked", "ok", "warn"]


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was looked at: what was seen, and what helps."""

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
    """What a look finds; one that ends in an error has found that."""
    out: list[CheckResult] = []
    try:
        out.extend(look())
    except LakecommitError as e:
        out.append(fail(check, str(e), "the message says what helps"))
    except Exception as e:  # a doctor that dies of what he looks at is of no use
        out.append(fail(check, f"{type(e).__name__}: {e}", "this is not expected: report it with this line"))
    return out
