# SPDX-License-Identifier: Apache-2.0
"""A schema registry, asked through `confluent-kafka`'s own client.

Contract: what a registry says of a key never changes, and is kept for as long as the process lives, for at most
:data:`MOST_KEPT` schemas; that there is no such schema is kept nowhere, and neither is which version is the newest. One
client per registry and process. The client's own defaults wait for ever for an answer: here it waits
:data:`DEFAULTS`, unless the settings say otherwise, for each piece of an answer, and as long for all of it as its
attempts may take together (:mod:`~airflow_provider_lakecommit.registry.patience`). While it waits, it says for what.

Failure story: only an answer in the registry's own words that it has no such schema (404 with 40403, or 40401 and
40402 of a reference) is an :class:`UnknownSchemaError`, for which a record can be blamed. All else, a registry that is
away, slow, refuses the credentials, or answers with anything that no registry answers with, is a
:class:`~airflow_provider_lakecommit.exceptions.RegistryError`: what was to be read is read again later.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.registry.patience import answered, longest
from airflow_provider_lakecommit.registry.schemas import RegisteredSchema, SchemaKey, UnknownSchemaError, told
from airflow_provider_lakecommit.registry.settings import registry_settings, shown_address, with_login_apart

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

__all__ = ["DEFAULTS", "MOST_KEPT", "SchemaRegistry", "needed", "registry_of"]

DEFAULTS: Mapping[str, Any] = {"timeout": 10, "max.retries": 3, "retries.wait.ms": 200, "retries.max.wait.ms": 2000}
"""In seconds and milliseconds."""
MOST_KEPT = 1000
DEEPEST = 32
"""References of references; registries refuse cycles, and an answer that holds one is no answer."""
_UNKNOWN = (40401, 40402, 40403)
_MOST_TEXT = 200

T = TypeVar("T")


class SchemaRegistry:
    """One registry. Several threads may ask it.

    :param settings: of the client, without a prefix
    :raises SpecError: the client does not take them
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = with_login_apart(settings)
        self._client = _client({**DEFAULTS, **self._settings})
        self._shown = redacted(shown_address(str(settings.get("url"))), self._settings)
        self._longest = longest(self._settings, DEFAULTS)
        self._kept: OrderedDict[SchemaKey, RegisteredSchema] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        """Where it is, for a message."""
        return self._shown

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        """The schema of that key, with all that it imports.

        :raises UnknownSchemaError: the registry has no such schema, or not all that it imports
        :raises RegistryError: it does not answer, or not as a registry does
        """
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
        found = self._complete(key, self._asked(told(key), lambda: self._fetched(key)), {})
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
                self._client.clear_caches()  # type: ignore[no-untyped-call]
        return found

    def newest(self, subject: str) -> RegisteredSchema:
        """The newest version of a subject, as of now.

        :raises UnknownSchemaError: there is no such subject
        :raises RegistryError: see :meth:`schema`
        """
        # The client keeps what was newest for as long as it lives.
        self._client.clear_latest_caches()  # type: ignore[no-untyped-call]
        found = self._asked(f"subject {subject}", lambda: self._client.get_latest_version(subject))
        return self._complete(_number(found.schema_id), found.schema, {})

    def ids(self, subject: str) -> tuple[int, ...]:
        """The schema ids of a subject, oldest first.

        :raises UnknownSchemaError: there is no such subject
        :raises RegistryError: see :meth:`schema`
        """
        what = f"subject {subject}"
        versions = self._asked(what, lambda: self._client.get_versions(subject))
        found = (self._asked(what, partial(self._client.get_version, subject, version)) for version in versions)
        return tuple(_number(each.schema_id) for each in found)

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _fetched(self, key: SchemaKey) -> Schema:
        # By the client's cache, an answer for a subject stands for all.
        return self._client.get_schema_by_guid(str(key)) if isinstance(key, UUID) else self._client.get_schema(key)

    def _complete(
        self, key: SchemaKey, schema: Schema, known: dict[tuple[str, int], RegisteredSchema | None]
    ) -> RegisteredSchema:
        """With what it imports.

        :param known: what was found of other imports of the same schema; ``None`` for those on the way to this one
        """
        if not isinstance(schema.schema_str, str):
            raise self._odd(told(key), "it has no text")
        references = []
        for reference in schema.references or ():
            name, subject, version = reference.name, reference.subject, reference.version
            what = f"subject {subject}, version {version}, which {told(key)} imports as {name}"
            if name is None or subject is None or version is None or list(known.values()).count(None) > DEEPEST:
                raise self._odd(told(key), f"what it imports is not named, or more than {DEEPEST} deep")
            place = subject, version
            if place not in known:
                known[place] = None
                found = self._asked(what, partial(self._client.get_version, subject, version))
                known[place] = self._complete(_number(found.schema_id), found.schema, known)
            if (one := known[place]) is None:
                raise self._odd(told(key), "what it imports imports itself")
            references.append((name, one))
        return RegisteredSchema(
            key=key, kind=schema.schema_type or "AVRO", text=schema.schema_str, references=tuple(references)
        )

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return answered(ask, f"{what} of the registry {self.place}", self._longest)
        except SchemaRegistryError as e:
            if e.http_status_code == 404 and e.error_code in _UNKNOWN:
                raise UnknownSchemaError(f"the registry {self.place} has no {what} (it says: {self._said(e)})") from e
            remedy = "check the credentials" if e.http_status_code in (401, 403) else "check its url, and its own log"
            raise RegistryError(
                f"the registry {self.place} does not give {what}: HTTP {e.http_status_code}, {self._said(e)}; {remedy}"
            ) from None
        except TimeoutError as e:
            self._begin_again()
            raise RegistryError(
                f"the registry {self.place} was asked for {what} and gave {e}; check that it is up, and what is "
                "between it and here"
            ) from None
        except Exception as e:
            # Of the HTTP client, of JSON, of the registry client where an answer lacks what each has.
            raise RegistryError(
                f"the registry {self.place} was asked for {what} and gave no answer of a registry: "
                f"{type(e).__name__}: {redacted(str(e)[:_MOST_TEXT], self._settings)}; check that it is up, and its url"
            ) from None

    def _begin_again(self) -> None:
        """Let go of the connection that somebody still reads from, too."""
        before, self._client = self._client, _client({**DEFAULTS, **self._settings})
        before.close()

    def _said(self, error: Exception) -> str:
        text = redacted(str(getattr(error, "error_message", error)), self._settings)
        return " ".join(text.split())[:_MOST_TEXT]

    def _odd(self, what: str, why: str) -> RegistryError:
        # The client keeps even that.
        self._client.clear_caches()  # type: ignore[no-untyped-call]
        return RegistryError(f"the registry {self.place} gave a schema for {what} that cannot be used: {why}")


