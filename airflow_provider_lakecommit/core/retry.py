# SPDX-License-Identifier: Apache-2.0
"""Blocked ranges that are tried again, automatically after a change or by a user's decision.

A block is *outdated* when the landing's spec or the data table's columns differ from those it was judged by. It is
tried once under each of them, with the landing's own budget, so nothing is given up that the declaration keeps: without
a dead-letter table no record may be rejected. Blocks without recorded rules are compared by spec only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_lakecommit.core.log import Raised
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.rules import UNKNOWN
from airflow_provider_lakecommit.core.state import Blocked, LandingState


def outdated(landing_state: LandingState, spec_version: str, rules: str) -> tuple[Blocked, ...]:
    """Return the blocks judged by another spec or other columns.

    :param rules: the current rules
    """
    blocked = landing_state.blocked
    return tuple(b for b in blocked if b.spec_version != spec_version or b.rules not in (UNKNOWN, rules))


def own_budget(budget: Budget, dead_letter_table: str | None) -> Budget:
    """Return the budget that a landing declares for a slice."""
    return budget if dead_letter_table is not None else Budget(max_records=0, max_ratio=0.0)


def lifted(landing_state: LandingState, blocks: Sequence[Blocked], budget: Budget) -> tuple[LandingState, list[Raised]]:
    """Return the state without these blocks, and the decision to record in the log."""
    if not blocks:
        return landing_state, []
    coverage = Coverage.of(item for b in blocks for item in b.coverage.items())
    raised = Raised(coverage=coverage, budget=budget)
    state = replace(
        landing_state,
        blocked=tuple(b for b in landing_state.blocked if b not in blocks),
        raised=(*landing_state.raised, raised),
        failed=landing_state.failed - coverage,
    )
    return state, [raised]
