# SPDX-License-Identifier: Apache-2.0
"""Triggers that watch control topics and topics. They need brokers only: no catalog, Spark or Java."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {"ended_by_worker": "EndedByWorkerTrigger", "stalled_commits": "StalledCommitTrigger TIMED_OUT guard_to_json"},
)
