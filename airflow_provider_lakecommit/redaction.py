# SPDX-License-Identifier: Apache-2.0
"""Keeps secrets out of every text that is shown: messages of errors, logs, results of commands.

Contract: pure. Settings are those of pyiceberg, librdkafka, Kafka Connect, Spark, of HTTP headers or an Airflow
connection, nested as they come. :func:`is_secret` judges a setting by its key; :func:`secrets_in` finds the values that
no text may hold: of such keys with all below them, in texts that are JSON, ``name=value`` pairs or addresses. What only
says where or how to get one is none: a file, an endpoint, a provider class, ``${file:…}`` of Kafka Connect.
:func:`without` strikes them out of a text, also where a driver echoes them escaped or percent-encoded; credentials in
addresses and signed URLs go even if no setting holds them.

Failure story: a key that nobody foresaw is judged by its words, so `vendor.api-key` is secret without being listed. A
value of less than three characters, or one like `true`, is left alone: it is in every text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

__all__ = ["is_secret", "redacted", "secrets_in", "without", "yaml_trouble"]

STRUCK = "***"
_SHORTEST = 3
_COMMON = frozenset({"true", "false", "none", "null"})

_ABOUT = (
    r"-?(?:algorithm|cache|callback|class|client-id|directory|encoder|endpoint|enabled?|exchange|expir(?:es|y|ation)|"
    r"file|folder|format|keyfile|lifetime|location|max|mechanism|min|ms|name|path|policy|provider|refresh|scope|seconds|"
    r"source|store|template|ttl|type|uri|url|version)(?![a-z])"
)
_KEYS = r"access|account|api|auth|encryption|function|keystore|master|private|shared|signing|sse|storage|subscription"
_SECRET = re.compile(
    rf"(?:passw(?:or)?d|passphrase|\bpwd\b|secret|credential|token|signature)s?+(?!{_ABOUT})"
    rf"|\b(?:{_KEYS})-?key(?!{_ABOUT})|\b(?:sas|sig)\b(?!-token|{_ABOUT})"
    # Azure's go on with the name of an account, whatever that is.
    r"|(?:\bsas|sas-token|account-key)-(?!expir)[a-z0-9-]+-core-|^adls-(?:sas-token|account-key)(?!-expir)"
    r"|jaas|authorization|\bcookie|\bpem\b|\bauth$|\buser-?info\b|\bssl-key$"
    r"|\bconnection-string|\boauthbearer-config|\bbearer$"
    # What Spark itself redacts, as `spark.redaction.regex` says without being set.
    r"|^spark-.*(?:secret|password|token|access-?key)"
)
_HEADER = re.compile(
    r"(?:^|catalog\.(?:[\w-]+\.)?)header\.(?!x-iceberg-access-delegation$|content-type$|accept$|user-agent$|converter)",
    re.IGNORECASE,
)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_ELSEWHERE = re.compile(r"\$\{[^}]*\}")
"""A reference that Kafka Connect resolves by itself."""
_PAIR = re.compile(r"""([A-Za-z][\w.-]*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;,&"']+))""")
_BEHIND = re.compile(r"(?:[^:\s]+:(?!//)|(?:bearer|basic|token)\s+)(\S+)", re.IGNORECASE)
"""What only the client knows, behind its name or behind a scheme of HTTP."""
_PASSWORDS = tuple(map(re.compile, (r"//[^/@:\s]*:([^@\s]+)@", r"//[^/@:\s]*:([^/?#\s]+)@", r"//[^/@:\s]*:(\S+)@")))
"""Of addresses; the three differ where a password holds characters that should have been encoded."""
_SOLE_USER = re.compile(r"https?://([^/@:\s]+)@")
_USER_INFO = re.compile(r"(?<=://)[^/@:\s]*:[^/\s]*@|(?<=http://)[^/@\s]*@|(?<=https://)[^/@\s]*@")
_PARAMETER = re.compile(r"""([?&;])([A-Za-z][\w.%-]*)=([^&;\s"'<>)]+)""")
_OF_HTTP = re.compile(r"""(authorization["']?\s*[:=]\s*["']?(?:(?:bearer|basic)\s+)?)[^\s"',;]+""", re.IGNORECASE)


