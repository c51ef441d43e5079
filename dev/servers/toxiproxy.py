# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that spoils connections: Toxiproxy, built from the Go module proxy, on 127.0.0.1.

Contract: :func:`ready` builds the program once into the run directory (needs Go, takes about a minute) and asks nothing
of the network later. :class:`Toxiproxy` runs it; :meth:`Toxiproxy.before` puts a :class:`Proxy` before a port. A proxy
is clean until it is given a *toxic*, which spoils what flows through open connections and new ones until it is taken
away. What a toxic does is Toxiproxy's own matter; the ones used here are methods of :class:`Proxy`.

Failure story: no Go, a build that fails, a proxy that does not answer: :class:`ToxiproxyError` with what was said.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.go import built
from dev.paths import run_dir
from dev.servers.server import Server, ServerError, free_port

PACKAGE = "github.com/Shopify/toxiproxy/v2/cmd/server"
VERSION = "v2.5.0"
ANSWER_SECONDS = 30.0


class ToxiproxyError(ServerError):
    """The proxy could not be built or does not answer."""


def ready() -> Path:
    """The program, built first where it is missing.

    :raises ToxiproxyError: no Go here, or what it said
    """
    return built(run_dir() / "toxiproxy", PACKAGE, VERSION, name="toxiproxy", error=ToxiproxyError)


class Toxiproxy(Server):
    """One process with any number of proxies, which end with it."""

    name = "toxiproxy"
    what = "Toxiproxy"
    error = ToxiproxyError
    start_seconds = 30.0

    def command(self) -> list[str]:
        return [str(ready()), "-host", "127.0.0.1", "-port", str(self.port)]

    def answers(self) -> bool:
        try:
            self.ask("GET", "/version")
        except ToxiproxyError:
            return False
        return True

    def before(self, port: int, listen: int | None = None) -> Proxy:
        """A proxy before a port of 127.0.0.1, at a port of its own unless one is given."""
        proxy = Proxy(toxiproxy=self, name=f"before-{port}", port=listen or free_port())
        about = {"name": proxy.name, "listen": f"127.0.0.1:{proxy.port}", "upstream": f"127.0.0.1:{port}"}
        self.ask("POST", "/proxies", about)
        return proxy

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """One request to its interface.

        :raises ToxiproxyError: refused, or not there
        """
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"User-Agent": "lakecommit", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS):
                pass
        except urllib.error.HTTPError as error:
            told = error.read().decode(errors="replace")
            raise ToxiproxyError(f"Toxiproxy refused {method} {path}: {told}") from None
        except OSError as error:
            raise ToxiproxyError(f"Toxiproxy does not answer: {error}; see {self.log}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """One way through. Connect to ``port``."""

    toxiproxy: Toxiproxy
    name: str
    port: int

    @contextmanager
    def slow(self, milliseconds: int, jitter: int = 0) -> Iterator[None]:
        """Every answer comes that much later."""
        with self._toxic("latency", {"latency": milliseconds, "jitter": jitter}):
            yield

    @contextmanager
    def half_open(self) -> Iterator[None]:
        """Connections stay open, are taken, and nothing comes back on them."""
        with self._toxic("timeout", {"timeout": 0}):
            yield

    @contextmanager
    def cut_after(self, size: int) -> Iterator[None]:
        """Each connection is closed when that many bytes have come back on it: in the middle of an answer."""
        with self._toxic("limit_data", {"bytes": size}):
            yield

    @contextmanager
    def resetting(self) -> Iterator[None]:
        """Connections are reset, open ones and new ones."""
        with self._toxic("reset_peer", {"timeout": 0}):
            yield

    @contextmanager
    def closing_late(self, milliseconds: int) -> Iterator[None]:
        """Who hangs up is told so that much later."""
        with self._toxic("slow_close", {"delay": milliseconds}):
            yield

    @contextmanager
    def down(self) -> Iterator[None]:
        """Nobody listens; open connections end."""
        self._turn(on=False)
        try:
            yield
        finally:
            self._turn(on=True)

    def _turn(self, *, on: bool) -> None:
        self.toxiproxy.ask("POST", f"/proxies/{self.name}", {"enabled": on})

    @contextmanager
    def _toxic(self, kind: str, attributes: Mapping[str, int]) -> Iterator[None]:
        toxics = f"/proxies/{self.name}/toxics"
        body = {"name": kind, "type": kind, "stream": "downstream", "toxicity": 1.0, "attributes": dict(attributes)}
        self.toxiproxy.ask("POST", toxics, body)
        try:
            yield
        finally:
            self.toxiproxy.ask("DELETE", f"{toxics}/{kind}")


def main() -> int:
    """`python -m dev.servers.toxiproxy`: build it."""
    try:
        print(ready())
    except ToxiproxyError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
