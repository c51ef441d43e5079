# SPDX-License-Identifier: Apache-2.0
"""The page's app as Airflow mounts it: created at the first request.

Contract: every Airflow process loads plugins, but only API servers answer requests, so nothing of the page is imported
before the first one.

Failure story: closed. If the app cannot be created for any reason, this is logged and every request gets a 503: a page
without its guards must serve nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_LOG = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


class PageApp:
    """An ASGI app that becomes the page with its first request."""

    def __init__(self, make: Callable[[], App] | None = None) -> None:
        self._make = make or _page
        self._app: App | None = None
        self._lock: asyncio.Lock | None = None

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        if scope["type"] == "lifespan":
            # Airflow runs the lifespan of FastAPI apps only; there is nothing to start here.
            return
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            if self._app is None:
                self._app = await asyncio.to_thread(self._made)
        await self._app(scope, receive, send)

    def _made(self) -> App:
        try:
            return self._make()
        except Exception:
            _LOG.exception("the page Lake commits cannot be created; every request gets a 503")
            return _closed


async def _closed(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    del scope, receive
    body = b"the page Lake commits could not be made; the log of the API server says why"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _page() -> App:
    from airflow.configuration import conf

    from airflow_provider_lakecommit.hooks import Settings, kafka_settings
    from airflow_provider_lakecommit.page import PageReader, create_app, page_topics

    settings = Settings.read()
    places = page_topics(conf.get("lakecommit", "page_topics"), settings.control_topic)
    reader = PageReader(lambda: places, kafka_settings, settings.deployment_id)
    # Its threads hold Kafka clients, which must be closed while Python still runs.
    atexit.register(reader.close)
    return create_app(reader, with_actions=conf.getboolean("lakecommit", "page_actions"))
