# SPDX-License-Identifier: Apache-2.0
"""The note of a DAG run: one line per landing, so that the list of runs shows what was landed.

Contract: workers have no call to write a note. So Airflow's public API writes it, with the connection that
`[lakecommit] api_conn_id` names (type `http`: host of the API server; login and password of a user who may edit DAG
runs, or a token as the password alone). Without that option, no request is sent. A landing's line replaces its earlier
one; lines of users and other tasks stay.

Failure story: if a server returns its own error (5xx), is overloaded (429) or closes the connection, the request is
repeated after each of :data:`PAUSES`. A remaining failure, or a rejection, is one warning in the task's log: the work
of the run is already done. A call may take :data:`SECONDS`; after a timeout there is no further call. Two landings that
end at the same moment may overwrite each other's line.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

SECONDS = 5.0
"""That the API server has for an answer."""
PAUSES = (0.5, 1.0, 2.0)
"""Seconds before it is asked again."""
BUSY = 429
ERROR = 500
LENGTH = 1000
"""Characters that Airflow takes."""

log = logging.getLogger(__name__)


class _RefusedError(RuntimeError):
    """The API server rejected or failed a request."""


class _AgainError(_RefusedError):
    """A retry may succeed."""


def note_run(ti: Any, landing: str, line: str) -> bool:
    """Write a landing's line to the note of a task's run.

    :param ti: the task instance
    :param line: without secrets, because every user who sees the DAG sees its notes
    :returns: whether it was written
    """
    from airflow.sdk.configuration import conf

    conn_id = conf.get("lakecommit", "api_conn_id", fallback="").strip()
    if not conn_id:
        return False
    try:
        _persist(lambda: _write(conn_id, ti.dag_id, ti.run_id, landing, line))
    except Exception as e:
        log.warning("Could not write the run note of landing %s: %s: %s", landing, type(e).__name__, e)
        return False
    return True


def merged(note: str | None, landing: str, line: str) -> str:
    """Return a note with a landing's line in it. A note that is too long ends in an ellipsis; other lines are cut
    first.
    """
    own = f"{landing}: {' '.join(line.split())}"
    lines = (note or "").splitlines()
    positions = [n for n, each in enumerate(lines) if each.startswith(f"{landing}: ")]
    kept = [each for n, each in enumerate(lines) if n not in positions[1:]]
    if positions:
        kept[positions[0]] = own
    else:
        kept.append(own)
    whole = "\n".join(kept)
    return whole if len(whole) <= LENGTH else f"{whole[: LENGTH - 1]}…"


def _persist(act: Callable[[], None]) -> None:
    for pause in PAUSES:
        try:
            return act()
        except _AgainError as e:
            log.debug("Retrying in %s s: %s", pause, e)
            time.sleep(pause)
    return act()


def _write(conn_id: str, dag_id: str, run_id: str, landing: str, line: str) -> None:
    import httpx

    from airflow_provider_lakecommit.hooks.connections import connection
    from airflow_provider_lakecommit.hooks.kafka_connect import rest_settings

    settings = rest_settings(connection(conn_id, "http", "the address of Airflow's API server"))
    path = f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns/{quote(run_id, safe='')}"
    with httpx.Client(
        base_url=settings["url"],
        headers=settings["headers"],
        verify=settings["verify"],
        timeout=SECONDS,
        trust_env=False,
    ) as client:
        token = settings["password"]
        if settings["login"]:
            login = {"username": settings["login"], "password": settings["password"] or ""}
            token = _answer(client, "POST", "/auth/token", json=login)["access_token"]
        client.headers.update({"Authorization": f"Bearer {token}"} if token else {})
        note = _answer(client, "GET", path).get("note")
        if (new_note := merged(note, landing, line)) != note:
            _answer(client, "PATCH", path, params={"update_mask": "note"}, json={"note": new_note})


def _answer(client: httpx.Client, verb: str, path: str, **options: Any) -> dict[str, Any]:
    """:raises _RefusedError: with the status only; request and answer may hold the login"""
    import httpx

    try:
        response = client.request(verb, path, **options)
    except (httpx.NetworkError, httpx.RemoteProtocolError) as e:
        raise _AgainError(f"the API server did not answer: {type(e).__name__}: {e}") from e
    if not response.is_success:
        away = response.status_code >= ERROR or response.status_code == BUSY
        made = _AgainError if away else _RefusedError
        raise made(f"the API server answered {response.status_code} to {response.request.url.path}")
    answer: dict[str, Any] = response.json()
    return answer
