# SPDX-License-Identifier: Apache-2.0
"""Topic ids as text, and what is reported while brokers do not answer."""

from __future__ import annotations

import base64
import logging
import socket
import uuid
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import Uuid

from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import admin_requests
from airflow_provider_lakecommit.kafka.admin import ClusterAdmin, topic_id_text


@pytest.mark.parametrize("topic_id", [uuid.UUID(int=2**128 - 1), uuid.UUID(int=0xF8 << 120), uuid.UUID(int=7)])
def test_a_topic_id_reads_as_in_kafkas_own_tools(topic_id: uuid.UUID) -> None:
    halves = (int.from_bytes(half, "big", signed=True) for half in (topic_id.bytes[:8], topic_id.bytes[8:]))
    assert topic_id_text(Uuid(*halves)) == base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def test_a_wait_for_brokers_is_reported_once_long_before_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admin_requests, "SILENT_SECONDS", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        unused = f"127.0.0.1:{taken.getsockname()[1]}"
        settings, away = {"bootstrap.servers": unused}, SourceUnavailableError
        admin = ClusterAdmin(settings, timeout=1.0, away=away, refused=SourceError, remedy=lambda: "ask")
        with caplog.at_level(logging.WARNING), pytest.raises(SourceUnavailableError, match="LC2011"):
            admin.cluster_id()
        with pytest.raises(SourceUnavailableError):
            admin.topics(["orders"])
    [logged] = [r.getMessage() for r in caplog.records if r.name == admin_requests.__name__]
    assert logged.startswith(f"asking for the cluster id: no answer from Kafka at {unused} yet: ")
    assert logged.endswith("; waiting for it")
    assert "onnect" in logged


def test_a_request_that_the_client_loses_ends_as_one_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen once in a day of tests: the future of a request is never done, long after the request's own timeout."""
    monkeypatch.setattr(admin_requests, "LOST_SECONDS", 0.2)
    admin = ClusterAdmin(
        {"bootstrap.servers": "a:1"}, timeout=0.2, away=SourceUnavailableError, refused=SourceError, remedy=str
    )
    deaf = SimpleNamespace(describe_cluster=lambda **_: Future[object](), poll=lambda _: 0)
    admin._made = deaf  # type: ignore[assignment]
    with pytest.raises(SourceUnavailableError, match="LC2011"):
        admin.cluster_id()
    assert admin._made is None, "the next question is for another client"
    assert admin_requests._LOST.pop() is deaf
