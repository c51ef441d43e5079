# SPDX-License-Identifier: Apache-2.0
"""The page in Airflow's processes: nothing until it is requested, and closed when it cannot be made."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from airflow_provider_lakecommit.plugins import LakecommitPlugin
from airflow_provider_lakecommit.plugins.page import PageApp

REQUEST = {"type": "http", "method": "GET", "path": "/", "headers": []}


async def _ask(app: PageApp, times: int = 1) -> list[dict[str, Any]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    await asyncio.gather(*(app(dict(REQUEST), receive, send) for _ in range(times)))
    return sent


def test_a_page_that_cannot_be_made_answers_no_request(caplog: pytest.LogCaptureFixture) -> None:
    def make() -> Any:
        raise ImportError("no name 'GetUserDep' in airflow")

    sent = asyncio.run(_ask(PageApp(make)))
    assert (sent[0]["status"], b"could not be made" in sent[1]["body"]) == (503, True)
    assert "GetUserDep" in caplog.text


def test_it_is_made_once_however_many_request_at_once() -> None:
    made: list[int] = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "done"})

    def make() -> Any:
        made.append(1)
        return page

    assert len(asyncio.run(_ask(PageApp(make), 8))) == 8
    assert made == [1]


@pytest.mark.heavy
def test_a_process_that_loads_the_plugin_imports_nothing_of_the_page() -> None:
    code = (
        "import sys, airflow_provider_lakecommit.plugins;"
        "heavy = ('fastapi', 'confluent_kafka', 'pyiceberg', 'pyspark', 'airflow_provider_lakecommit.page');"
        "print([m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_views_stay_behind_the_path_of_the_deployment_and_have_routes_of_their_own() -> None:
    views = LakecommitPlugin.external_views
    assert not any(view["href"].startswith("/") for view in views)
    assert len({view["url_route"] for view in views}) == len(views)
    assert {view["destination"] for view in views} == {"nav", "dag", "dag_run", "task_instance"}
