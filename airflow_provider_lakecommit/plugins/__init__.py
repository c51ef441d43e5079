# SPDX-License-Identifier: Apache-2.0
"""What Airflow loads of this provider in each of its processes, by the entry point `airflow.plugins`.

Contract: the class names what there is and does nothing; every Airflow process pays for what is imported here, so it is
next to nothing.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_lakecommit.plugins import before_forks

__all__ = ["LakecommitPlugin"]


class LakecommitPlugin(AirflowPlugin):
    """A listener that has a scheduler load libraries before it forks tasks."""

    name = "lakecommit"
    listeners: list[Any] = [before_forks]  # noqa: RUF012 - Airflow declares it so
