# SPDX-License-Identifier: Apache-2.0
"""Airflow's simple auth manager as of a deployment with teams: a user ``<name>_of_<dag>`` may read that DAG alone."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

DAGS = frozenset({"land_orders", "land_clicks"})


class TeamAuthManager(SimpleAuthManager):
    """Who is of no team may read all DAGs, and the custom views."""

    def get_authorized_dag_ids(self, *, user: Any, **_: Any) -> set[str]:
        only = _only(user)
        return set(DAGS) if only is None else {only}

    def is_authorized_dag(self, *, user: Any, details: Any = None, **more: Any) -> bool:
        only = _only(user)
        mine = only is None or (details is not None and details.id == only)
        return mine and super().is_authorized_dag(user=user, details=details, **more)

    def is_authorized_custom_view(self, *, user: Any, **more: Any) -> bool:
        return _only(user) is None and super().is_authorized_custom_view(user=user, **more)


def _only(user: Any) -> str | None:
    return user.get_name().partition("_of_")[2] or None