@lru_cache(maxsize=1024)
def is_secret(key: str) -> bool:
    """Is the value of a setting of that name for nobody's eyes?"""
    return _HEADER.search(key) is not None or _SECRET.search(_HUMPS.sub("-", key).lower()) is not None


def secrets_in(*settings: Mapping[str, Any]) -> tuple[str, ...]:
    """All values that no text may hold, longest first."""
    found = {value for section in settings for value in _secrets(section, secret=False)}
    kept = (value for value in found if len(value) >= _SHORTEST and value.lower() not in _COMMON)
    return tuple(sorted(kept, key=lambda value: (-len(value), value)))


def redacted(text: str, *settings: Mapping[str, Any]) -> str:
    """A text without the secrets of these settings."""
    return without(text, secrets_in(*settings))


def without(text: str, secrets: Iterable[str]) -> str:
    """A text without any of these values; of one that is part of another, or overlaps it, nothing is left."""
    kept, end = [], 0
    if any(secrets := tuple(secrets)):
        for found in _any_of(secrets).finditer(text):
            if found.start(1) >= end:
                kept += [text[end : found.start(1)], STRUCK]
            end = max(end, found.end(1))
    text = "".join((*kept, text[end:]))
    text = _OF_HTTP.sub(rf"\1{STRUCK}", _USER_INFO.sub(f"{STRUCK}@", text))
    return _PARAMETER.sub(lambda p: f"{p[1]}{p[2]}={STRUCK}" if is_secret(unquote(p[2])) else p[0], text)


def yaml_trouble(error: Exception) -> str:
    """What is wrong with a YAML file, and where; without the line itself, which may hold a password."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(error) if isinstance(error, OSError | UnicodeDecodeError) else type(error).__name__
    problem = re.sub(r"(['\"]).{2,}\1", "…", getattr(error, "problem", None) or "it cannot be parsed")
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


@lru_cache(maxsize=64)
def _any_of(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """Finds each place where one begins, in any form in which a driver may show it."""
    forms = {form for value in secrets if value for form in _forms(value)}
    return re.compile(f"(?=({'|'.join(map(re.escape, sorted(forms, key=len, reverse=True)))}))")


def _forms(value: str) -> Iterator[str]:
    yield from (value, unquote(value), quote(value, safe=""), quote(value))
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
    yield " ".join(value.split()) or value


def _secrets(value: Any, *, secret: bool) -> Iterator[str]:
    match value:
        case Mapping():
            for key, each in value.items():
                inside = isinstance(each, Mapping) or _parsed(each) is not None
                # `auth` is the login itself, or what it is made of.
                yield from _secrets(each, secret=secret or (is_secret(str(key)) and not (key == "auth" and inside)))
        case list() | tuple() | set() | frozenset():
            for each in value:
                yield from _secrets(each, secret=secret)
        case bytes():
            yield from _in_text(value.decode(errors="replace"), secret=secret)
        case str() | int() | float() if not isinstance(value, bool):
            yield from _in_text(str(value), secret=secret)


def _in_text(text: str, *, secret: bool) -> Iterator[str]:
    if _ELSEWHERE.fullmatch(text):
        return
    if secret:
        yield text
        yield from _BEHIND.findall(text)
    yield from (value for key, *values in _PAIR.findall(text) if is_secret(key) for value in values if value)
    yield from (found for pattern in (*_PASSWORDS, _SOLE_USER) for found in pattern.findall(text))
    if (inside := _parsed(text)) is not None:
        yield from _secrets(inside, secret=secret)


def _parsed(text: Any) -> Any:
    """What a text is the JSON of."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[", '"')):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
