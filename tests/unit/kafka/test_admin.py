# SPDX-License-Identifier: Apache-2.0
"""Topic ids as text."""

from __future__ import annotations

import base64
import uuid

import pytest
from confluent_kafka import Uuid

from airflow_provider_lakecommit.kafka.admin import topic_id_text


@pytest.mark.parametrize("topic_id", [uuid.UUID(int=2**128 - 1), uuid.UUID(int=0xF8 << 120), uuid.UUID(int=7)])
def test_a_topic_id_reads_as_in_kafkas_own_tools(topic_id: uuid.UUID) -> None:
    halves = (int.from_bytes(half, "big", signed=True) for half in (topic_id.bytes[:8], topic_id.bytes[8:]))
    assert topic_id_text(Uuid(*halves)) == base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
