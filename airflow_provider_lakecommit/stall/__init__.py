# SPDX-License-Identifier: Apache-2.0
"""Whether commits get through: events to state, state to verdict, verdict to the answer of a guard."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "observed_events": "ObservedRecord VerifiedRecords group_of is_ours observed_record",
        "guard": "CALM Guard GuardAnswer Ruling",
        "policy": "POLICY_FIELDS StallPolicy",
        "group_state": "EventKind ObservedEvent StallRules State waiting",
        "verdict": "Diagnosis Verdict evaluate",
        "watch": "CommitWatch Commits MOST_OTHERS WatchedTopic commits_of",
    },
)
