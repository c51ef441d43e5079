# SPDX-License-Identifier: Apache-2.0
"""The state of a landing in a few plain words: what is wrong, what clears it, and what happens if nobody acts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from airflow_provider_lakecommit.page.declared_landings import UNREAD, UNSEEN
from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.page.observed_cycle import CycleOutcome
from airflow_provider_lakecommit.stall import Verdict

LAST = "; the last one: "
CHECKS = re.compile(r"\[LC6250\].*?(\d+ of \d+ checks refuse [\d,]+ rows)")
BESIDE = "the data table is committed"

IF_NOTHING: Mapping[Verdict, str] = {
    Verdict.STALLED: "Each run tries to commit again and reads nothing new. New records wait in the topic until its "
    "retention deletes them.",
    Verdict.SLOWING: "The next run commits what waits. After some failed cycles in a row, nothing new is read.",
    Verdict.BLOCKED: "These offsets and all later ones of their partitions wait until retention deletes them. Other "
    "partitions go on.",
    Verdict.LOSING: "The table stays without these records.",
    Verdict.SPLIT: "Commits stay late or missing.",
    Verdict.DEAD: "Nothing is committed. Written files wait.",
}
IF_COMMITTED = "the next commit that succeeds"
IF_CHECKED = "a commit whose checks pass, or your decision: take the rows off the branch, or publish them"
IF_DECIDED = "your decision: read them again, allow more rejects, or skip them"
IF_COMPACTED = "a compaction of the tables"
IF_BESIDE = "The data table goes on. Its dead letters wait for the next commit that succeeds."
IF_INDEBTED = "Each run compacts after its commit, and reads again when that is done. New records wait in the topic."
IF_REFUSED = "Each commit checks the rows again. They stay on their branch, and readers do not see them."


class Summary(NamedTuple):
    """``word`` names the state; ``cause`` is the raw text of an error; ``warning`` is worth a look in a calm state."""

    word: str
    headline: str
    cause: str = ""
    clears: str = ""
    if_nothing: str = ""
    warning: str = ""


def summary_of(row: LandingRow) -> Summary:
    verdict, reason, clears = row.found.verdict, row.found.reason, row.found.clears
    if not row.state.landing:
        return Summary(verdict, reason, "", clears, IF_NOTHING.get(verdict, ""))
    match verdict:
        case Verdict.HEALTHY:
            return Summary(verdict, "the newest commits got through", warning=_all_rejected(row))
        case Verdict.UNKNOWN:
            return _unknown(row)
        case Verdict.BLOCKED:
            offsets = sum(len(ranges) for ranges, _, _ in row.state.blocked)
            head = "1 offset is blocked" if offsets == 1 else f"{offsets:,} offsets are blocked"
            return Summary(verdict, f"{head}: decide what becomes of them", "", IF_DECIDED, IF_NOTHING[verdict])
    head, last, cause = reason.partition(LAST)
    if row.state.deferred is not None and not last:
        return Summary(verdict, "nothing is read before a compaction", reason, IF_COMPACTED, IF_INDEBTED)
    if refused := CHECKS.search(cause):
        return Summary(verdict, f"{refused[1]}; readers do not see them", cause, IF_CHECKED, IF_REFUSED)
    return Summary(verdict, head, cause, IF_COMMITTED, IF_BESIDE if BESIDE in head else IF_NOTHING.get(verdict, ""))


def _unknown(row: LandingRow) -> Summary:
    verdict, reason, clears = row.found.verdict, row.found.reason, row.found.clears
    if row.never_ran:
        return Summary("never ran", "its DAG has no run yet", "", clears)
    if reason == UNREAD:
        return Summary("reading", "its control topic is being read")
    if row.running:
        return Summary("first run", "its first window is being read", "", "its first commit")
    if reason == UNSEEN:
        found = "its DAG has run, but no watched control topic has records of it"
        return Summary(verdict, found, "", "its next run, if [lakecommit] page_topics names its control topic")
    return Summary(verdict, reason, "", clears)


def _all_rejected(row: LandingRow) -> str:
    """Return a warning if the newest window with records has only rejected ones."""
    ended = (CycleOutcome.COMPLETE, CycleOutcome.PARTIAL)
    pairs = zip(reversed(row.cycles.cycles), reversed(row.outcomes), strict=True)
    counts = next((c.counts for c, outcome in pairs if outcome in ended and c.counts.records), None)
    if counts is None or counts.rejected < counts.records:
        return ""
    return f"all {counts.rejected:,} records of the newest window were rejected"
