# SPDX-License-Identifier: Apache-2.0
"""Where data files of a table may be, and whether an announced path is one of these places.

A path is taken literally, as writers, catalogs and engines do: nothing is decoded, since ``%`` is part of a name in
every storage. A path is inside a folder only if a ``/`` follows the folder and no step leads up, in any encoding.
Schemes of one storage (``s3``, ``s3a``, ``s3n``; local paths with and without ``file:``) are equal; buckets and hosts
must match exactly. Other paths are refused before the storage is asked.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import unquote
from uuid import UUID

PROVIDER = "write.py-location-provider.impl"
"""Table property: the class that says where files go."""
PLACING = ("write.data.path", "write.object-storage.", "write.folder-storage.", "write.location-provider.", PROVIDER)
"""How the table properties begin that say where files go."""
_OWN = frozenset(f"pyiceberg.table.locations.{name}LocationProvider" for name in ("Simple", "ObjectStore"))

_SAME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb", "": "file"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_ROOTS = ("write.data.path", "write.object-storage.path", "write.folder-storage.path")
REPLAY, REWRITE = "@replay", "@rewrite"
"""Owners of files that no control log announces, used in place of a stream: replayed dead letters, rewritten files."""
_NO_PART_OF_A_PATH = re.compile(r"[\x00-\x1f\x7f\\?#]")
_HASH = re.compile(r"[01]+-")
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ID_LENGTH = 36
LEAST_DIGITS = 5
LANDING_DIGITS, LANE_DIGITS = 13, 7
MARK_DIGITS = LANDING_DIGITS + LANE_DIGITS
_ENCODED_TIMES = 3
"""How often a step is decoded to see whether it goes up."""


def named_provider(properties: Mapping[str, str]) -> str | None:
    """Return the foreign location provider class that a table names, if any."""
    named = properties.get(PROVIDER, "")
    return named if named and named not in _OWN else None


def data_roots(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(path for path in (location, *(properties.get(key, "") for key in _ROOTS)) if path)


def path_problem(path: str, roots: Iterable[str]) -> str | None:
    """Return why a path is no place of a table's data, or ``None``."""
    scheme, location = storage_location(path)
    below = next((rest for root in roots if (rest := _below(scheme, location, root)) is not None), None)
    if below is None:
        return f"file {path} does not lie where the table has its data"
    if not below or below.endswith("/") or _NO_PART_OF_A_PATH.search(below) or _leads_up(below):
        return f"file {path} has no plain path below the table's location"
    return None


def name_problem(path: str, attempt: UUID) -> str | None:
    """Return why a file's name was not given by this attempt, or ``None``."""
    return None if attempt_of(path) == attempt else f"file {path} was not written by attempt {attempt}"


def attempt_of(path: str) -> UUID | None:
    """Return the attempt that named a file, or ``None`` for a foreign name. Object store layouts add a hash in
    front.
    """
    given, _, number = path.rsplit("/", 1)[-1].removesuffix(".parquet").rpartition("-")
    numbered = path.endswith(".parquet") and len(number) >= LEAST_DIGITS and number.isascii() and number.isdigit()
    before, own = given[:-_ID_LENGTH], given[-_ID_LENGTH:]
    if not numbered or not _ID.fullmatch(own) or (before and not _HASH.fullmatch(before)):
        return None
    return UUID(own)


def file_mark(table: UUID, landing: str, lane: str) -> str:
    """Return the digits in the names of all files that a lane of a landing writes for one table.

    Digits, so that readers unaware of marks take them as part of the file's number. The landing's mark is first, since
    the names of all former lanes are not known.
    """
    if lane in (REPLAY, REWRITE):
        return _digits(MARK_DIGITS, lane[1:], str(table), landing)
    return landing_mark(table, landing) + _digits(LANE_DIGITS, "lane", str(table), landing, lane)


def landing_mark(table: UUID, landing: str) -> str:
    """Return the beginning of the marks of all lanes of a landing."""
    return _digits(LANDING_DIGITS, "files", str(table), landing)


def _digits(many: int, *of: str) -> str:
    digest = hashlib.sha256("\x1f".join(of).encode()).digest()
    return f"{int.from_bytes(digest[:8]) % 10**many:0{many}d}"


def file_name(attempt: UUID, mark: str, number: int) -> str:
    """Return the name of an attempt's n-th data file; an object store's layout may add its hash."""
    return f"{attempt}-{mark}{number:0{LEAST_DIGITS}d}.parquet"


def mark_of(path: str) -> str | None:
    """Return the mark in a file name that :func:`attempt_of` accepts, if it has one."""
    number = path.rsplit("/", 1)[-1].removesuffix(".parquet").rpartition("-")[2]
    return number[:MARK_DIGITS] if len(number) >= MARK_DIGITS + LEAST_DIGITS else None


def _below(scheme: str, location: str, root: str) -> str | None:
    of, folder = _folder(root)
    return location[len(folder) :] if scheme == of and location.startswith(folder) else None


@lru_cache(maxsize=256)
def _folder(root: str) -> tuple[str, str]:
    of, folder = storage_location(root)
    return of, f"{folder.rstrip('/')}/"


def storage_location(path: str) -> tuple[str, str]:
    """Return the storage, and the path in it with its bucket or host: equal for all spellings of one place."""
    found = _SCHEME.match(path)
    scheme = found[1].lower() if found else ""
    rest = path[found.end() :] if found else path
    kind = _SAME.get(scheme, scheme)
    # A local file has no host: `file:///x`, `file:/x` and `/x` are one.
    return kind, re.sub("/+", "/", f"/{rest}") if kind == "file" else rest


def _leads_up(below: str) -> bool:
    """Return True if a step leads up. Partition values may hold dots and encoded slashes; only a whole step leads
    up.
    """
    for _ in range(_ENCODED_TIMES):
        if "/." in f"/{below}" and not {".", ".."}.isdisjoint(below.split("/")):
            return True
        if "%" not in below:
            return False
        # Step by step, so that an encoded slash stays within its step.
        below = "/".join(unquote(step).replace("/", "_") for step in below.split("/"))
    return not {".", ".."}.isdisjoint(below.split("/"))
