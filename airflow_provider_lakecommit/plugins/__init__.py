# SPDX-License-Identifier: Apache-2.0
"""The parts of this provider that Airflow loads in each of its processes, by the entry point `airflow.plugins`.

Contract: the class lists the parts and does nothing; every Airflow process pays for imports here, so there are almost
none.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider_lakecommit.plugins import before_forks
from airflow_provider_lakecommit.plugins.page import PageApp

PREFIX = "/lakecommit"
PAGE = f"{PREFIX[1:]}/"
"""Relative, so that it stays below the path of `[api] base_url`."""


class LakecommitPlugin(AirflowPlugin):
    """A listener that loads libraries in a scheduler before it forks tasks, and the page "Lake commits"."""

    name = "lakecommit"
    listeners: list[Any] = [before_forks]  # noqa: RUF012 - declared so by Airflow
    fastapi_apps: list[Any] = [{"app": PageApp(), "url_prefix": PREFIX, "name": "Lake commits"}]  # noqa: RUF012
    external_views: list[Any] = [  # noqa: RUF012
        {"name": "Lake commits", "href": PAGE, "destination": "nav", "category": "browse", "url_route": "lakecommits"},
        {
            "name": "Lake commits",
            "href": f"{PAGE}?dag_id={{DAG_ID}}",
            "destination": "dag",
            "url_route": "lakecommits-dag",
        },
        {
            "name": "Lake commits",
            "href": f"{PAGE}?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "lakecommits-run",
        },
        {
            "name": "Lake commits",
            "href": f"{PAGE}?dag_id={{DAG_ID}}&run_id={{RUN_ID}}&task_id={{TASK_ID}}",
            "destination": "task_instance",
            "url_route": "lakecommits-task",
        },
    ]
