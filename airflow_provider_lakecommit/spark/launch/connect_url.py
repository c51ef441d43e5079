# SPDX-License-Identifier: Apache-2.0
"""Where a Spark Connect server is and how to talk to it.

Contract: the token of the connection is sent as the standard clients send it, never over a network unencrypted, and
never shown. What a job needs to log in elsewhere goes with it: only who says so has it sent unencrypted.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.redaction import without

__all__ = ["ConnectUrl"]

DEFAULT_PORT = 15002
DEFAULT_USER = "lakecommit"
_OURS = ("user_id", "token", "use_ssl", "user_agent", "session_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectUrl:
    """Where a server is and how to talk to it."""

    endpoint: str
    user: str
    secure: bool
    token: str | None
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, url: str) -> ConnectUrl:
        """From `sc://host:port/;use_ssl=true;token=…`, as Spark's own clients read it.

        :raises SpecError: it is no such URL, or would send secrets unencrypted
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or DEFAULT_PORT
            path, *rest = parts.path.split(";")
            values = {key: unquote(value) for key, value in (word.split("=", 1) for word in rest if word)}
        except ValueError:
            raise SpecError("LC5017", f"the Spark Connect URL {_hidden(url)!r} cannot be read: {_FORM}") from None
        if parts.scheme != "sc" or not host or path.strip("/"):
            raise SpecError("LC5018", f"{_hidden(url)!r} is no Spark Connect URL: {_FORM}")
        local, token = host in ("localhost", "127.0.0.1", "::1"), values.get("token")
        wants = values.get("use_ssl", "").lower()
        if wants not in ("", "true", "false"):
            # Spark's own clients take every other word for `false`.
            raise SpecError("LC5019", f"use_ssl of {_hidden(url)!r} is neither true nor false: correct it")
        if not (wants or token or local):
            raise SpecError(
                "LC5020",
                f"{_hidden(url)!r} would send the logins of brokers and storage over the network unencrypted: give "
                "use_ssl=true, or use_ssl=false if nobody else can listen there",
            )
        if token and wants == "false" and not local:
            raise SpecError(
                "LC5021",
                f"the token of {_hidden(url)!r} would go over the network unencrypted: leave use_ssl=false out",
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
        """Headers of every call."""
        return [*self.headers, *([("authorization", f"Bearer {self.token}")] if self.token else [])]


_FORM = "it is sc://host:port, then perhaps /;use_ssl=true;token=…;user_id=…"


def _hidden(url: str) -> str:
    """Without its parameters: a token may be among them."""
    return without(url.split(";", 1)[0], ())
