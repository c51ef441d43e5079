# SPDX-License-Identifier: Apache-2.0
"""Count dead letters, and the open ones.

Contract: reads only; one pass over the dead-letter table, without keys and values except for requested ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import ABOUT, WHOLE, DeadLetter, Selection, select
from airflow_provider_lakecommit.operations.dead_letters.ledgers import ledgers
from airflow_provider_lakecommit.operations.dead_letters.open_set import State


@dataclass(slots=True, kw_only=True)
class KindCount:
    """Dead letters of one kind and column. ``reason`` is of the first one, ``first`` the position of an open one."""

    kind: str
    reason: str
    states: Counter[State] = field(default_factory=Counter)
    first: str = ""

    def to_dict(self) -> dict[str, Any]:
        states = {state.name.lower(): n for state, n in self.states.items()}
        return {"kind": self.kind, "count": self.states.total(), **states, "reason": self.reason, "first": self.first}


def counted(session: LandingSession, selection: Selection, table: str | None = None) -> list[KindCount]:
    """Return the counts by kind, the most frequent first.

    :raises LakecommitError: see :func:`~airflow_provider_lakecommit.operations.dead_letters.replay.ledgers`
    """
    known = ledgers(session, table)
    open_set, found = known.open_set, dict[str, KindCount]()
    for letter in select(known.dead, session.landing, selection, ABOUT):
        one = found.setdefault(letter.kind, KindCount(kind=letter.kind, reason=letter.row["reason"]))
        state = open_set.state(letter)
        one.states[state] += 1
        if state is State.OPEN and not one.first:
            one.first = where(letter)
    return sorted(found.values(), key=lambda one: -one.states.total())


def open_dead_letters(session: LandingSession, selection: Selection, table: str | None = None) -> Iterator[DeadLetter]:
    """Yield the selected open ones, with key, value and headers, up to the selection's limit.

    :raises LakecommitError: see :func:`~airflow_provider_lakecommit.operations.dead_letters.replay.ledgers`
    """
    known, many = ledgers(session, table), 0
    open_set = known.open_set
    for letter in select(known.dead, session.landing, selection, WHOLE):
        if selection.limit is not None and many >= selection.limit:
            return
        if open_set.state(letter) is State.OPEN:
            many += 1
            yield letter


def where(letter: DeadLetter) -> str:
    """Return the position of a dead letter as text."""
    topic, partition, offset = letter.position
    return f"{topic}[{partition}]@{offset}"
