# SPDX-License-Identifier: Apache-2.0
"""Budgets of rejected records, and of unpublished work.

The ratio is that of a window, however it is sliced: the commit evaluates it over all reports
(:mod:`~airflow_provider_lakecommit.core.window_budget`). A writer blocks a slice with more than ``max_records``, one
that alone exceeds the ratio of its window, and one that exceeds its own budget, which an operator has given it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.exceptions import SpecError

LEAST_ALL = 5
"""Records of a window that are too many if all are rejected, though they are no sample of the ratio."""
WARNED_RATIO = 0.01
"""The share of rejected records from which a warning reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBudget:
    """Limits of open and unpublished work per table; ``None`` is no limit. ``bytes`` are those of source records."""

    open_cycles: int | None = None
    slices: int | None = None
    files: int | None = None
    bytes: int | None = None


def over_budget(rejected: int, records: int, budget: Budget) -> str | None:
    """Return why ``rejected`` of ``records`` exceeds the budget, or ``None``."""
    if rejected > budget.max_records:
        return f"{rejected} rejected records of {records} are over dead_letters.max_records={budget.max_records}"
    if over_ratio(rejected, records, budget.max_ratio):
        return f"{rejected} rejected records of {records} are over dead_letters.max_ratio={budget.max_ratio:g}"
    return None


def over_ratio(rejected: int, records: int, max_ratio: float) -> bool:
    """Return True if too large a share is rejected.

    ==========================  =========================================
    ratio                       too many rejected records
    ==========================  =========================================
    0                           any
    up to 1                     ``1 / max_ratio`` and more, which is the smallest sample, and more than the ratio
    below 1                     all records, if there are :data:`LEAST_ALL`
    ==========================  =========================================
    """
    enough = rejected * max_ratio >= (max_ratio > 0) or LEAST_ALL <= rejected >= records
    return enough and rejected > max_ratio * records


def parse_budget(text: str) -> tuple[int, float]:
    """Parse ``500:0.2``, dead letters and their ratio; the ratio is 1 by default.

    :raises SpecError: *text* has another form
    """
    records, _, ratio = text.strip().partition(":")
    with suppress(ValueError):
        most = int(records), float(ratio or 1)
        if most[0] >= 0 and 0 <= most[1] <= 1:
            return most
    raise SpecError("LC1301", f"{text!r} is not N or N:RATIO, as in 500 or 500:0.2")
