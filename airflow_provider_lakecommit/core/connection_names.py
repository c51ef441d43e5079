# SPDX-License-Identifier: Apache-2.0
"""Note which Airflow connection settings come from, so that errors can name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONNECTION_ID = "lakecommit.connection"
"""Begins as all keys do that are ours among Kafka settings."""


def named(settings: Mapping[str, Any], conn_id: str) -> dict[str, Any]:
    """Return the settings with the id of their connection, under a key that no client gets."""
    return {**settings, CONNECTION_ID: conn_id}


def connection_suffix(settings: Mapping[str, Any]) -> str:
    """Return a suffix for messages that names the connection; empty for settings of a spec."""
    found = settings.get(CONNECTION_ID)
    return f" (Airflow connection {found!r})" if found else ""
