# SPDX-License-Identifier: Apache-2.0
"""The errors of reading control events."""

from __future__ import annotations

from airflow_provider_lakecommit.exceptions import WireError


class ControlEventError(WireError):
    """A record is no control event or is damaged, or an event has a value that the control topic cannot hold."""


class UnverifiedError(ControlEventError):
    """A record of a landing lacks a required valid signature."""
