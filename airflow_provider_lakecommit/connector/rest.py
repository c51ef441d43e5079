# SPDX-License-Identifier: Apache-2.0
"""The REST interface of Kafka Connect: how a connector is, pause, resume, stop, restart.

Contract: every call may be made again; what is so already stays so. Connect answers most of them before they are done:
:meth:`ConnectRest.wait_for` looks until they are. While workers rebalance (409), start or shut down (503) a call is
made again, until its deadline.

Failure story: a worker that cannot be reached, refuses or takes too long is a :class:`ConnectError`, a connector that
is not there a :class:`ConnectorError`. No message shows a password, not even one in the address.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from airflow_provider_lakecommit.exceptions import ConnectError, ConnectorError
from airflow_provider_lakecommit.redaction import redacted

__all__ = ["ConnectRest", "ConnectorStatus", "Part"]

T = TypeVar("T")

AGAIN = frozenset({409, 503})
LOOK_SECONDS = 0.5
REQUEST_SECONDS = 30.0
TOLD = 300
"""Characters of an answer or a trace that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The connector itself, or a task of it. ``trace`` is the whole of it, of one that has failed."""

    name: str
    state: str
    worker: str
    trace: str = ""

    @property
    def failed(self) -> bool:
        return self.state == "FAILED"

    @property
    def cause(self) -> str:
        """The first line of the trace, and that of the exception at its root, which says more."""
        lines = [line.strip() for line in self.trace.splitlines() if line.strip()]
        roots = [line for line in lines[1:] if line.startswith("Caused by: ")]
        told = [*lines[:1], *(f"({roots[-1][0].lower()}{roots[-1][1:]})" if roots else "",)]
        return " ".join(text[:TOLD] for text in told if text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStatus:
    """A connector and its tasks, as its worker says."""

    connector: Part
    tasks: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.connector, *self.tasks)

    @property
    def dead(self) -> tuple[Part, ...]:
        """What of it has failed."""
        return tuple(part for part in self.parts if part.failed)

    @property
    def is_running(self) -> bool:
        """Does all of it run? A connector without tasks has only begun."""
        return bool(self.tasks) and all(part.state == "RUNNING" for part in self.parts)

    @property
    def is_paused(self) -> bool:
        """Is all of it paused that has not failed?"""
        return all(part.state == "PAUSED" or part.failed for part in self.parts)

    @property
    def is_stopped(self) -> bool:
        """Are all of its tasks gone?"""
        return self.connector.state == "STOPPED" and not self.tasks

    def to_dict(self) -> dict[str, Any]:
        """For XCom and JSON."""
        return {
            "connector": self.connector.state,
            "tasks": {part.name: part.state for part in self.tasks},
            "dead": {part.name: part.cause for part in self.dead},
        }

    def __str__(self) -> str:
        tasks = ", ".join(f"{part.name} {part.state}" for part in self.tasks) or "no tasks"
        return f"{self.connector.name} is {self.connector.state} ({tasks})"


@dataclass(slots=True, kw_only=True)
class ConnectRest:
    """One Connect cluster, by any of its workers.

    :param url: http or https, with a path if Connect is behind one
    :param headers: sent with each request
    :param verify: check the server's certificate; or a file of those to trust
    :param deadline: seconds for which a call is made again while workers rebalance
    """

    url: str
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify: bool | str = True
    deadline: float = 120.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    # -- questions ----------------------------------------------------------------------------------------------------

    def connectors(self) -> list[str]:
        """Names of all connectors."""
        return sorted(self._ask("GET", "/connectors"))

    def status(self, connector: str) -> ConnectorStatus:
        """How a connector and its tasks are.

        :raises ConnectorError: there is none of that name
        """
        found = self._of(connector, "GET", "/status")
        tasks = sorted(found.get("tasks", ()), key=lambda task: int(task["id"]))
        return ConnectorStatus(
            connector=_part(connector, found["connector"]),
            tasks=tuple(_part(f"{connector}-{task['id']}", task) for task in tasks),
        )

    def config(self, connector: str) -> dict[str, str]:
        """Its configuration, which may hold secrets."""
        return dict(self._of(connector, "GET", "/config"))

    # -- orders -------------------------------------------------------------------------------------------------------

    def pause(self, connector: str) -> None:
        """Its tasks stay, and read nothing more. The coordinator of an Iceberg sink goes on committing, until its tasks
        are started anew: those then sleep until the connector is resumed.
        """
        self._of(connector, "PUT", "/pause")

    def resume(self, connector: str) -> None:
        """Its tasks read again; of a stopped connector they are started."""
        self._of(connector, "PUT", "/resume")

    def stop(self, connector: str) -> None:
        """Its tasks end, with the coordinator of an Iceberg sink; its configuration stays."""
        self._of(connector, "PUT", "/stop")

    def restart(self, connector: str, *, include_tasks: bool = True, only_failed: bool = True) -> None:
        """Start it anew, with its tasks or without; all of it, or what has failed."""
        flags = f"includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
        self._of(connector, "POST", f"/restart?{flags}")

    def wait_for(
        self, connector: str, done: Callable[[ConnectorStatus], bool], seconds: float, what: str
    ) -> ConnectorStatus:
        """The status in which it is ``done``.

        :param what: what is waited for, for the message
        :raises ConnectError: not in that time; with the causes of what has failed
        """
        end = self.clock() + seconds
        while True:
            status = self.status(connector)
            if done(status):
                return status
            if self.clock() >= end:
                causes = "".join(f"; {part.name}: {part.cause}" for part in status.dead)
                raise ConnectError(f"{status} after {seconds:.0f} s, not {what}{causes}")
            self.sleep(LOOK_SECONDS)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _of(self, connector: str, method: str, path: str) -> Any:
        return self._ask(method, f"/connectors/{quote(connector, safe='')}{path}", connector)

    def _ask(self, method: str, path: str, connector: str | None = None) -> Any:
        end = self.clock() + self.deadline
        while True:
            try:
                return self._once(method, path)
            except urllib.error.HTTPError as e:
                with e:
                    told = self._clean(_told(e.read()))
                if e.code in AGAIN and self.clock() < end:
                    self.sleep(LOOK_SECONDS)
                    continue
                if e.code == http.client.NOT_FOUND and connector is not None:
                    raise ConnectorError(
                        f"Kafka Connect at {self.place} has no connector {connector!r}: correct its name, or the "
                        "connection, if it runs in another cluster"
                    ) from None
                raise ConnectError(self._refused(method, path, e.code, told)) from None
            except (OSError, http.client.HTTPException, ValueError) as e:
                cause = getattr(e, "reason", None) or e
                raise ConnectError(
                    f"Kafka Connect at {self.place} gives no answer to {method} {path} ({type(cause).__name__}: "
                    f"{self._clean(str(cause))}): check that a worker runs there, and the connection"
                ) from None

    def _once(self, method: str, path: str) -> Any:
        headers = {"Accept": "application/json", **self.headers}
        if self.login:
            pair = f"{self.login}:{self.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        request = urllib.request.Request(f"{self.url.rstrip('/')}{path}", headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS, context=self._trust()) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def _trust(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https:"):
            return None
        context = ssl.create_default_context(cafile=self.verify if isinstance(self.verify, str) else None)
        if self.verify is False:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _refused(self, method: str, path: str, code: int, told: str) -> str:
        remedy = {
            401: "check login and password of the connection",
            403: "check login and password of the connection, and what they may do",
            404: "is this the address of a Kafka Connect worker?",
            409: f"its workers have been rebalancing for {self.deadline:.0f} s: look at their logs",
        }.get(code, "look at the worker's log")
        return f"Kafka Connect at {self.place} refused {method} {path}: {code} {told}; {remedy}"

    def _clean(self, text: str) -> str:
        headers = {f"header.{name}": value for name, value in self.headers.items()}
        return redacted(text, headers, {"password": self.password, "url": self.url})

    @property
    def place(self) -> str:
        """The address without what is secret in it."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _part(name: str, told: Mapping[str, Any]) -> Part:
    return Part(
        name=name,
        state=str(told.get("state", "UNKNOWN")),
        worker=str(told.get("worker_id", "")),
        trace=str(told.get("trace") or ""),
    )


def _told(body: bytes) -> str:
    """Connect's own message, if that is what it is."""
    text = body.decode(errors="replace")
    try:
        message = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        message = text
    return " ".join(str(message).split())[:TOLD]
