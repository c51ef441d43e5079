# SPDX-License-Identifier: Apache-2.0
"""Read-only reports on a landing: its state, its history, and a proof of its rows."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "doctor.examine": "examine",
        "doctor.finding": "CheckResult Level",
        "doctor.roles": "LANDING_ROLES Role",
        "history": "read_history",
        "partition_status": "PartitionStatus",
        "status": "Status TableStatus read_status to_dict",
        "status_rules": "StatusVerdict status_verdict",
        "table_history": "Finding Severity",
        "verified": "verify_tables",
        "verify": "check_landing verified_text verified_to_dict",
    },
)
