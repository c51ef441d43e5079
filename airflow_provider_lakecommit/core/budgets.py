# SPDX-License-Identifier: Apache-2.0
"""Budgets of rejected records per slice, and of unpublished work.

Dead letters are judged per slice, before it is reported, so that the decision does not depend on what else runs. The
ratio applies only from ``1 / max_ratio`` rejected records on, else a small slice with one bad record would stop a
healthy landing. A ratio of 0 allows none.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.exceptions import SpecError


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
    enough = rejected * budget.max_ratio >= 1 or budget.max_ratio == 0
    if enough and rejected > budget.max_ratio * records:
        return f"{rejected} rejected records of {records} are over dead_letters.max_ratio={budget.max_ratio:g}"
    return None


def surely_over(rejected: int, most: int, budget: Budget) -> bool:
    """Return True if a slice of at most *most* records exceeds its budget even if the rest is good."""
    return over_budget(rejected, most, budget) is not None


def parse_budget(text: str) -> tuple[int, float]:
    """Parse ``500:0.2``, dead letters and their ratio; the ratio is 1 by default.

    :raises SpecError: *text* has another form
    """
    records, _, ratio = text.strip().partition(":")
    try:
        most = int(records), float(ratio or 1)
    except ValueError:
        most = (-1, 0.0)
    if most[0] < 0 or not 0 <= most[1] <= 1:
        raise SpecError("LC1301", f"{text!r} is not N or N:RATIO, as in 500 or 500:0.2")
    return most
