# SPDX-License-Identifier: Apache-2.0
"""The page on its real routes and a real control topic, without an Airflow around it: its users may see everything, and
what Airflow's database would answer is stated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from airflow_provider_lakecommit.page import access
from airflow_provider_lakecommit.page import app as page_app
from airflow_provider_lakecommit.page.access import Viewer, viewer
from airflow_provider_lakecommit.page.declared_landings import DeclaredLanding, DeclaredQuery
from airflow_provider_lakecommit.page.landings import PageTopic
from airflow_provider_lakecommit.page.operations import KnownDag
from airflow_provider_lakecommit.page.reader import PageReader
from airflow_provider_lakecommit.page.sensors import HeldSensor, waiting_sensors
from tests.support import waiting

__all__ = ["Known", "PageServer", "page_server"]

DEPLOYMENT = "live-test"


@dataclass(slots=True, kw_only=True)
class Known:
    """What Airflow's database knows."""

    sensors: tuple[HeldSensor, ...] = ()
    declared: tuple[DeclaredLanding, ...] = ()
    dags: Mapping[str, KnownDag] = field(default_factory=dict)


class _Everybody:
    """An auth manager that allows everything."""

    def is_authorized_dag(self, **_: Any) -> bool:
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PageServer:
    """``boards`` are control topics by the name under which their page is."""

    url: str
    known: Known

    def page(self, board: str) -> str:
        return f"{self.url}/{board}/lakecommit/"


@contextmanager
def page_server(kafka: Mapping[str, Any], boards: Mapping[str, str]) -> Iterator[PageServer]:
    """Serve a page for each control topic of *boards*."""
    known, root = Known(), FastAPI()
    unrestricted = Viewer(user=None, dags=_All(), views_all=True)

    def answer(query: Any, _: float) -> Any:
        if query is waiting_sensors:
            return lambda: known.sensors
        return (lambda: known.declared) if isinstance(query, DeclaredQuery) else (lambda: known.dags)

    async def same(user: Viewer) -> Viewer:
        return user

    readers: list[PageReader] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_app, "DatabaseReader", answer)
        patch.setattr(page_app, "viewer_now", lambda _, user: same(user))
        patch.setattr(access, "get_auth_manager", _Everybody)
        for name, topic in boards.items():
            place = PageTopic("kafka_default", topic)
            readers.append(PageReader(lambda place=place: (place,), lambda _: kafka, DEPLOYMENT))
            made = page_app.create_app(readers[-1], with_actions=True)
            made.dependency_overrides[viewer] = lambda: unrestricted
            root.mount(f"/{name}/lakecommit", made)
        server = uvicorn.Server(uvicorn.Config(root, host="127.0.0.1", port=0, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, name="page-server", daemon=True)
        thread.start()
        waiting.until(lambda: server.started, 60, "the page's server")
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield PageServer(url=f"http://127.0.0.1:{port}", known=known)
        finally:
            server.should_exit = True
            thread.join()
            for reader in readers:
                reader.close()


class _All(frozenset[str]):
    """All DAGs."""

    def __contains__(self, _: object) -> bool:
        return True
