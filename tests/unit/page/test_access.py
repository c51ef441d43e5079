# SPDX-License-Identifier: Apache-2.0
"""Which users may see what, and for how long an open stream of events trusts the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from airflow.models.dag import DagModel
from fastapi import HTTPException, Request

from airflow_provider_lakecommit.page import access, app
from airflow_provider_lakecommit.page.access import Viewer, viewer, viewer_now
from airflow_provider_lakecommit.page.app import stream_changes
from airflow_provider_lakecommit.page.landings import Board

VIEWER = Viewer(user="ann", dags=frozenset(), views_all=True)


@dataclass
class User:
    name: str

    def get_id(self) -> str:
        return self.name


@dataclass
class Manager:
    """An auth manager that allows everything to the holders of a token, and keeps the team of each request."""

    tokens: dict[str, User] = field(default_factory=dict)
    teams: list[str | None] = field(default_factory=list)

    async def get_user_from_token(self, token: str) -> User:
        if token not in self.tokens:
            raise HTTPException(403)
        return self.tokens[token]

    def get_authorized_dag_ids(self, **_: Any) -> set[str]:
        return {"land_orders", "land_clicks"}

    def is_authorized_custom_view(self, **_: Any) -> bool:
        return True

    def is_authorized_dag(self, *, details: Any, **_: Any) -> bool:
        self.teams.append(details.team_name)
        return True


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    made = Manager()
    monkeypatch.setattr(access, "_known", {})
    monkeypatch.setattr(access, "get_auth_manager", lambda: made)
    monkeypatch.setattr("airflow.api_fastapi.core_api.security.get_auth_manager", lambda: made)
    teams = {"land_orders": "blue"}
    monkeypatch.setattr(
        DagModel, "get_dag_id_to_team_name_mapping", lambda ids: {d: teams[d] for d in ids if d in teams}
    )
    return made


class Reader:
    """The boards of a page that changes between any two looks."""

    def __init__(self) -> None:
        self._version = 0

    def board(self) -> Board:
        self._version += 1
        return Board(version=self._version)


def stream(now: Callable[[Viewer], Awaitable[Viewer]]) -> AsyncIterator[str]:
    return stream_changes(Reader(), VIEWER, now)  # type: ignore[arg-type]


def test_a_stream_ends_at_the_first_check_after_a_logout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "TICK_SECONDS", 0.0)
    monkeypatch.setattr(app, "GRANT_SECONDS", 0.0)
    checks = 0

    async def now(user: Viewer) -> Viewer:
        nonlocal checks
        checks += 1
        if checks > 3:
            raise HTTPException(401)
        return user

    async def collected() -> list[str]:
        return [event async for event in stream(now)]

    assert len(asyncio.run(collected())) == 3


def request(**headers: str) -> Request:
    return Request({"type": "http", "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()]})


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer t1"}, {"Cookie": "_token=t1"}], ids=["bearer", "cookie"])
def test_an_open_stream_is_checked_by_its_own_token(manager: Manager, headers: dict[str, str]) -> None:
    manager.tokens["t1"] = User("ann")
    assert asyncio.run(viewer_now(request(**headers), VIEWER)).user == User("ann")
    del manager.tokens["t1"]
    with pytest.raises(HTTPException):
        asyncio.run(viewer_now(request(**headers), VIEWER))


def test_a_user_of_public_access_has_no_token_and_stays(manager: Manager) -> None:
    public = Viewer(user=User("anonymous"), dags=frozenset(), views_all=False)
    assert asyncio.run(viewer_now(request(), public)).user == User("anonymous")


def test_the_auth_manager_is_given_the_team_of_each_dag(manager: Manager) -> None:
    user = viewer(User("ann"))  # type: ignore[arg-type]
    for right in (user.sees_tasks, user.triggers, user.edits):
        assert right("land_orders")
        assert right("land_clicks")
    assert manager.teams == ["blue", None] * 3