_registries: dict[tuple[int, str], SchemaRegistry] = {}
_making = threading.Lock()


def registry_of(kafka: Mapping[str, Any]) -> SchemaRegistry | None:
    """The registry that settings of a landing name, one per process; ``None`` if they name none.

    :param kafka: with the registry's settings among them
    :raises SpecError: the client does not take them
    """
    settings = registry_settings(kafka)
    if not settings:
        return None
    # A process that was forked must not share connections with its parent.
    key = os.getpid(), repr(sorted(settings.items(), key=lambda item: item[0]))
    with _making:
        if key not in _registries:
            _registries[key] = SchemaRegistry(settings)
        return _registries[key]


def needed(registry: SchemaRegistry | None, landing: str, format: str) -> SchemaRegistry:
    """The registry of a landing whose format has one.

    :raises SpecError: its settings name none
    """
    if registry is None:
        raise SpecError(
            f"landing {landing!r}: records of format {format} name their schema in a registry, and none is given: add "
            "a section `registry` with its `url` to the spec, or `registry_conn_id` to the landing"
        )
    return registry


def _client(settings: dict[str, Any]) -> SchemaRegistryClient:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    try:
        return SchemaRegistryClient(settings)
    except (ValueError, TypeError, OSError) as e:
        raise SpecError(
            f"the settings of the schema registry are wrong: {redacted(str(e), settings)}; keys and values are those "
            "of confluent-kafka's SchemaRegistryClient (`url`, `basic.auth.user.info`, `ssl.ca.location`, …)"
        ) from None


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RegistryError(f"the registry gave {value!r:.80} as the id of a schema")
    return value
