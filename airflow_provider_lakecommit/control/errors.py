# SPDX-License-Identifier: Apache-2.0
"""The errors of reading control events."""

from __future__ import annotations

from airflow_provider_lakecommit.exceptions import WireError


class ControlEventError(WireError):
    """A record is no control event or is damaged, or an event holds what the control topic cannot carry."""


class UnbelievedError(ControlEventError):
    """A record of a landing has no signature that holds, where one is asked for."""
