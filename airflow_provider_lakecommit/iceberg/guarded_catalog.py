# SPDX-License-Identifier: Apache-2.0
"""Catalog clients that use only allowed parts of an answer.

Contract: :func:`connect` creates a client as :func:`pyiceberg.catalog.load_catalog` does, for a REST catalog a
:class:`RestClient`. :func:`guard` changes any client in the two places where pyiceberg uses properties of a table: its
files are opened with the connection's properties and the allowed ones of the answer, and a commit imports no class that
the table names. Loads, commits and refreshes of a client all pass through these.

Failure story: a class in ``py-catalog-impl`` is the user's own code. If it reads a server's answer itself, only its
author can guard that.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog, MetastoreCatalog, load_catalog
from pyiceberg.io import FileIO
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.utils.config import Config, merge_config

from airflow_provider_lakecommit.core import PROVIDER
from airflow_provider_lakecommit.iceberg.file_io import with_light_io
from airflow_provider_lakecommit.iceberg.settings import storage_settings

if TYPE_CHECKING:
    from pyiceberg.table import StagedTable, Table

LOCK_SECONDS = 30
"""How long SQLite waits for its lock: after its own 5 s, writers fail where hundreds of tables are made at once."""


def connect(name: str, **properties: Any) -> Catalog:
    """Return a client of a catalog."""
    stated = with_light_io(properties)
    merged: dict[str, Any] = merge_config(Config().get_catalog_config(name) or {}, stated)
    kind, uri = str(merged.get("type") or ""), str(merged.get("uri") or "")
    if uri.startswith("sqlite:") and "?" not in uri:
        stated["uri"] = f"{uri}?timeout={LOCK_SECONDS}"
    if not uri or "py-catalog-impl" in stated or not (kind.lower() == "rest" or (not kind and uri.startswith("http"))):
        return _loaded(name, stated)
    from airflow_provider_lakecommit.iceberg.rest_client import RestClient

    return RestClient(name, **merged)


def _loaded(name: str, stated: dict[str, Any]) -> Catalog:
    try:
        return load_catalog(name, **stated)
    except Exception as e:
        # The first two processes that connect to a SQL catalog both create its tables. The slower one finds them.
        if "already exists" not in str(e):
            raise
        return load_catalog(name, **stated)


def guard(catalog: Catalog) -> None:
    """Make a client use no property of a table that the table's writers must not choose."""
    if "_load_file_io" in vars(catalog):
        return
    load, stage = getattr(catalog, "_load_file_io", None), getattr(catalog, "_update_and_stage_table", None)
    if load is not None:

        def load_allowed(properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
            # Of these, a metastore knows the table's own alone.
            given = {} if isinstance(catalog, MetastoreCatalog) else storage_settings(properties)
            return load(given, location)  # type: ignore[no-any-return]

        catalog._load_file_io = load_allowed  # type: ignore[method-assign]
    if stage is not None:
        catalog._update_and_stage_table = partial(_staged, stage)  # type: ignore[attr-defined]


def own_locations(table: Table) -> LocationProvider:
    """Return where the metadata files of a table go, by pyiceberg's own rules: no class of the table is imported."""
    return load_location_provider(table.location(), _without_class(table.metadata.properties))


def _staged(stage: Any, current: Table | None, *rest: Any) -> StagedTable:
    if current is None or (named := current.metadata.properties.get(PROVIDER)) is None:
        return stage(current, *rest)  # type: ignore[no-any-return]
    before = current.metadata
    current.metadata = before.model_copy(update={"properties": _without_class(before.properties)})
    staged: StagedTable = stage(current, *rest)
    current.metadata = before
    properties = {**staged.metadata.properties, PROVIDER: named}
    staged.metadata = staged.metadata.model_copy(update={"properties": properties})
    return staged


def _without_class(properties: Properties) -> Properties:
    return {key: value for key, value in properties.items() if key != PROVIDER}
