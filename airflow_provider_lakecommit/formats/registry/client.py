# SPDX-License-Identifier: Apache-2.0
"""A schema registry, for decoders and plans; one per settings and process.

Schemas are cached for at most :data:`MOST_KEPT` keys, and requested again after :data:`RETRY_SECONDS` seconds, because
a registry restored from a backup may reuse an id. A missing schema is never cached, and accepted only after some time
(:class:`~airflow_provider_lakecommit.formats.registry.unknown_wait.UnknownWait`). Newest versions are not cached.

Only an explicit answer that a schema does not exist (404 with 40403, or 40401 and 40402 of a reference) is an
:class:`UnknownSchemaError`, for which the record is to blame; so is a UUID if the registry answers otherwise and serves
none by UUID, as any bytes can look like one. Everything else (unreachable, slow, refused, odd answers, another schema
than before) is a :class:`~airflow_provider_lakecommit.exceptions.RegistryError`: the records are read again later.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.registry.connection import UNKNOWN, UNSERVED, Connection
from airflow_provider_lakecommit.formats.registry.schema_source import (
    RegisteredSchema,
    SchemaKey,
    UnknownSchemaError,
    key_text,
)
from airflow_provider_lakecommit.formats.registry.unknown_wait import UnknownWait
from airflow_provider_lakecommit.landing import UNKNOWN_WAIT, registry_settings, unknown_wait

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

MOST_KEPT = 1000
RETRY_SECONDS = 600.0
"""Seconds for which a schema is cached."""
DEEPEST = 32
"""Deepest references; registries refuse cycles."""

_LOG = logging.getLogger(__name__)


class SchemaRegistry:
    """One registry, usable by several threads.

    :param settings: of the client, without a prefix
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._unknown_wait = UnknownWait(unknown_wait(settings))
        self._connection = Connection({key: value for key, value in settings.items() if key != UNKNOWN_WAIT})
        self._kept: OrderedDict[SchemaKey, tuple[RegisteredSchema, float]] = OrderedDict()
        self._imported: dict[tuple[str, Any], RegisteredSchema] = {}
        self._without_uuids = float("-inf")
        self._lock = threading.Lock()

    @property
    def location(self) -> str:
        return self._connection.shown

    def schema(self, key: SchemaKey) -> RegisteredSchema:
        """Return the schema of that key, with all its imports.

        :raises UnknownSchemaError: the registry has no such schema, or not all that it imports
        :raises RegistryError: it does not answer, or not as a registry does, or not as before
        """
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
        if kept is None:
            return self._keep(key, self._unknown_wait.asked(key, partial(self._whole, key)))
        known, at = kept
        return known if time.monotonic() - at < RETRY_SECONDS else self._again(key, known)

    def newest(self, subject: str) -> RegisteredSchema:
        """Return the newest version of a subject.

        :raises UnknownSchemaError: there is no such subject
        """

        def ask(client: SchemaRegistryClient) -> Any:
            # The client keeps what was newest for as long as it lives.
            client.clear_latest_caches()  # type: ignore[no-untyped-call]
            return client.get_latest_version(subject)

        found = self._connection.asked(f"subject {subject}", ask)
        return self._complete(_number(found.schema_id), found.schema, ())

    def ids(self, subject: str, most: int) -> tuple[int, tuple[int, ...]]:
        """Return the number of a subject's versions, and the schema ids of at most *most* newest ones.

        :raises UnknownSchemaError: there is no such subject
        """
        what = f"subject {subject}"
        versions = self._connection.asked(what, lambda client: list(client.get_versions(subject)))
        found = [
            self._connection.asked(what, partial(_version, subject=subject, version=version))
            for version in versions[-most:]
        ]
        return len(versions), tuple(_number(each.schema_id) for each in found)

    def close(self) -> None:
        self._connection.close()

    def _keep(self, key: SchemaKey, found: RegisteredSchema) -> RegisteredSchema:
        with self._lock:
            self._kept[key] = found, time.monotonic()
            self._kept.move_to_end(key)
            full = len(self._kept) > MOST_KEPT
            if full:
                self._kept.popitem(last=False)
                self._imported = {}
        if full:
            self._connection.forget()
        return found

    def _again(self, key: SchemaKey, before: RegisteredSchema) -> RegisteredSchema:
        self._connection.forget()
        with self._lock:
            self._imported = {}
        try:
            found = self._whole(key)
        except (UnknownSchemaError, RegistryError) as e:
            _LOG.info("using the cached schema for %s: %s", key_text(key), e)
            return self._keep(key, before)
        self._keep(key, found)
        if _meaning(found) == _meaning(before):
            return found
        raise RegistryError(
            "LC4021",
            f"the registry {self.location} now returns another schema for {key_text(key)} than before, and the other "
            "would misread records: check if it was restored, or if its addresses are different registries. The "
            "next attempt uses the schema that it returns now",
        )

    def _whole(self, key: SchemaKey) -> RegisteredSchema:
        ask = partial(self._by_uuid, key) if isinstance(key, UUID) else lambda client: client.get_schema(key)
        return self._complete(key, self._connection.asked(key_text(key), ask), ())

    def _by_uuid(self, key: UUID, client: SchemaRegistryClient) -> Schema:
        from confluent_kafka.schema_registry import SchemaRegistryError

        unserved = SchemaRegistryError(404, UNSERVED, "it does not serve schemas by UUID")
        if time.monotonic() - self._without_uuids < RETRY_SECONDS:
            raise unserved
        try:
            # By the client's cache, an answer for a subject stands for all.
            return client.get_schema_by_guid(str(key))
        except SchemaRegistryError as e:
            if e.http_status_code != 404 or e.error_code in UNKNOWN:
                raise
        if not isinstance(client.get_schema_types(), list):
            raise ValueError("its schema types are not a list")
        self._without_uuids = time.monotonic()
        raise unserved

    def _complete(self, key: SchemaKey, schema: Schema, above: tuple[str, ...]) -> RegisteredSchema:
        kind = schema.schema_type or "AVRO"
        if not isinstance(schema.schema_str, str) or not isinstance(kind, str):
            raise self._odd(key_text(key), "it has no text, or its type is unknown")
        references = tuple(
            (str(reference.name), self._referred(key, reference, above)) for reference in schema.references or ()
        )
        return RegisteredSchema(key=key, kind=kind.upper(), text=schema.schema_str, references=references)

    def _referred(self, key: SchemaKey, reference: Any, above: tuple[str, ...]) -> RegisteredSchema:
        name, subject, version = reference.name, reference.subject, reference.version
        if name is None or subject is None or version is None or len(above) > DEEPEST:
            raise self._odd(key_text(key), "an import has no name, or imports itself")
        if (known := self._imported.get((subject, version))) is not None:
            return known
        what = f"subject {subject}, version {version}, which {key_text(key)} imports as {name}"
        # What was deleted softly is still what records were written by.
        found = self._connection.asked(what, partial(_version, subject=subject, version=version, deleted=True))
        whole = self._complete(_number(found.schema_id), found.schema, (*above, name))
        self._imported[subject, version] = whole
        return whole

    def _odd(self, what: str, why: str) -> RegistryError:
        # The client keeps even that.
        self._connection.forget()
        return RegistryError("LC4022", f"the registry {self.location} returned an unusable schema for {what}: {why}")


