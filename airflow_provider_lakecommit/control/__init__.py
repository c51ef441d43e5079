# SPDX-License-Identifier: Apache-2.0
"""The control topic: the bytes of its records, their signatures, reading and writing them."""

from airflow_provider_lakecommit.core.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "backlog_reader": "BacklogWatch",
        "bounded_records": "offset_of",
        "control_log": (
            "BEYOND RECENT ControlLog ControlRecord ControlTopicInfo LogReader Recent group_of landing_of read_decided"
        ),
        "control_topic": "ControlTopic",
        "control_topic_settings": "NOT_EVERYWHERE PARTITIONS TOPIC_SETTINGS partition_of",
        "control_watch": "ControlWatch",
        "control_writer": "ControlWriter",
        "coverage": "coverage_from_json coverage_to_json offsets_from_json offsets_to_json spans_from_json",
        "data_file": "DataFile PartitionField PartitionValue",
        "packed_text": "CORRUPTION bounded_json check_text count pack text unpack",
        "errors": "ControlEventError",
        "events": "decode glance head",
        "headers": "CORRUPT_BATCH HEADER",
        "ledger_text": "LEDGER_LIMIT decode_ledger encode_ledger",
        "payloads": "CommitComplete CommitToTable DataComplete DataWritten PayloadType StartCommit TableReference",
        "plan_json": (
            "MAX_SLICES YEARS plan_digest plan_from_json plan_to_json refusal_from_json time_from_json time_to_json"
        ),
        "records": "Outgoing Sender entry_from_values entry_of lanes_in read_entries table_reference",
    },
)
