# SPDX-License-Identifier: Apache-2.0
"""The parts of the control topic that need no broker."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from airflow_provider_lakecommit.control.control_log import ControlRecord, control_record
from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.control_topic_settings import partition_of
from airflow_provider_lakecommit.exceptions import WireError

# A port nobody listens on: whoever contacts it is found out by the error.
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def test_a_group_keeps_its_partition_over_versions() -> None:
    assert [partition_of(f"lakecommit-{name}", 6) for name in ("orders", "flights", "größe")] == [1, 2, 1]


def test_groups_are_spread_over_all_partitions() -> None:
    spread = Counter(partition_of(f"lakecommit-landing-{n}", 6) for n in range(600))
    assert set(spread) == set(range(6))
    assert max(spread.values()) < 2 * min(spread.values())


def test_a_record_that_is_too_large_is_refused_before_anything_is_sent() -> None:
    with (
        ControlTopic("control", NOWHERE).writer("tx", 3) as writer,
        pytest.raises(WireError, match=r"control\[3\].*10001\d\d.*1000000:.*message\.max\.bytes.*LC2364"),
    ):
        writer.send([(b"k", b"small", []), (b"k", b"v" * 1_000_000, [("h", b"x")])])


def test_the_limit_of_a_record_is_the_users_and_counts_headers() -> None:
    control = ControlTopic("control", {**NOWHERE, "message.max.bytes": 2000})
    with control.writer("tx", 0) as writer, pytest.raises(WireError, match="LC2364"):
        writer.send([(b"k", b"v", [("plan", b"p" * 2000)])])


def test_a_record_keeps_header_order_and_has_its_time_in_utc() -> None:
    message = Message(
        topic="control",
        partition=2,
        offset=41,
        key=b"k",
        value=None,
        headers=[("a", b"1"), ("b", None), ("a", b"2")],
        timestamp=(TIMESTAMP_CREATE_TIME, 1_767_225_600_123),
    )
    assert control_record(message) == ControlRecord(
        partition=2,
        offset=41,
        timestamp=datetime(2026, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC),
        key=b"k",
        value=None,
        headers=(("a", b"1"), ("b", b""), ("a", b"2")),
    )
