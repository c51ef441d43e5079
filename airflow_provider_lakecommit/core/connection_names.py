# SPDX-License-Identifier: Apache-2.0
"""Which connection of Airflow some settings are from, so that an error names what is to be corrected.

Contract: pure. :func:`named` notes the id beside the settings, under a key that no client is given; :func:`whose` is
for messages, and empty where settings are from a spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CONNECTION_ID = "lakecommit.connection"
"""Begins as all keys do that are ours among Kafka settings."""


def named(settings: Mapping[str, Any], conn_id: str) -> dict[str, Any]:
    """Settings that know their connection."""
    return {**settings, CONNECTION_ID: conn_id}


def whose(settings: Mapping[str, Any]) -> str:
    """Follows the address of a server, or the name of a catalog, in a message."""
    found = settings.get(CONNECTION_ID)
    return f" (Airflow connection {found!r})" if found else ""
