# SPDX-License-Identifier: Apache-2.0
"""Where the data files of a table may lie, and whether a path that somebody announced lies there.

Contract: pure. A path is taken as text, as writers, catalogs and engines take it: nothing is decoded, since a ``%`` is
part of a name in every storage. A path lies in a folder only if it goes on behind it with a ``/``, and goes down from
there: no step of it may go up, in any way of writing it. Names of one storage (``s3``, ``s3a``, ``s3n``; a local path
with and without ``file:``) are the same place; a bucket or a host is compared as it is.

Failure story: a path that is anything else is refused by its own text, before the storage is asked for it.
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
"""In place of a stream, which is never called so: owners of files that no control log announces, those of replayed dead
letters, and those that take the place of other files.
"""
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
    """The class of somebody else that a table wants to be asked where its files go, if it names one."""
    named = properties.get(PROVIDER, "")
    return named if named and named not in _OWN else None


def data_roots(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """The folders below which a table has its data files."""
    return tuple(path for path in (location, *(properties.get(key, "") for key in _ROOTS)) if path)


def place_problem(path: str, roots: Iterable[str]) -> str | None:
    """Why a path is no place of a table's data, or ``None``."""
    scheme, whole = storage_place(path)
    below = next((rest for root in roots if (rest := _below(scheme, whole, root)) is not None), None)
    if below is None:
        return f"file {path} does not lie where the table has its data"
    if not below or below.endswith("/") or _NO_PART_OF_A_PATH.search(below) or _leads_up(below):
        return f"file {path} has no plain path below the table's location"
    return None


def name_problem(path: str, attempt: UUID) -> str | None:
    """Why the name of a file is not one that this attempt gave, or ``None``.

    An object store's layout without folders for partitions puts its hash before the name.
    """
    return None if attempt_of(path) == attempt else f"file {path} was not written by attempt {attempt}"


def attempt_of(path: str) -> UUID | None:
    """The attempt that gave a file its name, or ``None``: it has another form of name."""
    given, _, number = path.rsplit("/", 1)[-1].removesuffix(".parquet").rpartition("-")
    numbered = path.endswith(".parquet") and len(number) >= LEAST_DIGITS and number.isascii() and number.isdigit()
    before, own = given[:-_ID_LENGTH], given[-_ID_LENGTH:]
    if not numbered or not _ID.fullmatch(own) or (before and not _HASH.fullmatch(before)):
        return None
    return UUID(own)


def file_mark(table: UUID, landing: str, lane: str) -> str:
    """What the names of all files have that a lane of a landing writes for one table: digits, so that releases which do
    not know of it take it for a part of the file's number. A table that is made anew in the same place has another. The
    mark of the landing is in front, since nobody knows the names of all lanes that there were; what is replayed or
    rewritten is of no lane.
    """
    if lane in (REPLAY, REWRITE):
        return _digits(MARK_DIGITS, lane[1:], str(table), landing)
    return landing_mark(table, landing) + _digits(LANE_DIGITS, "lane", str(table), landing, lane)


def landing_mark(table: UUID, landing: str) -> str:
    """How the marks of all lanes of a landing begin."""
    return _digits(LANDING_DIGITS, "files", str(table), landing)


def _digits(many: int, *of: str) -> str:
    digest = hashlib.sha256("\x1f".join(of).encode()).digest()
    return f"{int.from_bytes(digest[:8]) % 10**many:0{many}d}"


def file_name(attempt: UUID, mark: str, number: int) -> str:
    """The name of the n-th data file of an attempt, to which an object store's layout may add its hash."""
    return f"{attempt}-{mark}{number:0{LEAST_DIGITS}d}.parquet"


def mark_of(path: str) -> str | None:
    """The mark in the name of a data file that :func:`attempt_of` knows; ``None``: it has none."""
    number = path.rsplit("/", 1)[-1].removesuffix(".parquet").rpartition("-")[2]
    return number[:MARK_DIGITS] if len(number) >= MARK_DIGITS + LEAST_DIGITS else None


def _below(scheme: str, whole: str, root: str) -> str | None:
    """What of a path is behind a folder, if it is in it."""
    of, folder = _folder(root)
    return whole[len(folder) :] if scheme == of and whole.startswith(folder) else None


@lru_cache(maxsize=256)
def _folder(root: str) -> tuple[str, str]:
    of, folder = storage_place(root)
    return of, f"{folder.rstrip('/')}/"


def storage_place(path: str) -> tuple[str, str]:
    """The storage, and the path in it with its bucket or host: equal for all ways to write one place."""
    found = _SCHEME.match(path)
    scheme = found[1].lower() if found else ""
    rest = path[found.end() :] if found else path
    kind = _SAME.get(scheme, scheme)
    # A local file has no host: `file:///x`, `file:/x` and `/x` are one.
    return kind, re.sub("/+", "/", f"/{rest}") if kind == "file" else rest


def _leads_up(below: str) -> bool:
    """A value of a partition may hold anything, dots and encoded slashes among it: only a whole step is one up."""
    for _ in range(_ENCODED_TIMES):
        if "/." in f"/{below}" and not {".", ".."}.isdisjoint(below.split("/")):
            return True
        if "%" not in below:
            return False
        # Step by step, so that an encoded slash stays within its step.
        below = "/".join(unquote(step).replace("/", "_") for step in below.split("/"))
    return not {".", ".."}.isdisjoint(below.split("/"))
