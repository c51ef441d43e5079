# SPDX-License-Identifier: Apache-2.0
"""Signatures of control records: who holds the key wrote them, word for word, for this very place.

Contract: a signature is an HMAC-SHA256 over the record (key, value, all headers of ours) and its place (cluster,
control topic, partition), each with its length before it, so that no two different records have the same bytes. The
group id is in the value, and so is what tells two records of the same words apart. It travels in the header
:data:`HEADER` as ``v1:key id:mac``; the key id is a short hash of the key. The first key signs, each is accepted: keys
are changed by adding the new one as :data:`OTHER_KEY` everywhere, then changing places, then taking the old one out.

A key is a setting beside those of the Kafka client (:data:`KEY`), given as it is, as ``${NAME}`` of the environment or
as ``${file:/path}``; :func:`resolved` looks it up, where the settings are read. It goes the way of the broker's
credentials, and never into a plan, a header or a log.

Unsigned records of the time before are believed only below an offset of one partition of one topic (by its id), that a
person states in :data:`UNSIGNED_BELOW`: what is there cannot be written any more.

Failure story: a key that is missing where it is named, or short enough to be guessed, is a
:class:`~airflow_provider_lakecommit.exceptions.SpecError`. A signature that is missing, damaged, doubled, of a key that
is not known, or of another record or place, is no signature; the record is not believed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_lakecommit.exceptions import SpecError

__all__ = ["HEADER", "KEY", "OTHER_KEY", "PREFIX", "UNSIGNED_BELOW", "Place", "SigningKeys", "resolved"]

PREFIX = "lakecommit."
"""How settings begin that are none of the Kafka client."""
KEY = "lakecommit.signing.key"
OTHER_KEY = "lakecommit.signing.key.other"
UNSIGNED_BELOW = "lakecommit.signing.unsigned.below"
"""``TOPIC_ID/PARTITION:OFFSET``, several with commas: where records need no signature."""
HEADER = "lakecommit-signature"
OURS = "lakecommit"
LEAST_CHARACTERS = 32
_VERSION = "v1"
_REFERENCE = re.compile(r"\$\{(?:(file):)?([^}]+)\}")
_BELOW = re.compile(r"([^/,\s]+)/(\d+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a record is, or is sent to."""

    cluster_id: str
    topic: str
    partition: int


Headers = Iterable[tuple[str, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKeys:
    """The keys of one deployment, and where it needs none; ``below`` is by topic id and partition."""

    keys: tuple[bytes, ...]
    below: Mapping[tuple[str, int], int]

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SigningKeys | None:
        """The keys among Kafka settings that are :func:`resolved`, or ``None``: nothing is signed, all is believed.

        :raises SpecError: they cannot be meant
        """
        found = [str(settings[name]) for name in (KEY, OTHER_KEY) if settings.get(name)]
        if not found:
            return None
        if not settings.get(KEY):
            raise SpecError("LC8702", f"{OTHER_KEY} is given without {KEY}: the key that signs is missing")
        if any(len(key) < LEAST_CHARACTERS for key in found):
            raise SpecError(
                "LC8703",
                f"{KEY} and {OTHER_KEY} need at least {LEAST_CHARACTERS} characters: `openssl rand -hex 32` makes one",
            )
        return cls(keys=tuple(key.encode() for key in found), below=_below(settings.get(UNSIGNED_BELOW)))

    def __repr__(self) -> str:
        return f"SigningKeys({', '.join(map(_key_id, self.keys))})"

    def signature(self, place: Place, key: bytes | None, value: bytes | None, headers: Headers) -> tuple[str, bytes]:
        """The header to send with a record."""
        return HEADER, _signed(self.keys[0], _bytes_of(place, key, value, headers)).encode("ascii")

    def doubt(
        self, place: Place, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]]
    ) -> str | None:
        """Why a record of ours is not believed, or ``None``."""
        headers = tuple(headers)
        signatures = [content for name, content in headers if name == HEADER]
        if not signatures:
            return "it is not signed"
        if len(signatures) > 1:
            return f"it has {len(signatures)} signatures"
        message = _bytes_of(place, key, value, headers)
        if any(hmac.compare_digest(_signed(each, message).encode("ascii"), signatures[0]) for each in self.keys):
            return None
        return f"its signature {_shown(signatures[0])} is not that of this record, at this place, by a key known here"

    def needed(self, topic_id: str, partition: int, offset: int) -> bool:
        """Return True if a record there must be signed."""
        return offset >= self.below.get((topic_id, partition), 0)


def resolved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Kafka settings with the keys in place of what says where they are.

    :raises SpecError: there is no such variable or file
    """
    return {name: _looked_up(name, value) if name in (KEY, OTHER_KEY) else value for name, value in settings.items()}


def _looked_up(name: str, value: Any) -> Any:
    found = _REFERENCE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return value
    try:
        text = Path(found[2]).read_text(encoding="utf-8") if found[1] else os.environ[found[2]]
    except (OSError, KeyError, UnicodeDecodeError) as e:
        what = f"file {found[2]}" if found[1] else f"variable {found[2]} of the environment"
        raise SpecError("LC8704", f"{name} is to be in {what}, which cannot be read: {type(e).__name__}") from None
    return text.strip()


def _below(stated: Any) -> dict[tuple[str, int], int]:
    parts = [part.strip() for part in str(stated or "").split(",") if part.strip()]
    found = [_BELOW.fullmatch(part) for part in parts]
    if wrong := [part for part, each in zip(parts, found, strict=True) if each is None]:
        raise SpecError(
            "LC8705", f"{UNSIGNED_BELOW}: {wrong[0]!r} is not TOPIC_ID/PARTITION:OFFSET; `lakecommit doctor` tells it"
        )
    return {(each[1], int(each[2])): int(each[3]) for each in found if each is not None}


def _signed(key: bytes, message: bytes) -> str:
    return f"{_VERSION}:{_key_id(key)}:{hmac.new(key, message, hashlib.sha256).hexdigest()}"


def _key_id(key: bytes) -> str:
    return hashlib.sha256(b"lakecommit key id\x00" + key).hexdigest()[:8]


def _bytes_of(place: Place, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """What is signed. Headers of others, as of a tracing agent, may come and go."""
    ours = [(n.encode(), c) for n, c in headers if n == OURS or (n.startswith(f"{OURS}-") and n != HEADER)]
    fields: list[bytes | None] = [place.cluster_id.encode(), place.topic.encode(), str(place.partition).encode()]
    fields += [key, value, str(len(ours)).encode(), *(each for header in ours for each in header)]
    return b"".join((_VERSION.encode(), *_framed(fields)))


def _framed(fields: Iterable[bytes | None]) -> Iterator[bytes]:
    """A field that is absent is not one that is empty."""
    for each in fields:
        yield b"-" if each is None else b"+" + len(each).to_bytes(8, "big") + each


def _shown(signature: bytes) -> str:
    """Version and key id, as far as they can be one."""
    text = signature.decode("ascii", "replace")
    return ":".join(text.split(":")[:2]) if re.fullmatch(r"v\d{1,3}:[0-9a-f]{8}:[0-9a-f]*", text) else "(damaged)"
