# SPDX-License-Identifier: Apache-2.0
"""The REST interface of Kafka Connect: state of a connector, pause, resume, stop, restart.

Contract: every call may be repeated; a request for the current state changes nothing. Connect answers most calls before
they are done: :meth:`ConnectRest.wait_for` polls until they are. While workers rebalance (409), start or shut down
(503), a call is repeated until its deadline. Login and headers are sent only to the address of the connection, also if
a redirect leads elsewhere.

Failure story: a worker that is unreachable, rejects a call or takes too long is a :class:`ConnectError`, a missing
connector a :class:`ConnectorError`. No message shows a password, not even one in the address.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

import httpx

from airflow_provider_lakecommit.exceptions import ConnectError, ConnectorError
from airflow_provider_lakecommit.redaction import redacted

AGAIN = frozenset({409, 503})
POLL_SECONDS = 0.5
REQUEST_SECONDS = 30.0
SHOWN = 300
"""Characters of an answer or a trace that a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The connector itself, or a task of it. ``trace`` is the whole of it, of one that has failed."""

    name: str
    state: str
    trace: str = ""

    @property
    def failed(self) -> bool:
        return self.state == "FAILED"

    @property
    def cause(self) -> str:
        """Return the first line of the trace, and that of its root exception, which is more specific."""
        lines = [line.strip() for line in self.trace.splitlines() if line.strip()]
        roots = [line for line in lines[1:] if line.startswith("Caused by: ")]
        found = [*lines[:1], *(f"({roots[-1][0].lower()}{roots[-1][1:]})" if roots else "",)]
        return " ".join(text[:SHOWN] for text in found if text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStatus:
    """A connector and its tasks, by its worker."""

    connector: Part
    tasks: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.connector, *self.tasks)

    @property
    def dead(self) -> tuple[Part, ...]:
        """Return its failed parts."""
        return tuple(part for part in self.parts if part.failed)

    @property
    def is_running(self) -> bool:
        """Return True if all of it runs. A connector without tasks has only begun."""
        return bool(self.tasks) and all(part.state == "RUNNING" for part in self.parts)

    @property
    def is_paused(self) -> bool:
        """Return True if everything that has not failed is paused."""
        return all(part.state == "PAUSED" or part.failed for part in self.parts)

    @property
    def is_stopped(self) -> bool:
        """Return True if it has no tasks any more."""
        return self.connector.state == "STOPPED" and not self.tasks

    def to_dict(self) -> dict[str, Any]:
        """Return it for XCom and JSON."""
        return {
            "connector": self.connector.state,
            "tasks": {part.name: part.state for part in self.tasks},
            "dead": {part.name: part.cause for part in self.dead},
        }

    def __str__(self) -> str:
        tasks = ", ".join(f"{part.name} {part.state}" for part in self.tasks) or "no tasks"
        return f"{self.connector.name} is {self.connector.state} ({tasks})"


@dataclass(kw_only=True)
class ConnectRest:
    """One Connect cluster, by any of its workers.

    :param url: http or https, with a path if Connect is behind one
    :param headers: sent with each request
    :param verify: check the server's certificate; or a file of those to trust
    :param deadline: seconds for which a call is made again while workers rebalance
    """

    url: str = field(repr=False)
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    verify: bool | str = True
    deadline: float = 120.0

    # -- questions ----------------------------------------------------------------------------------------------------

    def connectors(self) -> list[str]:
        """Return the names of all connectors."""
        return sorted(self._request("GET", "/connectors"))

    def status(self, connector: str) -> ConnectorStatus:
        """Return the state of a connector and its tasks.

        :raises ConnectorError: there is none of that name
        """
        found = self._of(connector, "GET", "/status")
        tasks = sorted(found.get("tasks", ()), key=lambda task: int(task["id"]))
        return ConnectorStatus(
            connector=self._part(connector, found["connector"]),
            tasks=tuple(self._part(f"{connector}-{task['id']}", task) for task in tasks),
        )

    def config(self, connector: str) -> dict[str, str]:
        """Return its configuration, which may contain secrets."""
        return dict(self._of(connector, "GET", "/config"))

    # -- orders -------------------------------------------------------------------------------------------------------

    def pause(self, connector: str) -> None:
        """Pause it: its tasks stay, and read no more. The coordinator of an Iceberg sink continues to commit until its
        tasks are restarted: those then sleep until the connector is resumed.
        """
        self._of(connector, "PUT", "/pause")

    def resume(self, connector: str) -> None:
        """Resume its tasks; start those of a stopped connector."""
        self._of(connector, "PUT", "/resume")

    def stop(self, connector: str) -> None:
        """End its tasks, with the coordinator of an Iceberg sink; its configuration stays."""
        self._of(connector, "PUT", "/stop")

    def restart(self, connector: str, *, include_tasks: bool = True, only_failed: bool = True) -> None:
        """Restart it, with or without its tasks; all of it, or only failed parts."""
        flags = f"includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
        self._of(connector, "POST", f"/restart?{flags}")

    def wait_for(
        self, connector: str, done: Callable[[ConnectorStatus], bool], seconds: float, what: str
    ) -> ConnectorStatus:
        """Return the status in which it is ``done``.

        :param what: name of the expected state, for the message
        :raises ConnectError: not in that time; with the causes of failed parts
        """
        end = time.monotonic() + seconds
        while True:
            status = self.status(connector)
            if done(status):
                return status
            if time.monotonic() >= end:
                causes = "".join(f"; {part.name}: {part.cause}" for part in status.dead)
                raise ConnectError("LC7518", f"{status} after {seconds:.0f} s, not {what}{causes}")
            time.sleep(POLL_SECONDS)

    # -- how ----------------------------------------------------------------------------------------------------------

    def _of(self, connector: str, method: str, path: str) -> Any:
        return self._request(method, f"/connectors/{quote(connector, safe='')}{path}", connector)

    def _request(self, method: str, path: str, connector: str | None = None) -> Any:
        end = time.monotonic() + self.deadline
        while True:
            try:
                answer = self._once(method, path)
                if answer.is_success:
                    return json.loads(answer.content) if answer.content else None
            except (OSError, httpx.HTTPError, httpx.InvalidURL, ValueError) as e:
                raise ConnectError(
                    "LC7519",
                    f"Kafka Connect at {self.address} does not answer {method} {path} ({type(e).__name__}: "
                    f"{self._clean(str(e))}): check that a worker runs there, and check the connection",
                ) from None
            if answer.status_code not in AGAIN or time.monotonic() >= end:
                break
            time.sleep(POLL_SECONDS)
        if answer.status_code == httpx.codes.NOT_FOUND and connector is not None:
            raise ConnectorError(
                "LC7520",
                f"Kafka Connect at {self.address} has no connector {connector!r}: correct its name, or "
                "the connection if the connector runs in another cluster",
            )
        raise ConnectError("LC7521", self._refused(method, path, answer.status_code, self._message(answer.content)))

    def _once(self, method: str, path: str) -> httpx.Response:
        url = httpx.URL(self.url)
        login, password = (self.login, self.password or "") if self.login else (url.username, url.password)

        def only_there(request: httpx.Request) -> None:
            if (request.url.scheme, request.url.netloc) != (url.scheme, url.netloc):
                for name in ("Authorization", *self.headers):
                    request.headers.pop(name, None)

        with httpx.Client(verify=self._trust, timeout=REQUEST_SECONDS, event_hooks={"request": [only_there]}) as client:
            return client.request(
                method,
                f"{self.address.rstrip('/')}{path}",
                headers={"Accept": "application/json", **self.headers},
                auth=(login, password) if login else None,
                # An order that is sent on as a question would be answered and not be done.
                follow_redirects=method == "GET",
            )

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.verify if isinstance(self.verify, str) else None)
        if self.verify is False:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _refused(self, method: str, path: str, code: int, text: str) -> str:
        remedy = {
            401: "check login and password of the connection",
            403: "check login and password of the connection, and the rights of the login",
            404: "check that this is the address of a Kafka Connect worker",
            409: f"its workers have been rebalancing for {self.deadline:.0f} s: check their logs",
        }.get(code, "check the worker's log")
        return f"Kafka Connect at {self.address} refused {method} {path}: {code} {text}; {remedy}"

    def _part(self, name: str, given: Mapping[str, Any]) -> Part:
        return Part(
            name=name,
            state=str(given.get("state", "UNKNOWN")),
            # Java quotes the settings that it does not like, logins among them.
            trace=self._clean(str(given.get("trace") or "")),
        )

    def _message(self, body: bytes) -> str:
        """Return Connect's own message, if it is one; it is redacted before it is cut, because a part of a secret is
        one too.
        """
        text = body.decode(errors="replace")
        try:
            message = json.loads(text)["message"]
        except (ValueError, KeyError, TypeError):
            message = text
        return " ".join(self._clean(str(message)).split())[:SHOWN]

    def _clean(self, text: str) -> str:
        headers = {f"header.{name}": value for name, value in self.headers.items()}
        return redacted(text, headers, {"password": self.password, "url": self.url})

    @property
    def address(self) -> str:
        """Return the address without secrets."""
        return re.sub(r"(?<=://)[^/]*@", "", self.url)
