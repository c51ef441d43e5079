# SPDX-License-Identifier: Apache-2.0
"""The routes of the page, under `/lakecommit` of Airflow's API server.

Every route is guarded (:mod:`~airflow_provider_lakecommit.page.access`). No request uses brokers, catalog or Spark:
rows come from :class:`~airflow_provider_lakecommit.page.reader.PageReader`, sensors and budgets from Airflow's
database. Nothing is changed.

==================================  ===================================================================================
route                               answer
==================================  ===================================================================================
``/``, ``/assets/…``                the page
``/api/v1/landings``                rows, worst first, paged and searched; with an ETag
``/api/v1/landings/{id}``           one of them, with partitions, cycles, remedies, rejects and decisions; with an ETag
``/api/v1/landings/{id}/trend``     its activity over hours and days, by minute and by quarter of an hour
``/api/v1/landings/{id}/actions``   the actions of the user, if `[lakecommit] page_actions` is on
``/api/v1/changes``                 server-sent events: rows have changed
``/api/v1/openapi.json``            this interface
==================================  ===================================================================================

The built files of the page, and the headers of every answer.

Only files that exist when the app is created are served, by name. Nothing of another origin is loaded, there is no
inline script, and only Airflow may frame the page.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import StreamingResponse

from airflow_provider_lakecommit.core import PendingBudget
from airflow_provider_lakecommit.page.access import GRANT_SECONDS, Viewer, ViewerDep, same_site, viewer, viewer_now
from airflow_provider_lakecommit.page.actions import actions
from airflow_provider_lakecommit.page.answers import Change, LandingList, landing_of, list_json, topics_of
from airflow_provider_lakecommit.page.declared_landings import DeclaredQuery, DeclaredRows
from airflow_provider_lakecommit.page.detail_answers import (
    ActionsAnswer,
    LandingDetail,
    TrendAnswer,
    detail_of,
    trend_of,
)
from airflow_provider_lakecommit.page.landings import LandingRow, search
from airflow_provider_lakecommit.page.operations import OperationQuery
from airflow_provider_lakecommit.page.reader import PageReader
from airflow_provider_lakecommit.page.sensors import HeldSensor, waiting_sensors
from airflow_provider_lakecommit.page.stored_dags import DatabaseReader

VERSION = "1"
MOST_ROWS = 200
TICK_SECONDS = 0.5
ALIVE_SECONDS = 10.0
"""Longest time between two events of a stream."""
STATE_SECONDS = 5.0
DECLARED_SECONDS = 15.0
"""Validity of answers of Airflow's database about declarations."""
ROW_SECONDS = 300.0
"""Validity of the last-24-hours part of a row."""
MOST_WRITTEN = 2000
STREAM_SECONDS = 120.0
"""After this time a stream ends, and the browser opens the next one."""

UNSEEN = "this landing is unknown, or you may not see it"

Guards = [Depends(same_site), Depends(viewer)]


def create_app(reader: PageReader, *, with_actions: bool = False) -> FastAPI:
    app = FastAPI(
        title="Lake commits", version=VERSION, docs_url=None, redoc_url=None, openapi_url=None, dependencies=Guards
    )
    _add_headers(app)
    _add_files(app)
    _add_landings(app, reader, with_actions=with_actions)

    @app.get("/api/v1/changes", response_model=Change)
    async def changes(request: Request, viewer: ViewerDep) -> StreamingResponse:
        events = stream_changes(reader, viewer, partial(viewer_now, request))
        return StreamingResponse(events, media_type="text/event-stream")

    @app.get("/api/v1/openapi.json", include_in_schema=False)
    def openapi() -> dict[str, Any]:
        return get_openapi(title=app.title, version=VERSION, routes=app.routes)

    return app


def _add_headers(app: FastAPI) -> None:
    @app.middleware("http")
    async def bear(request: Request, call_next: Any) -> Any:
        answer = await call_next(request)
        for name, value in HEADERS.items():
            answer.headers[name] = value
        answer.headers.setdefault("Cache-Control", "private, no-cache")
        return answer


def _add_files(app: FastAPI) -> None:
    files = built()

    def served(path: str) -> Response:
        if path not in files:
            raise HTTPException(404, "there is no such file")
        body, kind = files[path]
        return Response(body, media_type=kind)

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return served(INDEX)

    @app.get(f"/{ASSETS}/{{name}}", include_in_schema=False)
    def asset(name: str) -> Response:
        return served(f"{ASSETS}/{name}")


