# SPDX-License-Identifier: Apache-2.0
"""The one error of the control-event codec."""

from __future__ import annotations

from airflow_provider_lakecommit.exceptions import WireError

__all__ = ["ControlEventError"]


class ControlEventError(WireError):
    """A record is no control event or is damaged, or an event holds what the control topic cannot carry."""
