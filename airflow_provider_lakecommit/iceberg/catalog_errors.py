# SPDX-License-Identifier: Apache-2.0
"""Explain what an error of a catalog means, and what fixes it: wrong properties, a gateway, or the catalog itself.

Contract: functions of the properties and of the exceptions of pyiceberg and the drivers. :func:`mistake_in` separates
errors that only a change of the properties or of the installation can fix from those of an unreachable catalog. If an
extra of this package is missing, it names the extra.

A gateway before a REST catalog that restarts, or that has no route to it, answers 404, or an HTML page with 200.
Neither is information about a table. If it were trusted, the first would be a missing table, an error that no retry
fixes (or even a table to create), and the second an unreadable table. In Iceberg's REST specification, an error is a
JSON object with ``error``, and the answer to a table request is one with ``metadata``.

Failure story: an unknown error keeps its own text.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pydantic
from pyiceberg.catalog import CatalogType
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NotInstalledError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)

from airflow_provider_lakecommit.landing import meant

if TYPE_CHECKING:
    import requests

NO_RIGHT = (AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError)
_NOT_TO_BE_WRITTEN = {errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.EPERM, errno.EROFS}
_NO_ROOM = ("database or disk is full", "attempt to write a readonly database", "No space left on device")
"""What databases of catalogs say in the same case."""
POSTGRES = "postgresql+psycopg2"
OF_FOLDERS = ("hive", "in-memory", "sql")
"""Types of catalogs that take a warehouse for a folder."""
_SQLITE = b"SQLite format 3\0"
"""The first bytes of a database."""
_EXTRAS = {"glue": "glue", "hive": "hive", "sql": "sql-sqlite"}
"""The extra that installs the client of each type of catalog; for PostgreSQL it is `postgres`."""
_FEW = 20
_SHOWN = 60
_NO_CATALOG = "HTTP status {} with {!r}, which is not the answer of an Iceberg REST catalog"


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


def denies(error: Exception) -> bool:
    """Return whether the catalog itself reports that the object does not exist. Catalogs other than REST ones always
    do.
    """
    return _foreign(error) is None


def _foreign(error: BaseException) -> requests.Response | None:
    """Return the answer that an error is about, if it has not the form of a catalog's."""
    response = getattr(error.__cause__, "response", None)
    if response is None or isinstance(error, OAuthError):
        return None
    try:
        body = json.loads(response.text)
    except ValueError:
        body = None
    return None if isinstance(body, dict) and isinstance(body.get("error"), dict) else response


def is_no_answer(error: pydantic.ValidationError) -> bool:
    """Whether this is no answer of a REST catalog at all, rather than one that pyiceberg cannot read."""
    # An answer of something else has an error or two. To list hundreds of thousands takes much memory.
    if not error.title.endswith("Response") or error.error_count() > _FEW:
        return False
    return any(e["type"] == "json_invalid" or (e["type"] == "missing" and len(e["loc"]) == 1) for e in error.errors())


def of_something_else(error: BaseException) -> bool:
    """Return True if a web server, a gateway or a login page answered instead of a catalog."""
    return is_no_answer(error) if isinstance(error, pydantic.ValidationError) else _foreign(error) is not None


def brief(error: BaseException) -> str:
    """Return an error's own text, or what matters of it: pages, wrappers and hundreds of errors are left out."""
    if isinstance(error, pydantic.ValidationError):
        if error.error_count() > _FEW:
            return f"{error.error_count()} validation errors for {error.title}"
        return _NO_CATALOG.format(200, str(error.errors()[0]["input"])[:_SHOWN]) if is_no_answer(error) else str(error)
    if (response := _foreign(error)) is not None:
        return _NO_CATALOG.format(response.status_code, response.text[:_SHOWN])
    # requests wraps urllib3's error, which names the host again and the number of attempts.
    reason = str(getattr(error.args[0] if error.args else None, "reason", ""))
    return reason.partition("): ")[2] or str(error)


def is_no_room(error: BaseException) -> bool:
    """Return True if an exception reports a full disk or a missing right to write. No waiting helps."""
    written = isinstance(error, OSError) and error.errno in _NOT_TO_BE_WRITTEN
    return written or any(text in str(error) for text in _NO_ROOM)


def remedy(error: Exception) -> str:
    """Return what to do about an error of a catalog whose properties may be right."""
    if isinstance(error, NO_RIGHT):
        return "correct the login: `credential`, `token` or `auth`; in a connection also its login and password"
    if type(error) in (RESTError, BadRequestError) and not of_something_else(error):
        return "correct what it reports, for example `warehouse`"
    if "No default path is set" in str(error):
        return "set `warehouse` there, as file:///folder or s3://bucket/folder: new tables are created in it"
    check = "it is up and reachable from here at this address"
    if of_something_else(error):
        check = (
            "it is up and reachable, and that `uri` is the address of an Iceberg REST catalog: without /v1, which "
            "clients add, and with the path of the product, such as /api/catalog (Polaris) or /iceberg (Nessie)"
        )
    elif is_no_room(error):
        where = "the storage of its tables" if isinstance(error, OSError) else "the disk of its database"
        check = f"{where} has free space and is writable"
    elif type(error) in (OSError, FileNotFoundError):
        check = "the storage of its tables (`warehouse` and the configured endpoint) exists and is reachable from here"
    elif "unable to open database file" in str(error):
        check = "the folder of its database exists and is writable"
    return f"check that {check}; the next attempt continues where this one stopped"
