# SPDX-License-Identifier: Apache-2.0
"""Stopping a connector where its Kafka Connect cannot."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.exceptions import ConnectorError
from airflow_provider_lakecommit.operations.kafka_connect.connector import KnownConnector, stop
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest


def test_a_connect_that_cannot_stop_is_reported_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(*_: object) -> None:
        raise ConnectorError("LC9999", "no connector 'sink'")

    monkeypatch.setattr(ConnectRest, "stop", not_there)
    rest = ConnectRest(url="http://x")
    connector = KnownConnector(name="sink", rest=rest, kafka={}, control_topic="control", group="mine", config={})
    with pytest.raises(ConnectorError, match="LC7501"):
        stop(connector)
