# SPDX-License-Identifier: Apache-2.0
"""Access to the files of one table: the properties of the catalog's connection, and those that the catalog issues with
the table.

A REST catalog may answer a table request with storage properties: an endpoint, a region, keys that are valid for an
hour and for this table only ("vended credentials"). They are in its settings, in the ``config`` of the answer, or in
its ``storage-credentials``, of which the one with the longest prefix counts. pyiceberg requests them by default.

Contract: in ascending priority, properties are the connection's, the server's settings, ``config`` and the credential,
as far as :mod:`~airflow_provider_lakecommit.iceberg.settings` allows them; table properties set nothing. Of
several issued credentials, pyiceberg uses the one for the metadata file, and a writer gets the one for the folder of
the data files. Signing by the catalog is used only if the connection sets it, since no task contacts a catalog.

Failure story: keys without a known expiry are used; if they have expired, the storage rejects them, and the next
attempt has new ones.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.iceberg.settings import SIGNING, storage_settings
from airflow_provider_lakecommit.redaction import is_secret, redacted, secrets_in

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

_log = logging.getLogger(__name__)

OF_STORAGE = ("s3.", "s3tables.", "gcs.", "adls.", "hdfs.", "hf.", "client.")
_KEYS = ("s3.access-key-id", "client.access-key-id")
_EXPIRES = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at", "adls.sas-token-expires-at-ms")
"""What Iceberg's Java clients read, in milliseconds since the epoch; Azure's go on with the name of an account."""
_FOLDER = "write.data.path"

_RIGHTS = "allow these keys to list, read, write and delete below the table's location"
_REMEDIES = {
    r"Expired_?Token": "ExpiredToken: renew the keys of the connection, or let the catalog issue them for longer",
    r"Slow_?Down|Service_?Unavailable|status 503": "SlowDown: try again later, or write with fewer tasks at once",
    r"No_?Such_?Bucket": "NoSuchBucket: create the bucket, or correct the table's location or `s3.endpoint`",
    # The answer to a HEAD request has no reason.
    r"Access_?Denied during \w+ operation: No response body": "HTTP 403: the keys have expired (ExpiredToken) or may "
    f"not use this path (AccessDenied): renew them, or {_RIGHTS}",
    r"Access_?Denied": f"AccessDenied: {_RIGHTS}",
}
"""What to do, by a pattern of Arrow's texts, which have S3's error codes. The first match counts."""

Credential = tuple[str, Mapping[str, str]]
"""A prefix of locations, and the properties for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStorage:
    """Storage properties of a table, secrets included, as :func:`pyiceberg.io.load_file_io` takes them.

    ``handed_out`` are the names of those that the catalog issued, ``expires_at`` is when the first of them expires
    (seconds since the epoch), ``signed`` is set if the catalog issues no keys and wants to sign each request.
    """

    properties: Mapping[str, str]
    handed_out: tuple[str, ...] = ()
    expires_at: float | None = None
    signed: bool = False

    def __repr__(self) -> str:
        return f"TableStorage(handed_out={self.handed_out!r}, expires_at={self.expires_at!r}, …)"

    @property
    def secrets(self) -> tuple[str, ...]:
        """All values that no message may show, longest first."""
        return secrets_in(self.properties)

    @property
    def has_keys(self) -> bool:
        """Return whether the catalog issued secrets."""
        return any(map(is_secret, self.handed_out))

    def left(self, now: float) -> float | None:
        """Return the seconds until they expire; ``None`` if unknown."""
        return None if self.expires_at is None else self.expires_at - now

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, for a file or a channel that no other process reads."""
        return {
            "properties": dict(self.properties),
            "handed_out": list(self.handed_out),
            "expires_at": self.expires_at,
            "signed": self.signed,
        }

    @classmethod
    def from_dict(cls, v: Mapping[str, Any]) -> TableStorage:
        return cls(
            properties=v["properties"],
            handed_out=tuple(v["handed_out"]),
            expires_at=v["expires_at"],
            signed=v["signed"],
        )


def merged(own: Mapping[str, str], properties: Mapping[str, Any]) -> TableStorage:
    """Return the storage properties for writers of a table.

    :param own: storage properties of the connection
    :param properties: all properties of the table's files as the client merges them
    """
    allowed = storage_settings(properties)
    passed = {k: v for k, v in allowed.items() if k in own or k not in SIGNING}
    asks = allowed.get("s3.remote-signing-enabled", "").lower() == "true" or "s3.signer" in allowed
    return TableStorage(
        properties={**own, **passed},
        handed_out=tuple(sorted(k for k, v in passed.items() if own.get(k) != v)),
        expires_at=expiry(passed),
        signed=asks and not any(key in passed for key in _KEYS),
    )


def storage_of(table: Table, own: Mapping[str, str]) -> TableStorage:
    """Return the storage of a table that was just loaded.

    :param own: storage properties of the connection
    """
    properties: Mapping[str, Any] = table.io.properties
    credentials: Iterable[Credential] = getattr(table.catalog, "credentials", ())
    if (best := best_for(data_folder(table), credentials)) is not None:
        properties = {**table.catalog.properties, **table.config, **best}
    return merged(own, properties)


def trouble_of(io: FileIO, error: BaseException, *, with_path: bool = True) -> str:
    """What went wrong at the storage of a table, without the secrets by which it is reached; for the common errors of
    S3 also what to do.

    :param with_path: also the file that an error of the system names
    """
    text = str((None if with_path else getattr(error, "strerror", None)) or error)
    found = (r for pattern, r in _REMEDIES.items() if "AWS Error" in text and re.search(pattern, text, re.IGNORECASE))
    remedy = "".join(f"; {r}" for r in islice(found, 1))
    return redacted(f"{type(error).__name__}: {text}{remedy}", io.properties)


def delete_unused(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that no table uses; best effort."""
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except Exception as e:
            _log.warning("could not delete %s (%s); no table uses it", path, trouble_of(io, e))


def data_folder(table: Table) -> str:
    """Return the folder for the table's data files."""
    return (table.properties.get(_FOLDER) or f"{table.location().rstrip('/')}/data").rstrip("/")


def best_for(folder: str, credentials: Iterable[Credential]) -> Mapping[str, str] | None:
    """The properties of the longest prefix of a folder."""
    found = [(len(prefix), config) for prefix, config in credentials if f"{folder}/".startswith(prefix)]
    return max(found, key=lambda each: each[0])[1] if found else None


def expiry(properties: Mapping[str, str]) -> float | None:
    """Return when the first of these expires, in seconds since the epoch, as far as known."""
    values = (v for k, v in properties.items() if k.startswith(_EXPIRES))
    return min((int(v) / 1000 for v in values if v.isascii() and v.isdigit()), default=None)


def clock(at: float) -> str:
    """A moment for messages."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
