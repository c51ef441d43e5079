# SPDX-License-Identifier: Apache-2.0
"""Properties of a catalog: text, except for two of a REST catalog that are mappings.

pyiceberg takes ``auth`` (how to log in: basic, oauth2, google, entra, a class of one's own) and ``ssl`` (a bundle of
authorities, a client's certificate) as mappings. Everything else that hands properties on, a connection of Airflow
included, has room for text only.

Contract: :func:`as_text` makes every value text, those two JSON; :func:`for_client` gives what pyiceberg takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_MAPPINGS = frozenset({"auth", "ssl"})


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
