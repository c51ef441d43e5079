# SPDX-License-Identifier: Apache-2.0
"""How a registry is reached: settings of `confluent-kafka`'s registry client, beside those of the brokers.

Contract: pure. The settings travel with those of the Kafka client, under :data:`PREFIX`, so that they go wherever
credentials may go, and nowhere else; no Kafka client is given them. Keys are those of the client (``url``,
``basic.auth.user.info``, ``ssl.ca.location``, …), and :data:`UNKNOWN_WAIT`; the first part of the name of an address is
``http`` or ``https``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.signing import PREFIX as OURS

__all__ = [
    "LOGIN",
    "PREFIX",
    "UNKNOWN_WAIT",
    "addresses_in",
    "registry_settings",
    "shown_address",
    "unknown_wait",
    "with_login_apart",
    "with_numbers",
    "with_registry",
]

PREFIX = f"{OURS}registry."
"""How the registry's settings begin among those of the Kafka client."""

UNKNOWN_WAIT = "unknown.wait.seconds"
"""How long a schema is waited for that the registry does not have: a setting of ours, which its client is not given."""
_WAITED, _LONGEST_WAIT = 5.0, 300

_NUMBERS = frozenset({"timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms"})

LOGIN = "basic.auth.user.info"
_ADDRESS = re.compile(r"https?://[^/\s]")
_BEFORE_AT = re.compile(r"[^'\"]*@")
_LOGIN_IN_URL = re.compile(r"(?<=://)([^/@:\s]+:(?!\d+/)(?:(?!://)\S)*|[^/@\s]*)@")
"""Also one whose password holds what should have been encoded: it goes as far as the last ``@``."""


def with_registry(kafka: Mapping[str, Any], registry: Mapping[str, Any]) -> dict[str, Any]:
    """The Kafka client's settings together with the registry's."""
    return {**kafka, **{f"{PREFIX}{key}": value for key, value in registry.items()}}


def registry_settings(kafka: Mapping[str, Any]) -> dict[str, Any]:
    """The registry's settings among these; empty if there are none."""
    return {key.removeprefix(PREFIX): value for key, value in kafka.items() if key.startswith(PREFIX)}


def with_login_apart(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with a login that is part of the address under its own key: HTTP clients log addresses."""
    url = settings.get("url")
    if not isinstance(url, str) or (found := _LOGIN_IN_URL.search(url)) is None:
        return dict(settings)
    return {LOGIN: unquote(found[1]), **settings, "url": _LOGIN_IN_URL.sub("", url)}


def shown_address(url: str) -> str:
    """An address, or several, without their logins."""
    return _LOGIN_IN_URL.sub("***@", url)


def with_numbers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with numbers where a text says one: in the URI of a connection, or by the environment, all are.

    :raises SpecError: one of them says no number, or none that can be meant
    """
    found = dict(settings)
    for key in sorted(_NUMBERS & settings.keys()):
        stated = settings[key]
        if stated is None:
            continue
        try:
            found[key] = float(stated)
        except (TypeError, ValueError):
            found[key] = -1.0
        if isinstance(stated, bool) or not 0 <= found[key] < float("inf") or (key == "timeout" and not found[key]):
            raise SpecError("LC1007", f"the settings of the schema registry are wrong: {key} cannot be {stated!r:.80}")
    return found


def addresses_in(url: Any) -> list[str]:
    """The addresses that a ``url`` without a login states.

    :raises SpecError: it is none
    """
    found = [one.strip() for one in url.split(",")] if isinstance(url, str) else []
    if not found or not all(map(_ADDRESS.match, found)):
        shown = _BEFORE_AT.sub("***@", repr(url))[:200]
        raise SpecError(
            "LC1008",
            f"the settings of the schema registry are wrong: url is {shown}, and has to be an address like "
            "`http://HOST:8081` or `https://HOST`, or several with commas between them",
        )
    return found


def unknown_wait(settings: Mapping[str, Any]) -> float:
    """What :data:`UNKNOWN_WAIT` says.

    :raises SpecError: it is no number of seconds
    """
    stated = settings.get(UNKNOWN_WAIT, _WAITED)
    try:
        seconds = float(stated)
    except (TypeError, ValueError):
        seconds = -1.0
    if isinstance(stated, bool) or not 0 <= seconds <= _LONGEST_WAIT:
        raise SpecError(
            "LC1009",
            f"the settings of the schema registry are wrong: {UNKNOWN_WAIT} is {stated!r:.80}, and has to be a number "
            f"of seconds from 0 to {_LONGEST_WAIT}",
        )
    return seconds
