# SPDX-License-Identifier: Apache-2.0
"""Requests to a schema registry, through `confluent-kafka`'s own client, with bounded answers and remedies.

The client tries each address of `url` in turn and retries by :data:`DEFAULTS`. Every failure becomes one of two errors,
without secrets: the registry has no such schema, or it gave no valid answer. An answer is read up to
:data:`MOST_BYTES` and :data:`MOST_SECONDS` (the client's timeout is per chunk), and only gzip is accepted, which
expands by a bounded factor.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.registry.schema_source import AbsentKindError, UnknownSchemaError
from airflow_provider_lakecommit.landing import addresses_in, shown_address, with_login_apart, with_numbers
from airflow_provider_lakecommit.redaction import redacted

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

DEFAULTS: Mapping[str, Any] = {"timeout": 10, "max.retries": 3, "retries.wait.ms": 200, "retries.max.wait.ms": 2000}
"""The client itself has no timeout by default."""
UNKNOWN = (40401, 40402, 40403)
"""The registry's codes for a missing subject, version or schema."""
UNSERVED = 40400
"""Our code: the registry serves no schema by such keys."""
_MOST_TEXT = 200
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")

T = TypeVar("T")


class Connection:
    """The client of one registry, usable by several threads."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = with_numbers(with_login_apart(settings))
        self._first = addresses_in(self._settings.get("url"))[0]
        self.shown = redacted(shown_address(str(settings.get("url"))), self._settings)
        """The addresses, for a message."""
        self._client = _client({**DEFAULTS, **self._settings})

    def asked(self, what: str, request: Callable[[SchemaRegistryClient], T]) -> T:
        """Return the registry's answer.

        :param what: the subject of the request, for messages
        :raises UnknownSchemaError: the registry has no such schema
        :raises RegistryError: it gave no valid answer
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return request(self._client)
        except SchemaRegistryError as e:
            raise self._refused(what, e) from None
        except Exception as e:
            # Errors of the HTTP client and of JSON, and those of the registry client about an incomplete answer.
            text = f"{type(e).__name__}: {redacted(str(e)[:_MOST_TEXT], self._settings)}"
            raise RegistryError(
                "LC4025",
                f"the registry {self.shown} gave no valid answer on {what}: {text}; "
                f"{remedy_of(text)}{self._by_proxy()}",
            ) from None

    def forget(self) -> None:
        self._client.clear_caches()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._client.close()

    def _by_proxy(self) -> str:
        """Return which proxy is used; the client's errors do not name it."""
        parts = urlsplit(self._first)
        if "proxy" in self._settings:
            return "; the request used the `proxy` of its settings"
        found = getproxies().get(parts.scheme) or getproxies().get("all")
        if not found or proxy_bypass(parts.netloc):
            return ""
        return f"; the request used the environment's proxy for {parts.scheme} ({shown_address(found)})"

    def _refused(self, what: str, error: SchemaRegistryError) -> Exception:
        text = redacted(str(getattr(error, "error_message", error)), self._settings)
        problem = " ".join(text.split())[:_MOST_TEXT]
        if error.http_status_code == 404 and error.error_code in (*UNKNOWN, UNSERVED):
            kind = AbsentKindError if error.error_code == UNSERVED else UnknownSchemaError
            return kind(f"the registry {self.shown} has no {what} (its answer: {problem})")
        return RegistryError(
            "LC4026",
            f"the registry {self.shown} refuses {what}: HTTP {error.http_status_code}, {problem}; "
            f"{remedy_of_status(error.http_status_code)}",
        )


