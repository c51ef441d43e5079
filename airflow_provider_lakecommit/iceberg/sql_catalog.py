# SPDX-License-Identifier: Apache-2.0
"""Find the name under which a SQL catalog keeps its tables, or one of them.

Contract: pyiceberg's SQL catalog stores every table under the catalog's *name*, so one database may hold several
catalogs; under another name it looks empty. A configured name wins. Otherwise, if all tables of the database are under
one name, that name is used.

Failure story: an unreachable database decides nothing; connecting reports the cause.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from airflow_provider_lakecommit.iceberg.clients import within

ANSWER_SECONDS = 30.0
"""How long the database may take. Whoever connects to it next waits anew."""

_QUERY = "SELECT catalog_name FROM iceberg_tables UNION SELECT catalog_name FROM iceberg_namespace_properties"

_OF_TABLE = "SELECT catalog_name FROM iceberg_tables WHERE table_namespace = :namespace AND table_name = :name"

_log = logging.getLogger(__name__)


def catalog_name(properties: Mapping[str, str], default: str) -> str:
    """``name`` of the properties, else the only name in the SQL catalog's database, else ``default``."""
    if stated := properties.get("name"):
        return stated
    names = _names(properties, _QUERY)
    if len(names) == 1 and default not in names:
        _log.info("The SQL catalog has its tables under the name %r: using it (set `name` to choose another)", names[0])
        return names[0]
    return default


def found_under(properties: Mapping[str, str], identifier: str) -> str:
    """Return where the database of a SQL catalog has a table that is missing under the used name; empty if nowhere."""
    # Triggers and sensors, which ask for names only, do without pyiceberg.
    from pyiceberg.catalog import Catalog

    namespace, name = ".".join(Catalog.namespace_from(identifier)), Catalog.table_name_from(identifier)
    names = _names(properties, _OF_TABLE, namespace=namespace, name=name)
    if not names:
        return ""
    called = " or ".join(f"`name: {each}`" for each in names)
    return f"the same database has it under another catalog name: set {called} among the catalog's properties"


def _is_there(uri: str) -> bool:
    """Return True if the database exists; SQLite would create an empty one."""
    kind, _, path = uri.partition(":///")
    return bool(uri) and (not kind.startswith("sqlite") or Path(path.partition("?")[0]).exists())


def _names(properties: Mapping[str, str], query: str, **values: str) -> list[str]:
    """Return the names that a SQL catalog's database has; none for another catalog."""
    uri = properties.get("uri", "")
    if properties.get("type") != "sql" or not _is_there(uri):
        return []
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return within(ANSWER_SECONDS, lambda: _queried(uri, query, values))
    except (SQLAlchemyError, ImportError, TimeoutError):
        return []


def _queried(uri: str, query: str, values: Mapping[str, str]) -> list[str]:
    from sqlalchemy import create_engine, text

    engine = create_engine(uri)
    try:
        with engine.connect() as connection:
            return sorted(str(row[0]) for row in connection.execute(text(query), values))
    finally:
        engine.dispose()