def _add_landings(app: FastAPI, reader: PageReader, *, with_actions: bool) -> None:
    known = DatabaseReader(OperationQuery(), STATE_SECONDS)
    written, sensors = _Written(), DatabaseReader(waiting_sensors, STATE_SECONDS)
    rows_of = DeclaredRows(DatabaseReader(DeclaredQuery(), DECLARED_SECONDS))

    def visible_row(viewer: Viewer, key: str) -> LandingRow:
        row = rows_of.find(reader.board(), key)
        if row is None or not viewer.sees(row):
            raise HTTPException(404, UNSEEN)
        return row

    @app.get("/api/v1/landings", response_model=LandingList)
    def landings(
        request: Request,
        viewer: ViewerDep,
        q: Annotated[str, Query(max_length=200)] = "",
        verdict: Annotated[list[str] | None, Query(max_length=20)] = None,
        dag_id: Annotated[str, Query(max_length=250)] = "",
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        board, sensors_of = reader.board(), _visible(sensors(), viewer)
        rows = [r for r in rows_of(board).values() if viewer.sees(r)]
        found, verdicts = search(rows, text=q, verdicts=verdict or (), dag=dag_id)
        page = [written(r, sensors_of(r), rows_of.budget(r, viewer.dags)) for r in found[offset : offset + limit]]
        return _tagged(request, list_json(board.version, viewer.topics_of(board), verdicts, len(found), offset, page))

    @app.get("/api/v1/landings/{key}", response_model=LandingDetail)
    def landing(request: Request, viewer: ViewerDep, key: str) -> Response:
        row = visible_row(viewer, key)
        found = detail_of(row, _visible(sensors(), viewer)(row), time.time(), rows_of.budget(row, viewer.dags))
        return _tagged(request, found.model_dump_json().encode())

    @app.get("/api/v1/landings/{key}/trend", response_model=TrendAnswer)
    def trend(request: Request, viewer: ViewerDep, key: str) -> Response:
        row = visible_row(viewer, key)
        return _tagged(request, trend_of(row, time.time()).model_dump_json().encode())

    @app.get("/api/v1/landings/{key}/actions", response_model=ActionsAnswer)
    def actions_of(request: Request, viewer: ViewerDep, key: str) -> Response:
        row, reads = visible_row(viewer, key), viewer.dags.__contains__
        found = actions(row, known() if with_actions else {}, reads, viewer.triggers, viewer.edits)
        return _tagged(request, ActionsAnswer(enabled=with_actions, actions=found).model_dump_json().encode())


class _Written:
    """Rows as JSON, cached while a row, its sensors and its budget are the same, for some minutes."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[LandingRow, list[HeldSensor], PendingBudget | None, int, bytes]] = {}

    def __call__(self, row: LandingRow, sensors: list[HeldSensor], budget: PendingBudget | None) -> bytes:
        now = time.time()
        minutes = int(now // ROW_SECONDS)
        known = self._known.get(row.key)
        if known is None or known[0] is not row or known[1:4] != (sensors, budget, minutes):
            if len(self._known) >= MOST_WRITTEN:
                self._known.clear()
            known = (row, sensors, budget, minutes, landing_of(row, sensors, now, budget).model_dump_json().encode())
            self._known[row.key] = known
        return known[4]


def _visible(sensors: Sequence[HeldSensor], viewer: Viewer) -> Callable[[LandingRow], list[HeldSensor]]:
    """Return the sensors of a row, by their guarded group, that the user may see."""
    may_see, by_group = cache(viewer.sees_tasks), defaultdict[tuple[str, str], list[HeldSensor]](list)
    for s in sensors:
        by_group[s.control_topic, s.group].append(s)
    return lambda row: [s for s in by_group.get((row.control_topic.topic, row.group), ()) if may_see(s.dag)]


async def stream_changes(
    reader: PageReader, viewer: Viewer, now: Callable[[Viewer], Awaitable[Viewer]]
) -> AsyncIterator[str]:
    """Yield an event whenever rows change, until the user has logged out.

    :param now: returns what the user may see now; called every :data:`GRANT_SECONDS`
    """
    begun = sent = checked = time.monotonic()
    version: int | None = None
    while time.monotonic() - begun < STREAM_SECONDS:
        if time.monotonic() - checked >= GRANT_SECONDS:
            try:
                viewer, checked = await now(viewer), time.monotonic()
            except HTTPException:
                return
        board = reader.board()
        if board.version != version or time.monotonic() - sent >= ALIVE_SECONDS:
            version, sent = board.version, time.monotonic()
            change = Change(version=board.version, topics=topics_of(viewer.topics_of(board)))
            yield f"event: change\ndata: {change.model_dump_json()}\n\n"
        await asyncio.sleep(TICK_SECONDS)


def _tagged(request: Request, body: bytes) -> Response:
    tag = f'"{sha256(body).hexdigest()[:32]}"'
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type="application/json", headers={"ETag": tag})


STATIC = Path(__file__).with_name("static")
INDEX = "index.html"
ASSETS = "assets"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
UNBUILT = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Lake commits</title>
<p>The page was not built in this checkout: run <code>make ui</code> (Node.js 20 or newer), then restart the API server.
What it shows is at <a href="api/v1/landings">api/v1/landings</a>.</p></html>
"""


def built(folder: Path = STATIC) -> dict[str, tuple[bytes, str]]:
    """Return the files by their path below the page, with their type; without a build, a page that reports it."""
    paths = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.suffix in TYPES]
    found = {p.relative_to(folder).as_posix(): (p.read_bytes(), TYPES[p.suffix]) for p in paths}
    return found if INDEX in found else {INDEX: (UNBUILT, TYPES[".html"])}