def _client(settings: dict[str, Any]) -> SchemaRegistryClient:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    try:
        return limit_answers(SchemaRegistryClient(settings))
    except (ValueError, TypeError, OSError) as e:
        if unread := [problem for key in _FILES if (problem := _unread(key, settings.get(key)))]:
            raise RegistryError(
                "LC4027",
                f"cannot use the schema registry from {socket.gethostname()}: {', '.join(unread)}; the file must "
                "exist on every machine that runs tasks, also on Spark's",
            ) from None
        raise SpecError(
            "LC4028",
            f"the settings of the schema registry are wrong: {redacted(str(e), settings)}; use the keys and values "
            "of confluent-kafka's SchemaRegistryClient (`url`, `basic.auth.user.info`, `ssl.ca.location`, …), without "
            "the prefix `schema.registry.` and without `basic.auth.credentials.source`",
        ) from None


def _unread(key: str, file: Any) -> str:
    """Return why a file of the settings cannot be read; empty if it can."""
    if not isinstance(file, str) or os.path.isdir(file):
        return ""
    try:
        with open(file, "rb"):
            return ""
    except OSError as e:
        return f"{key} is {file}: {e.strerror}"


MOST_BYTES = 8 << 20
"""Schema registries take schemas of one megabyte by default."""
MOST_SECONDS = 60.0
_PACKED = ("", "identity", "gzip")


def limit_answers(client: SchemaRegistryClient) -> SchemaRegistryClient:
    """Return the client with bounded answers."""
    session: Any = client._rest_client.session
    session.headers["Accept-Encoding"] = "gzip"
    hooks = session.event_hooks
    session.event_hooks = {**hooks, "response": [*hooks["response"], _read]}
    return client


def _read(response: Any) -> None:
    """A hook of `httpx`, called before the body is read."""
    packed = response.headers.get("Content-Encoding", "").strip().lower()
    if packed not in _PACKED:
        raise ValueError(f"its answer is compressed by {packed[:40]!r}, but only gzip is accepted")
    body, end = bytearray(), time.monotonic() + MOST_SECONDS
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MOST_BYTES:
            raise ValueError(f"its answer is longer than {MOST_BYTES >> 20} MiB")
        if time.monotonic() > end:
            raise ValueError(f"its answer takes longer than {MOST_SECONDS:g} s")
    response._content = bytes(body)


_NO_ANSWER = "check that it is up, and check its url"
_REMEDIES = (
    ("Hostname mismatch", "its url must use a name of its certificate"),
    ("IP address mismatch", "its url must use a name of its certificate"),
    ("certificate has expired", "renew its certificate"),
    ("CERTIFICATE_VERIFY_FAILED", "set `ssl.ca.location` to the issuer of its certificate, and check its url"),
    ("CERTIFICATE_REQUIRED", "it requires client certificates: set `ssl.certificate.location` and `ssl.key.location`"),
    ("WRONG_VERSION_NUMBER", "it does not use TLS on that port: use http in its url, or another port"),
    ("record layer failure", "it does not use TLS on that port: use http in its url, or another port"),
    (
        "disconnected without sending",
        "check the port: brokers answer so, and registries with TLS if the url begins with http",
    ),
    ("illegal status line", "check the port: it does not use HTTP"),
    ("ame or service not known", "check the host in its url"),
    ("ame resolution", "check the host in its url, and its DNS entry"),
    ("OAuthTokenError", "check `bearer.auth.issuer.endpoint.url`, and the client of `bearer.auth.…`"),
    ("UNEXPECTED_EOF", "check the port: it does not use TLS"),
    ("InvalidURL", "correct its url, which is not an address"),
    ("JSONDecodeError", "check its url: the answer is not JSON, but perhaps the page of a login or proxy"),
)


def remedy_of(error: str) -> str:
    return next((remedy for sign, remedy in _REMEDIES if sign in error), _NO_ANSWER)


def remedy_of_status(status: int) -> str:
    if status in (401, 403):
        return "check the credentials (`basic.auth.user.info`, or login and password of the connection)"
    if 300 <= status < 400:
        return "it redirects: use the target address as its url, which often begins with https"
    if status == 404:
        return "check that its url has the full path, as in http://HOST:8080/apis/ccompat/v7"
    if status == 429:
        return "its rate limit is exceeded: run fewer tasks at once, or raise the limit"
    return "check its url and its own log"
