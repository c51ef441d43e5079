# SPDX-License-Identifier: Apache-2.0
"""Questions to a schema registry, through `confluent-kafka`'s own client.

Contract: the client tries each address of `url` in turn and retries by its own settings (:data:`DEFAULTS`). Every
failure becomes one of two errors, without secrets: the registry has no such schema, or it gave no answer.

Failure story: as of :mod:`~airflow_provider_lakecommit.formats.registry.client`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.registry.answers import limit_answers
from airflow_provider_lakecommit.formats.registry.remedies import remedy_of, remedy_of_status
from airflow_provider_lakecommit.formats.registry.schemas import AbsentKindError, UnknownSchemaError
from airflow_provider_lakecommit.landing import addresses_in, shown_address, with_login_apart, with_numbers
from airflow_provider_lakecommit.redaction import redacted

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

DEFAULTS: Mapping[str, Any] = {"timeout": 10, "max.retries": 3, "retries.wait.ms": 200, "retries.max.wait.ms": 2000}
"""In seconds and milliseconds. The client itself has no timeout by default."""
UNKNOWN = (40401, 40402, 40403)
"""The registry's own codes for a subject, a version or a schema that it does not have."""
UNSERVED = 40400
"""Our code: the registry serves no schema by such keys."""
_MOST_TEXT = 200
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")

T = TypeVar("T")


class Connection:
    """The client of one registry. Several threads may ask.

    :param settings: of the client, without a prefix
    :raises SpecError: the client does not take them
    :raises RegistryError: a file that they name cannot be read here
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = with_numbers(with_login_apart(settings))
        self._first = addresses_in(self._settings.get("url"))[0]
        self.shown = redacted(shown_address(str(settings.get("url"))), self._settings)
        """The addresses, for a message."""
        self._client = _client({**DEFAULTS, **self._settings})

    def asked(self, what: str, ask: Callable[[SchemaRegistryClient], T]) -> T:
        """Return the registry's answer.

        :param what: what is asked for, for a message
        :raises UnknownSchemaError: the registry has no such schema
        :raises RegistryError: the registry does not answer, or not as a registry does
        """
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return ask(self._client)
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
        said = " ".join(text.split())[:_MOST_TEXT]
        if error.http_status_code == 404 and error.error_code in (*UNKNOWN, UNSERVED):
            kind = AbsentKindError if error.error_code == UNSERVED else UnknownSchemaError
            return kind(f"the registry {self.shown} has no {what} (its answer: {said})")
        return RegistryError(
            "LC4026",
            f"the registry {self.shown} refuses {what}: HTTP {error.http_status_code}, {said}; "
            f"{remedy_of_status(error.http_status_code)}",
        )


def _client(settings: dict[str, Any]) -> SchemaRegistryClient:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    try:
        return limit_answers(SchemaRegistryClient(settings))
    except (ValueError, TypeError, OSError) as e:
        if unread := [said for key in _FILES if (said := _unread(key, settings.get(key)))]:
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
