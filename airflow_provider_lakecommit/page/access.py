# SPDX-License-Identifier: Apache-2.0
"""Authorization of the page: Airflow's auth manager decides, for every request.

Airflow does not guard the apps of plugins, so every route depends on :func:`viewer`, and :func:`same_site` refuses
requests of other origins. Users see a row if they may read one of its DAGs. Rows without a DAG of this deployment are
visible to users who may read the custom view :data:`VIEW`. Other rows do not exist for the user.

The imports are Airflow's internals: if they change, the import fails, and the page answers no request
(:mod:`~airflow_provider_lakecommit.plugins`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import (
    GetUserDep,
    bearer_scheme,
    collect_request_tokens,
    resolve_user_from_token,
)
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool

from airflow_provider_lakecommit.page.landings import Board, LandingRow, TopicReading

VIEW = "Lake commits"
GRANT_SECONDS = 5.0
"""Validity of the auth manager's answers, as a page sends several requests a second."""
MOST_KNOWN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """The rights of one user. ``teams`` is the team of each DAG that has one."""

    user: Any
    dags: frozenset[str]
    views_all: bool
    teams: Mapping[str, str | None] = field(default_factory=dict)

    def sees(self, row: LandingRow) -> bool:
        return any(dag in self.dags for dag in row.dags) if row.dags else self.views_all

    def topics_of(self, board: Board) -> tuple[TopicReading, ...]:
        """Return the topics of visible rows; the errors of others would name their brokers."""
        if self.views_all:
            return board.topics
        topics = {row.control_topic for row in board.rows.values() if self.sees(row)}
        return tuple(t for t in board.topics if t.control_topic in topics)

    def sees_tasks(self, dag: str) -> bool:
        return dag in self.dags and get_auth_manager().is_authorized_dag(
            method="GET", access_entity=DagAccessEntity.TASK_INSTANCE, details=self._details(dag), user=self.user
        )

    def triggers(self, dag: str) -> bool:
        return get_auth_manager().is_authorized_dag(
            method="POST", access_entity=DagAccessEntity.RUN, details=self._details(dag), user=self.user
        )

    def edits(self, dag: str) -> bool:
        return get_auth_manager().is_authorized_dag(method="PUT", details=self._details(dag), user=self.user)

    def _details(self, dag: str) -> DagDetails:
        return DagDetails(id=dag, team_name=self.teams.get(dag))


_known: dict[str, tuple[float, Viewer]] = {}


def viewer(user: GetUserDep) -> Viewer:
    """Return the requesting user, or 401 and 403 from Airflow's own dependency."""
    name, now = f"{type(user).__name__}\x1f{user.get_id()}", time.monotonic()
    found = _known.get(name)
    if found is not None and now - found[0] < GRANT_SECONDS:
        return found[1]
    manager = get_auth_manager()
    dags = frozenset(manager.get_authorized_dag_ids(user=user, method="GET"))
    views_all = manager.is_authorized_custom_view(method="GET", resource_name=VIEW, user=user)
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    teams = DagModel.get_dag_id_to_team_name_mapping(list(dags))
    _known[name] = (now, Viewer(user=user, dags=dags, views_all=views_all, teams=teams))
    return _known[name][1]


async def viewer_now(request: Request, before: Viewer) -> Viewer:
    """Return what the user of an open stream may see now; without a token (public access) the user stays.

    :raises HTTPException: the user has logged out, or the token has expired
    """
    tokens = collect_request_tokens(request, await bearer_scheme(request))
    user = await resolve_user_from_token(tokens[0]) if tokens else before.user
    return await run_in_threadpool(viewer, user)


ViewerDep = Annotated[Viewer, Depends(viewer)]


def same_site(request: Request) -> None:
    """Refuse requests of a page of another origin; following a link to the page is allowed."""
    site, sender = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    followed = request.headers.get("sec-fetch-dest") == "document"
    foreign = sender is not None and urlsplit(sender).netloc != request.headers.get("host")
    if foreign or (site in ("cross-site", "same-site") and not followed):
        raise HTTPException(403, "the request is from a page of another origin")
