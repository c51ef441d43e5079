# SPDX-License-Identifier: Apache-2.0
"""The addresses of a registry, asked through `confluent-kafka`'s own client, one for each.

Contract: the address that answered last is asked first; one that gives no answer of a registry is followed by the next,
with a word in the log. A question waits for as long as the attempts of the client may take, for each address
(:mod:`~airflow_provider_lakecommit.registry.patience`), and for :data:`BUSY` more where the registry has too many
questions (HTTP 429). A client that failed is made anew, by the files of certificates that are there then.

Failure story: as of :mod:`~airflow_provider_lakecommit.registry.client`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.registry.patience import answered, longest
from airflow_provider_lakecommit.registry.remedies import remedy_of, remedy_of_status
from airflow_provider_lakecommit.registry.schemas import AbsentKindError, UnknownSchemaError
from airflow_provider_lakecommit.registry.settings import addresses_in, shown_address, with_login_apart, with_numbers

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

__all__ = ["BUSY", "DEFAULTS", "UNKNOWN", "UNSERVED", "Hosts"]

DEFAULTS: Mapping[str, Any] = {"timeout": 10, "max.retries": 3, "retries.wait.ms": 200, "retries.max.wait.ms": 2000}
"""In seconds and milliseconds."""
BUSY = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between further questions, where a registry has too many."""
UNKNOWN = (40401, 40402, 40403)
"""The registry's own words for a subject, a version or a schema that it does not have."""
UNSERVED = 40400
"""Of ours: it has none by such keys."""
_MOST_TEXT = 200
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
Ask = Callable[["SchemaRegistryClient"], T]


class Hosts:
    """All addresses of one registry. Several threads may ask.

    :param settings: of the client, without a prefix
    :raises SpecError: the client does not take them
    :raises RegistryError: a file that they name cannot be read here
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        apart = with_numbers(with_login_apart(settings))
        urls = addresses_in(apart.get("url"))
        self.shown = redacted(shown_address(str(settings.get("url"))), apart)
        shown = [one.strip() for one in self.shown.split(",")] if len(urls) > 1 else [self.shown]
        self._all = [_Host({**apart, "url": one}, name) for one, name in zip(urls, shown, strict=True)]
        self.answering = 0
        """The place among them of the one that is asked first."""

    def asked(self, what: str, ask: Ask[T]) -> T:
        """The answer of one of them.

        :param what: is asked for
        :raises UnknownSchemaError: there is no such thing
        :raises RegistryError: none of them answers, or not as a registry does
        """
        first, trouble = self.answering, list[str]()
        for place in (*range(first, len(self._all)), *range(first)):
            try:
                found: T = self._all[place].asked(what, ask)
            except RegistryError as e:
                trouble.append(str(e))
                if len(trouble) < len(self._all):
                    _LOG.warning("%s; its next address is asked", e)
            except UnknownSchemaError:
                self.answering = place
                raise
            else:
                self.answering = place
                return found
        raise RegistryError("; ".join(trouble))

    def forget(self) -> None:
        """What the clients keep."""
        for each in self._all:
            each.forget()

    def close(self) -> None:
        """Let go of the connections."""
        for each in self._all:
            each.close()


class _Host:
    def __init__(self, settings: Mapping[str, Any], shown: str) -> None:
        self._settings, self._shown = settings, shown
        self._longest = longest(settings, DEFAULTS)
        self._lock = threading.Lock()
        self._client: SchemaRegistryClient | None = _client({**DEFAULTS, **settings})

    def asked(self, what: str, ask: Ask[T]) -> T:
        from confluent_kafka.schema_registry import SchemaRegistryError

        for pause in (*BUSY, None):
            try:
                return self._answer(what, ask)
            except SchemaRegistryError as e:
                if e.http_status_code != 429 or pause is None:
                    raise self._refused(what, e) from None
                _LOG.warning(
                    "the registry %s has too many questions (HTTP 429): %s is asked for again in %g s",
                    self._shown,
                    what,
                    pause,
                )
                time.sleep(pause)
        raise AssertionError("the last pause is none")

    def forget(self) -> None:
        self._current().clear_caches()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        with self._lock:
            before, self._client = self._client, None
        if before is not None:
            before.close()

    def _current(self) -> SchemaRegistryClient:
        with self._lock:
            if self._client is None:
                self._client = _client({**DEFAULTS, **self._settings})
            return self._client

    def _answer(self, what: str, ask: Ask[T]) -> T:
        from confluent_kafka.schema_registry import SchemaRegistryError

        client = self._current()
        try:
            return answered(lambda: ask(client), f"{what} of the registry {self._shown}", self._longest)
        except SchemaRegistryError:
            raise
        except TimeoutError as e:
            # Of the connection that somebody still reads from, too.
            self.close()
            raise RegistryError(
                f"the registry {self._shown} was asked for {what} and gave {e}; check that it is up, and what is "
                "between it and here"
            ) from None
        except RegistryError:
            raise
        except Exception as e:
            # Of the HTTP client, of JSON, of the registry client where an answer lacks what each has.
            self.close()
            text = f"{type(e).__name__}: {redacted(str(e)[:_MOST_TEXT], self._settings)}"
            raise RegistryError(
                f"the registry {self._shown} was asked for {what} and gave no answer of a registry: {text}; "
                f"{remedy_of(text)}{self._by_proxy()}"
            ) from None

    def _by_proxy(self) -> str:
        """That a proxy is between, which its errors do not say."""
        parts = urlsplit(str(self._settings["url"]))
        if "proxy" in self._settings:
            return "; it is asked through the `proxy` of its settings"
        found = getproxies().get(parts.scheme) or getproxies().get("all")
        if not found or proxy_bypass(parts.netloc):
            return ""
        return f"; it is asked through the proxy that the environment has for {parts.scheme} ({shown_address(found)})"

    def _refused(self, what: str, error: SchemaRegistryError) -> Exception:
        text = redacted(str(getattr(error, "error_message", error)), self._settings)
        said = " ".join(text.split())[:_MOST_TEXT]
        if error.http_status_code == 404 and error.error_code in (*UNKNOWN, UNSERVED):
            kind = AbsentKindError if error.error_code == UNSERVED else UnknownSchemaError
            return kind(f"the registry {self._shown} has no {what} (it says: {said})")
        return RegistryError(
            f"the registry {self._shown} does not give {what}: HTTP {error.http_status_code}, {said}; "
            f"{remedy_of_status(error.http_status_code)}"
        )


def _client(settings: dict[str, Any]) -> SchemaRegistryClient:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    try:
        return SchemaRegistryClient(settings)
    except (ValueError, TypeError, OSError) as e:
        if unread := [said for key in _FILES if (said := _unread(key, settings.get(key)))]:
            raise RegistryError(
                f"the schema registry cannot be asked from {socket.gethostname()}: {', '.join(unread)}; the file must "
                "be there on every machine that runs tasks and on Spark's"
            ) from None
        raise SpecError(
            f"the settings of the schema registry are wrong: {redacted(str(e), settings)}; keys and values are those "
            "of confluent-kafka's SchemaRegistryClient (`url`, `basic.auth.user.info`, `ssl.ca.location`, …), without "
            "`schema.registry.` before them, and without `basic.auth.credentials.source`"
        ) from None


def _unread(key: str, file: Any) -> str:
    """Why a file of settings cannot be read; nothing if it can."""
    if not isinstance(file, str) or os.path.isdir(file):
        return ""
    try:
        with open(file, "rb"):
            return ""
    except OSError as e:
        return f"{key} is {file}: {e.strerror}"