_registries: dict[tuple[int, str], SchemaRegistry] = {}
_making = threading.Lock()


def registry_of(kafka: Mapping[str, Any]) -> SchemaRegistry | None:
    """Return the registry that a landing's settings name, one per process; ``None`` if they name none."""
    settings = registry_settings(kafka)
    if not settings:
        return None
    # A forked process must not share connections with its parent.
    key = os.getpid(), repr(sorted(settings.items(), key=lambda item: item[0]))
    with _making:
        if key not in _registries:
            _registries[key] = SchemaRegistry(settings)
        return _registries[key]


def needed(registry: SchemaRegistry | None, landing: str, format: str) -> SchemaRegistry:
    """Return the registry of a landing whose format needs one.

    :raises SpecError: its settings name none
    """
    if registry is None:
        raise SpecError(
            "LC4023",
            f"landing {landing!r}: records of format {format} name their schema in a registry, but none is set: add "
            "a section `registry` with its `url` to the spec, or `connections.registry` to the landing",
        )
    return registry


def _meaning(schema: RegisteredSchema) -> list[tuple[str, str, str]]:
    """Return a form that is equal for schemas that read the same records."""
    parts = (("", schema), *schema.imported())
    return [(name, one.kind, _laid_out(one.text)) for name, one in parts]


def _laid_out(text: str) -> str:
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):
        return " ".join(text.split())


def _version(client: SchemaRegistryClient, subject: str, version: Any, deleted: bool = False) -> Any:
    return client.get_version(subject, version, deleted=deleted)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RegistryError("LC4024", f"the registry returned {value!r:.80} as a schema id")
    return value
