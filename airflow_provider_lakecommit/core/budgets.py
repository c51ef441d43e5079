# SPDX-License-Identifier: Apache-2.0
"""Budgets: when a slice has too many rejected records to be published without a person, and how much may be pending.

Contract: dead letters are judged per slice before it is reported, so that the decision does not depend on what else
runs. The count is a hard limit. The ratio is judged only from ``1 / max_ratio`` rejected records on: below that, a
small slice with one bad record would stop a landing that is healthy. A ratio of 0 allows none at all. Whether a slice
is over its budget whatever else is in it is known before all of it is read: :func:`surely_over`. What is pending is
judged when a window is planned, by :mod:`~airflow_provider_lakecommit.core.planning.admission`.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.exceptions import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBudget:
    """How much of a landing may be under way and unpublished, in each of its tables; ``None`` is no limit. ``bytes``
    are those of source records.
    """

    open_cycles: int | None = None
    slices: int | None = None
    files: int | None = None
    bytes: int | None = None


def over_budget(rejected: int, records: int, budget: Budget) -> str | None:
    """Why ``rejected`` of ``records`` is over the budget, or ``None``."""
    if rejected > budget.max_records:
        return f"{rejected} rejected records of {records} are over dead_letters.max_records={budget.max_records}"
    enough = rejected * budget.max_ratio >= 1 or budget.max_ratio == 0
    if enough and rejected > budget.max_ratio * records:
        return f"{rejected} rejected records of {records} are over dead_letters.max_ratio={budget.max_ratio:g}"
    return None


def surely_over(rejected: int, most: int, budget: Budget) -> bool:
    """Return True if a slice exceeds its budget even if all remaining records are good.

    :param most: records that it may have, read or not
    """
    return over_budget(rejected, most, budget) is not None


def parse_budget(text: str) -> tuple[int, float]:
    """Dead letters and their ratio, as in ``500:0.2``; without a ratio all of the records may be some.

    :raises SpecError: *text* is not that
    """
    records, _, ratio = text.strip().partition(":")
    try:
        most = int(records), float(ratio or 1)
    except ValueError:
        most = (-1, 0.0)
    if most[0] < 0 or not 0 <= most[1] <= 1:
        raise SpecError("LC1301", f"{text!r} is not N or N:RATIO, as in 500 or 500:0.2")
    return most
