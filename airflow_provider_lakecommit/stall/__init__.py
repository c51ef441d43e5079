# SPDX-License-Identifier: Apache-2.0
"""Whether commits get through. Events to state, state to verdict, and what a guard makes of it."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "believed": "Believed is_ours",
        "events": "SeenRecord group_of seen_of",
        "guard": "CALM Guard GuardAnswer Ruling",
        "policy": "POLICY_FIELDS StallPolicy",
        "state": "EventKind Seen StallRules State waiting",
        "verdict": "Diagnosis Verdict judge",
        "watch": "CommitWatch Commits MOST_OTHERS WatchedTopic commits_of",
    },
)
