# SPDX-License-Identifier: Apache-2.0
"""Landings of a set that were, and have no topic any more: a topic of a pattern that is deleted leaves no trace in what
the brokers list, and what it had that no table has went with it.

Contract: pure. Told from what the control log still has of such a landing: the topics of its newest plan, and whether
all that it had seen of them was in its tables. Topics that the set excludes are nobody's any more by its own word, and
a landing that has one left is none of these.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened, Entry
from airflow_provider_lakecommit.landing_set import LandingSet

__all__ = ["GoneLanding", "gone_landing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoneLanding:
    """One of them. ``whole``: all that its newest cycle had seen is in its tables."""

    name: str
    topics: tuple[str, ...]
    tables: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        lost = "" if self.whole else ", and what the newest cycle had seen of them was not all landed"
        tables = ", ".join(self.tables) or "its table"
        return (
            f"{self.name}: its topics are gone, or not to be seen by this principal any more ({', '.join(self.topics)})"
            f"{lost}; {tables} stays as it is; name them in `exclude` to hear no more of it"
        )


def gone_landing(
    declared: LandingSet, name: str, entries: Sequence[Entry], known: Collection[str]
) -> GoneLanding | None:
    """Is a landing that the set does not have now one whose topics are gone?

    :param entries: of its live lane, as far as they are known
    :param known: all topics that there are
    """
    opened = next((e for e in reversed(entries) if isinstance(e, CycleOpened) and e.plan.ends), None)
    if opened is None:
        return None
    topics = sorted({partition.topic for partition in opened.plan.ends})
    if any(t in known or any(re.fullmatch(each, t) for each in declared.exclude) for t in topics):
        return None
    ends = (e.valid_through for e in entries if isinstance(e, CycleClosed) and e.commit_id == opened.commit_id)
    through = next(ends, None)
    return GoneLanding(
        name=name,
        topics=tuple(topics),
        tables=tuple(t.table for t in opened.plan.targets),
        whole=through is not None and through >= opened.plan.asked_at,
    )
