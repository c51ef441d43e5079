# SPDX-License-Identifier: Apache-2.0
"""Keeps secrets out of every displayed text: messages of errors, logs, results of commands.

Contract: pure. Settings are those of pyiceberg, librdkafka, Kafka Connect, Spark, of HTTP headers or an Airflow
connection, nested as they come. :func:`is_secret` decides about a setting by its key; :func:`secrets_in` finds the
values that no text may contain: of such keys with everything below them, in texts that are JSON, ``name=value`` pairs
or addresses. References to secrets are none: a file, an endpoint, a provider class, ``${file:…}`` of Kafka Connect.
:func:`without` removes them from a text, also if a driver echoes them escaped (even twice), percent-encoded, in Base64,
line by line, or cut short. Private keys, logins in addresses and HTTP headers, and values after a name that is secret
are removed even if no setting has them.

Failure story: an unforeseen key is classified by its words, so `vendor.api-key` is secret without being listed. A value
of less than three characters, or one like `true`, is left alone: it is in every text. A common word, like `kafka`, or a
short number is removed only as a separate word, so that the message stays readable.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from html import escape
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus, unquote

STRUCK = "***"
_SHORTEST = 3
_COMMON = frozenset({"true", "false", "none", "null"})
_WORDS = re.compile(
    "access|account|admin|airflow|and|any|auth|bad|basic|batch|bearer|brokers?|catalog|changeme|cluster|commit|connect"
    "|connection|credentials?|data|default|error|event|failed|file|for|from|group|has|host|iceberg|invalid|kafka|key"
    "|lake|lakecommit|landing|local|login|main|minio|name|not|offsets?|password|postgres|read|refused|role|root|schema"
    "|secret|server|session|shop|slice|snapshot|source|spark|staging|table|test|the|token|topic|unknown|user|value|was"
    "|with|write",
    re.IGNORECASE,
)
"""Values that are common words of messages."""
_LONG = 6
"""Minimum number of digits that cannot be an offset or port by coincidence."""
_PART = 6
"""Minimum length of a truncated value that cannot be a coincidence."""

_ABOUT = (
    r"-?(?:algorithm|cache|callback|class|client-id|directory|encoder|endpoint|enabled?|exchange|expir(?:es|y|ation)|"
    r"file|folder|format|keyfile|lifetime|location|max|mechanism|min|ms|name|path|policy|provider|refresh|scope|seconds|"
    r"source|store|template|ttl|type|uri|url|version)(?![a-z])"
)
_KEYS = r"access|account|api|auth|encryption|function|keystore|master|private|shared|signing|sse|storage|subscription"
_SECRET = re.compile(
    rf"(?:passw(?:or)?d|passphrase|\bpwd\b|secret|credential|token|signature)s?+(?!{_ABOUT})"
    rf"|\b(?:{_KEYS})-?key(?!{_ABOUT})|\b(?:sas|sig)\b(?!-token|{_ABOUT})"
    # Azure's continue with the name of an account.
    r"|(?:\bsas|sas-token|account-key|client-secret)-(?!expir)[a-z0-9-]+-core-"
    r"|^adls-(?:sas-token|account-key)(?!-expir)"
    r"|jaas|authorization|\bcookie|\bpem\b|\bauth$|\buser-?info\b|\bssl-key$"
    r"|\bconnection-string|\boauthbearer-config|\bbearer$|\bpass(?:code)?$|\bassertion$"
    # What Spark itself redacts by the default of `spark.redaction.regex`.
    r"|^spark-.*(?:secret|password|token|access-?key)"
)
_HEADER = re.compile(
    r"(?:^|catalog\.(?:[\w-]+\.)?)header\.(?!x-iceberg-access-delegation$|content-type$|accept$|user-agent$|converter)",
    re.IGNORECASE,
)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_ELSEWHERE = re.compile(r"\$\{[^}]*\}")
"""A reference that Kafka Connect resolves."""
_PAIR = re.compile(r"""([A-Za-z][\w.%-]*)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;,&"']+))""")
_BEHIND = re.compile(r"(?:[^:\s]+:(?!//)|(?:bearer|basic|token)\s+)(\S+)", re.IGNORECASE)
"""Secrets that only the client knows, after their name or after a scheme of HTTP."""
_BASIC = re.compile(r"\s*basic\s+([\w+/=-]+)\s*", re.IGNORECASE)
_PASSWORDS = tuple(map(re.compile, (r"//[^/@:\s]*:([^@\s]+)@", r"//[^/@:\s]*:([^/?#\s]+)@", r"//[^/@:\s]*:(\S+)@")))
"""In addresses; the three differ if a password has characters that should have been encoded."""
_OF_HOSTS = re.compile(r"(?:(?<=//)|(?<=,)|^)[^/@:,\s]*:(?!//)([^@,\s]+)@")
_OF_ORACLE = re.compile(r"(jdbc:oracle:\w{1,20}:[^/@\s]{0,128}/)([^@\s]{1,1024})@", re.IGNORECASE)
"""As long as Oracle allows names and passwords. Without bounds, each address of a long text is read to its end."""
_SOLE_USER = re.compile(r"https?://([^/@:\s]+)@")
_USER_INFO = re.compile(
    r"(?<=://)[^/@:\s]*:[^/\s]*@|(?<=http://)[^/@\s]*@|(?<=https://)[^/@\s]*@"
    r"|(?<![\w/@%.:+-])[\w.%+-]+:[^\s/@:,'\"]+@(?=[\w.-]+:\d)"
)
_PARAMETER = re.compile(r"""([?&;#])([A-Za-z%][\w.%-]*)=([^&;#\s"'<>)]+)""")
_VALUE = r"(?!\*\*\*|\$\{|true\b|false\b|none\b|null\b)"
_ASSIGNED = re.compile(
    rf"""(?<![\w.%-])([A-Za-z][\w.%-]*)=(?:(\\{{0,8}}["'])((?:(?!\2).)+)(?:\2|$)|{_VALUE}([^\s;,&"'<>(){{}}\[\]…]+))""",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r"""(\\{0,8}["'])([\w./ -]{2,90})\1(\s*(?::|=>?|(?<=["']),(?=\s*\\{0,8}["'](?:(?!\1).)*\1\s*\)))\s*)"""
    r"""(?:[bru]?(\\{0,8}["'])((?:(?!\4).)+)(\4|$)|(\d{3,}))""",
    re.IGNORECASE | re.DOTALL,
)
"""Pairs of JSON, and of mappings as printed by Python and Java."""
_OF_HTTP = re.compile(
    r"""(authorization["'\]]*\s*(?:[:=,]|=>)\s*(?:b(?=["']))?["'\[]*(?:(?:bearer|basic|token)\s+)?)(?!\*\*\*)[^\s"',;\]]+""",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b((?:bearer|basic)\s+)(?=[\w.~+/-]*\d)[\w.~+/-]{16,}=*", re.IGNORECASE)
_PRIVATE = re.compile(r"(-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----).*?(?:-----END \2-----|\Z)", re.DOTALL)
_DONE = re.compile(r"(?:\w+ )?\*\*\*")
_CUT = re.compile(r"\.\.\.|…")


@lru_cache(maxsize=1024)
def is_secret(key: str) -> bool:
    """Return True if the value of a setting with that name is secret."""
    return _HEADER.search(key) is not None or _SECRET.search(_HUMPS.sub("-", key).lower()) is not None


def secrets_in(*settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return all values that no text may contain, longest first."""
    found = {value for section in settings for value in _secrets(section, secret=False)}
    kept = (value for value in found if len(value) >= _SHORTEST and value.lower() not in _COMMON)
    return tuple(sorted(kept, key=lambda value: (-len(value), value)))


def redacted(text: str, *settings: Mapping[str, Any]) -> str:
    """Return a text without the secrets of these settings."""
    return without(text, secrets_in(*settings))


def shown_as(*settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the usual forms of these settings' secrets, longest first, for a filter that takes plain texts."""
    values = [value for value in secrets_in(*settings) if not _stands_alone(value)]
    forms = {form for value in values for form in (_lines(value) or {value, *_escaped(value), *_in_base64(value)})}
    return tuple(sorted((form for form in forms if len(form) >= _SHORTEST), key=lambda form: (-len(form), form)))


def without(text: str, secrets: Iterable[str]) -> str:
    """Return a text without any of these values; overlapping values are removed completely."""
    kept, end = [], 0
    secrets = tuple(filter(None, secrets))
    if any(form in text for form in _all_forms(secrets)):
        for found in _any_of(secrets).finditer(text):
            if found.start(1) >= end:
                kept += [text[end : found.start(1)], STRUCK]
            end = max(end, found.end(1))
    text = "".join((*kept, text[end:]))
    for value in secrets:
        text = _without_parts(text, value)
    return _without_logins(text)


def _without_logins(text: str) -> str:
    """Return a text without anything that looks like a login."""
    text = _PRIVATE.sub(rf"\1{STRUCK}", text)
    text = _OF_HTTP.sub(rf"\1{STRUCK}", _OF_ORACLE.sub(rf"\1{STRUCK}@", _USER_INFO.sub(f"{STRUCK}@", text)))
    text = _SCHEME.sub(rf"\1{STRUCK}", text)
    text = _PARAMETER.sub(lambda p: f"{p[1]}{p[2]}={STRUCK}" if is_secret(unquote(p[2])) else p[0], text)
    text = _ASSIGNED.sub(_assigned, text)
    return _QUOTED.sub(_quoted, text)


def _assigned(found: re.Match[str]) -> str:
    value = found[3] or found[4]
    if not is_secret(unquote(found[1])) or _ELSEWHERE.fullmatch(value):
        return found[0]
    return f"{found[1]}={found[2] or ''}{STRUCK}{found[2] or ''}"


def _quoted(found: re.Match[str]) -> str:
    value = found[5] or found[7]
    if not is_secret(found[2]) or _ELSEWHERE.fullmatch(value) or _DONE.fullmatch(value):
        return found[0]
    return f"{found[1]}{found[2]}{found[1]}{found[3]}{found[4] or ''}{STRUCK}{found[6] or ''}"


def _without_parts(text: str, value: str) -> str:
    """Return a text without parts: drivers show the start and end of a long value, and a line may end inside one."""
    if len(value) <= _PART or _stands_alone(value) or not (value[:_PART] in text or value[-_PART:] in text):
        return text
    places = [0, *(place for found in _CUT.finditer(text) for place in found.span()), len(text)]
    pieces = [text[a:b] for a, b in pairwise(places)]
    return "".join(each if _CUT.fullmatch(each) else _ends_struck(each, value) for each in pieces)


def _ends_struck(text: str, value: str) -> str:
    lengths = range(min(len(value) - 1, len(text)), _PART - 1, -1)
    if behind := next((n for n in lengths if text.startswith(value[-n:])), 0):
        text = STRUCK + text[behind:]
    if before := next((n for n in lengths if text.endswith(value[:n])), 0):
        text = text[:-before] + STRUCK
    return text


def yaml_trouble(error: Exception) -> str:
    """Return the error of a YAML file, and its position; without the line itself, which may contain a password."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        if isinstance(error, UnicodeDecodeError):
            return f"byte {error.start} is not UTF-8: save it with that encoding"
        return str(error) if isinstance(error, OSError) else type(error).__name__
    if "'\\t'" in (getattr(error, "problem", None) or ""):
        return f"line {mark.line + 1}, column {mark.column + 1}: a tab; YAML is indented by spaces"
    problem = re.sub(r"(['\"]).{2,}\1", "…", getattr(error, "problem", None) or "it cannot be parsed")
    problem = problem.replace("found unexpected end of stream", "the file ends within quotes or brackets")
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


@lru_cache(maxsize=64)
def _all_forms(secrets: tuple[str, ...]) -> Mapping[str, bool]:
    """Return the forms in which a driver may show them, longest first, and whether each must be a separate word."""
    forms = {form: _stands_alone(value) for value in secrets for form in _forms(value)}
    return {form: forms[form] for form in sorted(forms, key=len, reverse=True)}


@lru_cache(maxsize=64)
def _any_of(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that finds each place where one of them starts."""
    each = (_alone(form) if alone else re.escape(form) for form, alone in _all_forms(secrets).items())
    return re.compile(f"(?=({'|'.join(each)}))")


def _stands_alone(value: str) -> bool:
    """Return True if it is so common that it is no secret as a part of another text."""
    return _WORDS.fullmatch(value) is not None or (value.isdecimal() and len(value) < _LONG)


def _alone(form: str) -> str:
    return rf"(?<![^\W_]){re.escape(form)}(?![^\W_])"


def _forms(value: str) -> Iterator[str]:
    once = {value, *_escaped(value), " ".join(value.split()) or value}
    yield from once
    yield from {form for each in once for form in _escaped(each) if len(form) >= _SHORTEST}
    yield from _lines(value)
    yield from _in_base64(value)


def _escaped(value: str) -> Iterator[str]:
    encoded = (quote(value, safe=""), quote(value), quote_plus(value))
    yield from (unquote(value), *encoded, *(re.sub("%[0-9A-F]{2}", lambda c: c[0].lower(), e) for e in encoded))
    for of_json in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield from (of_json, of_json.replace("/", "\\/"))
    # As Google's JSON library writes it, for pages.
    yield re.sub("[<>&='\u2028]", lambda c: f"\\u{ord(c[0]):04x}", json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (repr(value)[1:-1], repr(value)[1:-1].replace("'", "\\'"), escape(value), escape(value, quote=False))


def _lines(value: str) -> list[str]:
    """Return the lines of a multi-line key, as logs show them one by one."""
    lines = [line.strip() for line in value.splitlines()] if "\n" in value else []
    return [line for line in lines if len(line) > 2 * _PART and not line.startswith("-----")]


def _in_base64(value: str) -> Iterator[str]:
    """Return the parts that are the same wherever the value is in the encoded text, as in ``login:password``."""
    content = value.encode(errors="replace")
    if len(content) <= _PART or _stands_alone(value):
        return
    for before in range(3):
        text = b64encode(bytes(before) + content).decode("ascii")
        sure = text[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]
        yield from (sure, sure.replace("+", "-").replace("/", "_"))


def _secrets(value: Any, *, secret: bool) -> Iterator[str]:
    match value:
        case Mapping():
            if (named := value.get("name", value.get("key"))) is not None and "value" in value:
                yield from _secrets(value["value"], secret=secret or is_secret(str(named)))
            for key, each in value.items():
                inside = isinstance(each, Mapping) or _parsed(each) is not None
                # `auth` is the login itself, or its source.
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
        yield from _of_basic(text)
    yield from (value for key, *values in _PAIR.findall(text) if is_secret(unquote(key)) for value in values if value)
    yield from (found for pattern in (*_PASSWORDS, _OF_HOSTS, _SOLE_USER) for found in pattern.findall(text))
    yield from (found[1] for found in _OF_ORACLE.findall(text))
    if (inside := _parsed(text)) is not None:
        yield from _secrets(inside, secret=secret)
    elif "%" in text and (plain := unquote(text)) != text:
        # A connection in the form of an address has its extra here.
        yield from (found for part in (plain, *plain.split("=")) for found in _in_text(part, secret=False))


def _of_basic(text: str) -> Iterator[str]:
    """Yield the password in a header `Authorization: Basic …`."""
    if (found := _BASIC.fullmatch(text)) is None:
        return
    try:
        login, _, password = b64decode(found[1]).decode().partition(":")
    except ValueError:
        return
    yield password or login


def _parsed(text: Any) -> Any:
    """Return the parsed JSON of a text."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[", '"')):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
