# SPDX-License-Identifier: Apache-2.0
"""Properties of a catalog: text, except for two of a REST catalog that are mappings.

pyiceberg takes ``auth`` (how to log in: basic, oauth2, google, entra, a class of one's own) and ``ssl`` (a bundle of
authorities, a client's certificate) as mappings. Everything else that hands properties on, a connection of Airflow
included, has room for text only.

Contract: :func:`as_text` makes every value text, those two JSON; :func:`for_client` gives what pyiceberg takes;
:func:`secrets_in` all values that no message may show, :func:`struck` a message without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["as_text", "for_client", "secrets_in", "struck"]

_MAPPINGS = frozenset({"auth", "ssl"})
_SECRET = re.compile(r"secret|password|token|credential|access-key|account-key|sas|\bkey\b", re.IGNORECASE)


def as_text(properties: Mapping[str, Any]) -> dict[str, str]:
    """All of them as text."""
    return {k: json.dumps(v) if isinstance(v, Mapping) else str(v) for k, v in properties.items()}


def for_client(properties: Mapping[str, str]) -> dict[str, Any]:
    """The same for pyiceberg.

    :raises ValueError: ``auth`` or ``ssl`` is no mapping
    """
    return {key: _mapping(key, value) if key in _MAPPINGS else value for key, value in properties.items()}


def _mapping(key: str, value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"`{key}` must be a mapping, as in pyiceberg's configuration of REST catalogs, or JSON of one")
    return found


def secrets_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Values of secret-looking properties, those inside of mappings included; longest first."""
    found = {value for value in _secrets(properties) if value}
    return tuple(sorted(found, key=len, reverse=True))


def struck(text: str, secrets: Iterable[str]) -> str:
    """A text without any of these values; a value that is part of another leaves nothing of that."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _secrets(properties: Mapping[str, Any]) -> Iterator[str]:
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif key in _MAPPINGS:
            try:
                yield from _secrets({"": json.loads(value)})
            except ValueError:
                yield value
        elif _SECRET.search(key):
            yield str(value)
            if key == "credential":
                # The name of a client, a colon, and what only that client knows.
                yield str(value).partition(":")[2]
