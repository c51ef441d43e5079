# SPDX-License-Identifier: Apache-2.0
"""Brokers, source topics and the control topic."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "admin": "ClusterAdmin TopicFacts topic_id_text",
        "admin_requests": "DENIED StaleTopicError",
        "config": "LastError bootstrap_servers made servers_of unreachable",
        "consumer_group": "check_no_members offsets_of_group set_group_offsets",
        "copied": "PartitionLog position_in_copy",
        "partition_tail": "CorruptBatch CORRUPTION first_readable PartitionTail READER_SETTINGS STAYS_SECONDS",
        "record": "Headers NO_TIME UNREADABLE_NAME bounded_time headers_of time_of",
        "sample": "ValueOf records_at sample_of sizes",
        "source_topic": "First SourceState SourceTopics",
        "log_truncation": "is_truncation",
    },
)
