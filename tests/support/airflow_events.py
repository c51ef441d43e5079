# SPDX-License-Identifier: Apache-2.0
"""The asset events that Airflow has, as its supervisor answers a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from airflow.sdk.api.datamodels._generated import AssetEventResponse, AssetResponse
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventsResult

__all__ = ["stored_events"]


@contextmanager
def stored_events(extras: Sequence[dict[str, Any] | None]) -> Iterator[list[Any]]:
    """Answer each request with events of these extras; yield the requests."""
    requests: list[Any] = []

    def send(request: Any) -> AssetEventsResult:
        requests.append(request)
        asset = AssetResponse(name="any", uri="any://", group="asset")
        events = [
            AssetEventResponse(id=number, timestamp=datetime.now(UTC), extra=extra, asset=asset, created_dagruns=[])
            for number, extra in enumerate(extras)
        ]
        return AssetEventsResult(asset_events=events)

    with patch.object(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), create=True):
        yield requests
