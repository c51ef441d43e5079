# SPDX-License-Identifier: Apache-2.0
"""The schema registry's settings: those of `confluent-kafka`'s registry client, next to those of the brokers.

Contract: pure. The settings travel with the Kafka client's, under :data:`PREFIX`, so that they go exactly where
credentials may go; a Kafka client never gets them. Keys are those of the registry client (``url``,
``basic.auth.user.info``, ``ssl.ca.location``, …) and :data:`UNKNOWN_WAIT`; an address begins with ``http`` or
``https``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.signing import PREFIX as OURS

PREFIX = f"{OURS}registry."
"""Prefix of the registry's settings among those of the Kafka client."""

UNKNOWN_WAIT = "unknown.wait.seconds"
"""How long to wait for a schema that the registry lacks: a setting of this package; the client does not get it."""
_WAITED, _LONGEST_WAIT = 5.0, 300

_NUMBERS = frozenset({"timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms"})

LOGIN = "basic.auth.user.info"
_ADDRESS = re.compile(r"https?://[^/\s]")
_BEFORE_AT = re.compile(r"[^'\"]*@")
_LOGIN_IN_URL = re.compile(r"(?<=://)([^/@:\s]+:(?!\d+/)(?:(?!://)\S)*|[^/@\s]*)@")
"""Matches a login up to the last ``@``, so also a password with characters that should have been encoded."""


def with_registry(kafka: Mapping[str, Any], registry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Kafka client's settings together with the registry's."""
    return {**kafka, **{f"{PREFIX}{key}": value for key, value in registry.items()}}


def registry_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """Return the registry's settings among these; empty if there are none."""
    return {key.removeprefix(PREFIX): value for key, value in kafka.items() if key.startswith(PREFIX)}


def with_login_apart(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Move a login from the address to its own key: HTTP clients log addresses."""
    url = settings.get("url")
    if not isinstance(url, str) or (found := _LOGIN_IN_URL.search(url)) is None:
        return dict(settings)
    return {LOGIN: unquote(found[1]), **settings, "url": _LOGIN_IN_URL.sub("", url)}


def shown_address(url: str) -> str:
    """Return an address, or several, without logins."""
    return _LOGIN_IN_URL.sub("***@", url)


def with_numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert texts to numbers where a number is expected: connection URIs and variables hold only texts.

    :raises SpecError: a value is not a number, or out of range
    """
    found = dict(settings)
    for key in sorted(_NUMBERS & settings.keys()):
        stated = settings[key]
        if stated is None:
            continue
        found[key] = _number(stated)
        if not 0 <= found[key] < float("inf") or (key == "timeout" and not found[key]):
            raise SpecError("LC1007", f"the settings of the schema registry are wrong: {key} cannot be {stated!r:.80}")
    return found


def addresses_in(url: Any) -> list[str]:
    """Return the addresses of a ``url`` without a login.

    :raises SpecError: it has no valid address
    """
    found = [one.strip() for one in url.split(",")] if isinstance(url, str) else []
    if not found or not all(map(_ADDRESS.match, found)):
        shown = _BEFORE_AT.sub("***@", repr(url))[:200]
        raise SpecError(
            "LC1008",
            f"the settings of the schema registry are wrong: url is {shown}; give an address like "
            "`http://HOST:8081` or `https://HOST`, or several separated by commas",
        )
    return found


def unknown_wait(settings: Mapping[str, Any]) -> float:
    """Return the value of :data:`UNKNOWN_WAIT`.

    :raises SpecError: it is not a number of seconds
    """
    stated = settings.get(UNKNOWN_WAIT, _WAITED)
    seconds = _number(stated)
    if not 0 <= seconds <= _LONGEST_WAIT:
        raise SpecError(
            "LC1009",
            f"the settings of the schema registry are wrong: {UNKNOWN_WAIT} is {stated!r:.80}; give a number "
            f"of seconds from 0 to {_LONGEST_WAIT}",
        )
    return seconds


def _number(stated: Any) -> float:
    """Return the number of a setting; -1 for any other value."""
    try:
        return -1.0 if isinstance(stated, bool) else float(stated)
    except (TypeError, ValueError):
        return -1.0
