# SPDX-License-Identifier: Apache-2.0
"""Telemetry of landings: metrics, lineage, hours of asset events. Nothing here can fail or delay a task."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "hours": "HOUR hour_key whole_hours",
        "lineage": "Commit catalog_namespace kafka_namespace lineage_of",
        "metrics": "COMMIT_FAILURES RUNS STALLED Sample closed_samples opened_samples",
        "send": "start_for_commands",
    },
)
