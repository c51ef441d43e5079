# SPDX-License-Identifier: Apache-2.0
"""Blocked ranges that are tried again: by themselves, once what they were judged by has changed, or by a person's word.

Contract: pure. A block is *outdated* when the landing's spec, or the columns of its data table, are others than those
of the reading that was blocked: a mistake in them is mended, so nobody is asked. It is tried once by each of them; what
is blocked again stays so. A range is tried under the landing's own budget, so nothing is given up that its declaration
does not give up: where it has no dead-letter table, no record may be rejected.

Failure story: of blocks by earlier releases only the spec is known, and a change of the table's columns does not lift
them: `lakecommit reset blocked --retry` does.
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
    """The blocks that were judged by another spec or other columns.

    :param rules: by which records are judged now
    """
    return tuple(b for b in landing_state.blocked if _differs(b, spec_version, rules))


def _differs(block: Blocked, spec_version: str, rules: str) -> bool:
    return block.spec_version != spec_version or (block.rules != UNKNOWN and block.rules != rules)


def own_budget(budget: Budget, dead_letter_table: str | None) -> Budget:
    """The budget by which a landing judges a slice, as one that a person might state."""
    return budget if dead_letter_table is not None else Budget(max_records=0, max_ratio=0.0)


def lifted(landing_state: LandingState, blocks: Sequence[Blocked], budget: Budget) -> tuple[LandingState, list[Raised]]:
    """The state without these blocks, as it will be once the log says so, and what has to be said."""
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
