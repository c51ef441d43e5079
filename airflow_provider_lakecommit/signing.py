# SPDX-License-Identifier: Apache-2.0
"""Signatures of control records: an owner of the key wrote exactly this record for exactly this place.

Contract: a signature is an HMAC-SHA256 over the record (key, value, all headers of ours) and its place (cluster,
control topic, partition), each prefixed with its length, so that no two different records have the same bytes. The
value has the group id and an id that distinguishes records with the same content. It travels in the header
:data:`HEADER` as ``v1:key id:mac``; the key id is a short hash of the key. The first key signs, each is accepted: to
rotate keys, add the new one as :data:`OTHER_KEY` everywhere, then swap the two, then remove the old one.

A key is a setting next to those of the Kafka client (:data:`KEY`), given literally, as ``${NAME}`` of the environment
or as ``${file:/path}``; :func:`resolved` looks it up where the settings are read. It is handled like the broker's
credentials, and never written into a plan, a header or a log.

Older unsigned records are accepted only below an offset of one partition of one topic (by its id), which a user states
in :data:`UNSIGNED_BELOW`: nothing can be written there any more.

Failure story: a missing key, or one short enough to be guessed, is a
:class:`~airflow_provider_lakecommit.exceptions.SpecError`. A record whose signature is missing, corrupt, doubled, of an
unknown key, or of another record or place is not accepted.
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

PREFIX = "lakecommit."
"""Prefix of settings that are not for the Kafka client."""
KEY = "lakecommit.signing.key"
OTHER_KEY = "lakecommit.signing.key.other"
UNSIGNED_BELOW = "lakecommit.signing.unsigned.below"
"""``TOPIC_ID/PARTITION:OFFSET``, several with commas: records below it need no signature."""
HEADER = "lakecommit-signature"
OURS = "lakecommit"
LEAST_CHARACTERS = 32
_VERSION = "v1"
_REFERENCE = re.compile(r"\$\{(?:(file):)?([^}]+)\}")
_BELOW = re.compile(r"([^/,\s]+)/(\d+):(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The location of a record."""

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
        """Return the keys in Kafka settings that are :func:`resolved`; ``None``: nothing is signed, all is accepted.

        :raises SpecError: they are invalid
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
        """Return the header to send with a record."""
        return HEADER, _signed(self.keys[0], _bytes_of(place, key, value, headers)).encode("ascii")

    def doubt(
        self, place: Place, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]]
    ) -> str | None:
        """Return why a record of ours is not accepted, or ``None``."""
        headers = tuple(headers)
        signatures = [content for name, content in headers if name == HEADER]
        if not signatures:
            return "it is not signed"
        if len(signatures) > 1:
            return f"it has {len(signatures)} signatures"
        message = _bytes_of(place, key, value, headers)
        if any(hmac.compare_digest(_signed(each, message).encode("ascii"), signatures[0]) for each in self.keys):
            return None
        return f"its signature {_shown(signatures[0])} is not that of this record, at this place, by a known key"

    def needed(self, topic_id: str, partition: int, offset: int) -> bool:
        """Return True if a record there must be signed."""
        return offset >= self.below.get((topic_id, partition), 0)


def resolved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return Kafka settings with the keys instead of references to them.

    :raises SpecError: a variable or file is missing
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
        raise SpecError("LC8704", f"cannot read {name} from {what}: {type(e).__name__}") from None
    return text.strip()


def _below(stated: Any) -> dict[tuple[str, int], int]:
    parts = [part.strip() for part in str(stated or "").split(",") if part.strip()]
    found = [_BELOW.fullmatch(part) for part in parts]
    if wrong := [part for part, each in zip(parts, found, strict=True) if each is None]:
        raise SpecError(
            "LC8705", f"{UNSIGNED_BELOW}: {wrong[0]!r} is not TOPIC_ID/PARTITION:OFFSET; `lakecommit doctor` shows it"
        )
    return {(each[1], int(each[2])): int(each[3]) for each in found if each is not None}


def _signed(key: bytes, message: bytes) -> str:
    return f"{_VERSION}:{_key_id(key)}:{hmac.new(key, message, hashlib.sha256).hexdigest()}"


def _key_id(key: bytes) -> str:
    return hashlib.sha256(b"lakecommit key id\x00" + key).hexdigest()[:8]


def _bytes_of(place: Place, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Return the signed bytes. Headers of others, for example of a tracing agent, may change."""
    ours = [(n.encode(), c) for n, c in headers if n == OURS or (n.startswith(f"{OURS}-") and n != HEADER)]
    fields: list[bytes | None] = [place.cluster_id.encode(), place.topic.encode(), str(place.partition).encode()]
    fields += [key, value, str(len(ours)).encode(), *(each for header in ours for each in header)]
    return b"".join((_VERSION.encode(), *_framed(fields)))


def _framed(fields: Iterable[bytes | None]) -> Iterator[bytes]:
    """Yield the fields with their lengths; an absent field differs from an empty one."""
    for each in fields:
        yield b"-" if each is None else b"+" + len(each).to_bytes(8, "big") + each


def _shown(signature: bytes) -> str:
    """Return version and key id, if they look like one."""
    text = signature.decode("ascii", "replace")
    return ":".join(text.split(":")[:2]) if re.fullmatch(r"v\d{1,3}:[0-9a-f]{8}:[0-9a-f]*", text) else "(damaged)"
