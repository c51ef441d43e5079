# SPDX-License-Identifier: Apache-2.0
"""Explain wrong catalog properties, from the errors of pyiceberg and the drivers.

Contract: :func:`mistake_in` separates errors that only a change of the properties or of the installation can fix from
those of an unreachable catalog. If an extra of this package is missing, it names the extra.

Failure story: an unknown error keeps its own text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pyiceberg.catalog import CatalogType
from pyiceberg.exceptions import NotInstalledError

from airflow_provider_lakecommit.landing import meant

POSTGRES = "postgresql+psycopg2"
OF_FOLDERS = ("hive", "in-memory", "sql")
"""Types of catalogs that take a warehouse for a folder."""
_SQLITE = b"SQLite format 3\0"
"""The first bytes of a database."""
_EXTRAS = {"glue": "glue", "hive": "hive", "sql": "sql-sqlite"}
"""The extra that installs the client of each type of catalog; for PostgreSQL it is `postgres`."""


def mistake_in(properties: Mapping[str, str], error: Exception) -> str | None:
    """Return what to change in the properties, or to install for them; empty if only the error shows it, ``None`` if
    they may be right.
    """
    if wrong := _wrong_address(properties, error):
        return wrong
    if isinstance(error, (ImportError, NotInstalledError)):
        return _not_installed(properties, error)
    kind, known = properties.get("type", ""), [each.value for each in CatalogType]
    if isinstance(error, ValueError) and kind and kind.lower() not in known:
        return f"unknown catalog type {kind!r}{meant(kind, known)}: use one of {', '.join(known)}"
    return "" if isinstance(error, (ValueError, KeyError, TypeError)) else None


def missing_folder(properties: Mapping[str, str]) -> str:
    """Explain an unreachable catalog whose database would be in a missing folder: a wrong path, or a disk that is not
    mounted. Empty otherwise.
    """
    path = _database(properties)
    if path is None or os.path.exists(path.parent):
        return ""
    here = "" if path.is_absolute() else f" below {Path.cwd()} (an absolute path has four slashes before it)"
    return (
        f"`uri` names the database {path}, but folder {path.parent}{here} does not exist: restore it, or fix the path"
    )


def wrong_database(properties: Mapping[str, str]) -> str:
    """Explain a file path at which there can be no catalog; empty for a missing folder, and for other databases."""
    if (path := _database(properties)) is None:
        return ""
    target = path if os.path.exists(path) else path.parent
    if os.path.isdir(path):
        why = f"is a folder: name a file in it, as in sqlite:///{path / 'catalog.db'}"
    elif os.path.isfile(path.parent):
        why = f"is below {path.parent}, a file and not a folder: fix the path"
    elif os.path.exists(target) and not os.access(target, os.W_OK):
        why = f"cannot be used, because this user cannot write {target}: grant it, or fix the path"
    elif os.path.isfile(path) and not _is_sqlite(path):
        why = "is not a SQLite database: name another file; a missing one is created"
    else:
        return ""
    return f"`uri` names {path}, which {why}"


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) in (b"", _SQLITE)


def _database(properties: Mapping[str, str]) -> Path | None:
    scheme, _, path = properties.get("uri", "").partition(":///")
    return Path(path) if scheme.startswith("sqlite") and path else None


def wrong_warehouse(properties: Mapping[str, str]) -> str:
    """Explain a warehouse that depends on the working directory of a process, or is no folder that can be written;
    empty for one in an object store, and for catalogs in which a warehouse is a name.
    """
    stated = properties.get("warehouse", "")
    path = Path(stated.removeprefix("file://"))
    if properties.get("type") not in OF_FOLDERS or not stated or (":/" in stated and not stated.startswith("file:///")):
        return ""
    if not path.is_absolute():
        return (
            f"`warehouse` {stated!r} is relative to the working directory of each process: set the absolute path, as "
            f"file://{path.absolute()} or s3://bucket/folder"
        )
    first = next(each for each in (path, *path.parents) if os.path.exists(each))
    if not os.path.isdir(first):
        return f"`warehouse` {stated!r}: {first} is a file and not a folder: name a folder"
    return "" if os.access(first, os.W_OK) else f"`warehouse` {stated!r}: this user cannot write {first}: grant it"


def _not_installed(properties: Mapping[str, str], error: Exception) -> str:
    cause = error if isinstance(error, ImportError) else error.__cause__
    missing, scheme = getattr(cause, "name", None), _scheme(properties)
    if scheme in ("postgresql", "postgresql+psycopg") and missing == "psycopg":
        return f"{scheme}:// needs psycopg, which is not installed: {POSTGRES}:// needs {_install('postgres')}"
    extra = "postgres" if scheme.startswith("postgresql") else _EXTRAS.get(properties.get("type", ""))
    if missing is None or extra is None:
        return ""
    if properties.get("type") == "sql" and not scheme.startswith(("postgresql", "sqlite")):
        return f"its driver, {missing}, is not installed: install it alongside this package"
    return f"{missing} is not installed: {_install(extra)}"


def _install(extra: str) -> str:
    return f"pip install 'airflow-provider-lakecommit[{extra}]'"


def _scheme(properties: Mapping[str, str]) -> str:
    return properties.get("uri", "").partition("://")[0]


def _wrong_address(properties: Mapping[str, str], error: Exception) -> str:
    """Explain an address that cannot be one, by the name of the error: SQLAlchemy or requests may not be installed."""
    match type(error).__name__:
        case "NoSuchModuleError":
            return (
                f"`uri` begins with {_scheme(properties)!r}, which is not a database that the installed SQLAlchemy "
                f"supports: for PostgreSQL use {POSTGRES}://"
            )
        case "ArgumentError":
            return (
                f"`uri` is not the address of a database, such as {POSTGRES}://host/database or "
                "sqlite:////folder/catalog.db (four slashes before an absolute path)"
            )
        case "InvalidSchema" | "MissingSchema":
            begin = properties.get("uri", "")[:8]
            return f"`uri` of a REST catalog begins with http:// or https://, not with {begin!r}"
    return ""
