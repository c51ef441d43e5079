# SPDX-License-Identifier: Apache-2.0
"""The address of a Spark Connect server, and its connection options.

Contract: the connection's token is sent as standard clients send it, never unencrypted over a network, and never shown.
A job's logins for other systems travel with it, unencrypted only if the URL explicitly allows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.redaction import without

DEFAULT_PORT = 15002
DEFAULT_USER = "lakecommit"
_OURS = ("user_id", "token", "use_ssl", "user_agent", "session_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectUrl:
    """A server's address and connection options."""

    endpoint: str
    user: str
    secure: bool
    token: str | None
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, url: str) -> ConnectUrl:
        """Parse `sc://host:port/;use_ssl=true;token=…`, as Spark's own clients read it.

        :raises SpecError: invalid, or it would send secrets unencrypted
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or DEFAULT_PORT
            path, *rest = parts.path.split(";")
            values = {key: unquote(value) for key, value in (pair.split("=", 1) for pair in rest if pair)}
        except ValueError:
            raise SpecError("LC5017", f"the Spark Connect URL {_hidden(url)!r} is invalid: {_FORM}") from None
        if parts.scheme != "sc" or not host or path.strip("/"):
            raise SpecError("LC5018", f"{_hidden(url)!r} is not a Spark Connect URL: {_FORM}")
        local, token = host in ("localhost", "127.0.0.1", "::1"), values.get("token")
        wants = values.get("use_ssl", "").lower()
        if wants not in ("", "true", "false"):
            # Spark's own clients take any other word as `false`.
            raise SpecError("LC5019", f"use_ssl of {_hidden(url)!r} is neither true nor false: use one of them")
        if not (wants or token or local):
            raise SpecError(
                "LC5020",
                f"{_hidden(url)!r} would send the logins of brokers and storage over the network unencrypted: give "
                "use_ssl=true, or use_ssl=false on a private network",
            )
        if token and wants == "false" and not local:
            raise SpecError(
                "LC5021", f"the token of {_hidden(url)!r} would go over the network unencrypted: remove use_ssl=false"
            )
        return cls(
            endpoint=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            user=values.get("user_id") or DEFAULT_USER,
            secure=wants == "true" or bool(token and not local),
            token=token,
            headers=tuple((key.lower(), value) for key, value in values.items() if key not in _OURS),
        )

    def __repr__(self) -> str:
        return f"ConnectUrl({self})"

    def __str__(self) -> str:
        return f"sc://{self.endpoint}"

    def metadata(self) -> list[tuple[str, str]]:
        """Return the headers of every call."""
        return [*self.headers, *([("authorization", f"Bearer {self.token}")] if self.token else [])]


_FORM = "use sc://host:port, optionally with /;use_ssl=true;token=…;user_id=…"


def _hidden(url: str) -> str:
    """Return the URL without its parameters, which may hold a token."""
    return without(url.split(";", 1)[0], ())
