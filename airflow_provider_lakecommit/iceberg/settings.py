# SPDX-License-Identifier: Apache-2.0
"""Properties of a catalog: as text, as pyiceberg takes them, and those that a catalog may set in its answers.

pyiceberg takes ``auth`` (how to log in: basic, oauth2, google, entra, a class of one's own) and ``ssl`` (a bundle of
authorities, a client's certificate) as mappings. Everything else that hands properties on, a connection of Airflow
included, has room for text only. :func:`as_text` makes every value text, those two JSON; :func:`for_client` gives what
pyiceberg takes.

Whoever can write to a table, or runs its catalog, chooses the values of an answer. pyiceberg imports classes that
properties name (``py-io-impl``, ``s3.retry-strategy-impl``, ``auth.impl``), and reads files and profiles that they name
(``ssl``, ``s3.profile-name``, ``hdfs.kerberos_ticket``). Such properties are taken from the user's connection only.

Contract: pure. :func:`storage_settings` and :func:`client_settings` are allow-lists, so a property that a later
pyiceberg adds is dropped until it is listed here. Table properties set nothing about storage, as in Iceberg's Java
client. Only text, numbers and booleans pass. A credential for Google's storage passes only if no client can mistake it
for the path of a key file.

Failure story: a dropped property is as if the catalog had not sent it. If the storage needs it, the storage refuses the
request; set the property in the connection.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_MAPPINGS = frozenset({"auth", "ssl"})
SIGNING = frozenset({"s3.signer", "s3.signer.uri", "s3.signer.endpoint", "s3.remote-signing-enabled"})
"""For a catalog that signs each request itself. pyiceberg knows one signer by name and imports no other."""
_GOOGLE_TOKEN = "gcs.oauth2.token"
_STORAGE = SIGNING | {
    "client.region",
    "client.access-key-id",
    "client.secret-access-key",
    "client.session-token",
    "s3.endpoint",
    "s3.region",
    "s3.access-key-id",
    "s3.secret-access-key",
    "s3.session-token",
    "s3.session-token-expires-at-ms",
    "s3.anonymous",
    "s3.force-virtual-addressing",
    "s3.path-style-access",
    "s3.server-side-encryption",
    "s3.sse-kms-key-id",
    "s3.connect-timeout",
    "s3.request-timeout",
    _GOOGLE_TOKEN,
    "gcs.oauth2.token-expires-at",
    "gcs.project-id",
    "adls.sas-token",
    "adls.sas-token-expires-at-ms",
}
_STORAGE_OF_ACCOUNTS = ("adls.sas-token.", "adls.sas-token-expires-at-ms.")
_CLIENT = frozenset({"prefix", "uri", "token", "rest-page-size", "namespace-separator", "view-endpoints-supported"})
_PLAIN = (str, int, float)


def as_text(properties: Mapping[str, Any]) -> dict[str, str]:
    """All of them as text."""
    return {k: json.dumps(v) if isinstance(v, Mapping) else str(v) for k, v in properties.items()}


def for_client(properties: Mapping[str, str]) -> dict[str, Any]:
    """The same for pyiceberg.

    :raises ValueError: ``auth`` or ``ssl`` is no mapping
    """
    out: dict[str, Any] = dict(properties)
    for key in _MAPPINGS & properties.keys():
        with suppress(ValueError):
            out[key] = json.loads(out[key])
        if not isinstance(out[key], dict):
            raise ValueError(
                f"`{key}` must be a mapping, as in pyiceberg's configuration of REST catalogs, or JSON of one"
            )
    return out


def storage_settings(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the storage properties of an answer that may be used."""
    return {k: _text(v) for k, v in answer.items() if _is_storage(k) and _is_plain(k, v)}


def client_settings(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of a REST catalog's configuration that may be used."""
    return {k: _text(v) for k, v in answer.items() if (k in _CLIENT or _is_storage(k)) and _is_plain(k, v)}


def _is_storage(key: str) -> bool:
    return key in _STORAGE or key.startswith(_STORAGE_OF_ACCOUNTS)


def _is_plain(key: str, value: Any) -> bool:
    if key == _GOOGLE_TOKEN:
        return isinstance(value, str) and value.startswith("ya29.") and "/" not in value
    return isinstance(value, _PLAIN)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
