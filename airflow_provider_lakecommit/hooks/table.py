# SPDX-License-Identifier: Apache-2.0
"""The Iceberg catalog of a landing: load a table, make one, send one commit request.

Contract: the catalog is reached when it is first needed, not before. :meth:`Tables.load` always asks the catalog, so
what it gives is as new as the call. :meth:`Tables.commit` sends exactly one request with the requirements it was given
and lets every exception through as it came: only a look at the table can tell what became of it.

Failure story: a table that is missing is a :class:`TableError` (somebody must make it), a catalog that is away or
refuses the credentials a :class:`CatalogError` (it may come back), wrong properties a :class:`SpecError`. No message
shows a secret: values of secret-looking properties and passwords in addresses are struck out of what drivers say.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pydantic
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from airflow_provider_lakecommit.exceptions import CatalogError, SpecError, TableError
from airflow_provider_lakecommit.hooks.file_io import with_light_io
from airflow_provider_lakecommit.hooks.sql_catalog import catalog_name

__all__ = ["CREATED_TABLE_PROPERTIES", "KEEP_SNAPSHOTS", "Tables"]

KEEP_SNAPSHOTS = "lakecommit.keep-snapshots"
"""Table property: how many snapshots of its past a landing keeps; without it none is ever expired."""

CREATED_TABLE_PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    KEEP_SNAPSHOTS: "1000",
}
"""Of the tables that landings create: every commit leaves a metadata file and a snapshot, so old ones are removed."""

_SECRET = re.compile(r"secret|password|token|credential|access-key|account-key|sas|\bkey\b", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]*@")
_STORAGE = ("s3.", "s3tables.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "py-io-impl", "warehouse")


class Tables:
    """The tables of one catalog.

    :param catalog_properties: as :func:`pyiceberg.catalog.load_catalog` takes them, and the catalog's ``name``
    :param name: the catalog's name where neither the properties nor its database tell one
    :param connect: makes the catalog from its name and properties
    """

    def __init__(
        self,
        catalog_properties: Mapping[str, Any],
        name: str = "default",
        *,
        connect: Callable[..., Catalog] = load_catalog,
    ) -> None:
        self._properties = {key: str(value) for key, value in catalog_properties.items()}
        self._default_name = name
        self._connect = connect
        self._known_name: str | None = None
        self._catalog: Catalog | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """What the catalog is called in events."""
        if self._known_name is None:
            self._known_name = catalog_name(self._properties, self._default_name)
        return self._known_name

    @property
    def catalog(self) -> Catalog:
        """The catalog itself, connected now if it was not before.

        :raises SpecError: the properties are wrong
        :raises CatalogError: it cannot be reached, or refuses the credentials
        """
        with self._lock:
            if self._catalog is None:
                self._catalog = self._connected()
            return self._catalog

    def load(self, identifier: str) -> Table:
        """A table as it is now.

        :raises TableError: there is no such table
        :raises CatalogError: the catalog cannot be reached, or refuses the credentials
        """
        table = self.find(identifier)
        if table is None:
            raise TableError(
                f"there is no table {identifier} in catalog {self.name}: create it, or state `create` in the landing"
            )
        return table

    def find(self, identifier: str) -> Table | None:
        """Like :meth:`load`, but a table that does not exist is ``None``."""
        try:
            return self.catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except (SpecError, CatalogError):
            raise
        except FileNotFoundError as e:
            raise TableError(
                f"the catalog points table {identifier} to a metadata file that is gone ({self.describe(e)}): "
                "restore the file, or register the table with its newest metadata file"
            ) from None
        except (ValidationError, pydantic.ValidationError) as e:
            raise TableError(
                f"pyiceberg cannot read the metadata of table {identifier} ({self.describe(e)}): a type that it does "
                "not know, such as variant, must go from the table"
            ) from None
        except Exception as e:
            raise self._away(f"reading table {identifier}", e) from None

    def create(
        self,
        identifier: str,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Make a table and its namespace, unless they exist. Who comes second gets the table of who came first.

        :raises CatalogError: the catalog cannot be reached, or refuses
        """
        table = self.find(identifier)
        if table is not None:
            return table
        self._create_namespace(identifier)
        wanted = {**CREATED_TABLE_PROPERTIES, **(properties or {})}
        try:
            return self.catalog.create_table(identifier, schema=schema, partition_spec=spec, properties=wanted)
        except Exception as e:
            # Catalogs tell a lost race in many ways; that the table is there now is the same in all of them.
            table = self.find(identifier)
            if table is None:
                raise self._away(f"creating table {identifier}", e) from None
            return table

    def commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> TableMetadata:
        """Send one commit request; every exception comes through as it is."""
        response = self.catalog.commit_table(table, requirements, updates)
        _remove_old_metadata(table, response.metadata)
        return response.metadata

    def io_properties(self) -> dict[str, str]:
        """Properties of the storage, secrets included, as :func:`pyiceberg.io.load_file_io` takes them; none of those
        by which the catalog is reached. They never belong into a plan, an argument or a log.
        """
        return {key: value for key, value in self._properties.items() if key.startswith(_STORAGE)}

    def close(self) -> None:
        with self._lock:
            if self._catalog is not None:
                self._catalog.close()
                self._catalog = None

    def _connected(self) -> Catalog:
        try:
            properties = {key: value for key, value in self._properties.items() if key != "name"}
            return self._connect(self.name, **with_light_io(properties))
        except (ValueError, KeyError, TypeError, NotInstalledError, ImportError) as e:
            raise SpecError(
                f"catalog {self.name}: {self.describe(e)}; the properties given are: "
                f"{', '.join(sorted(self._properties)) or 'none'}"
            ) from None
        except Exception as e:
            raise self._away("connecting", e) from None

    def _create_namespace(self, identifier: str) -> None:
        namespace = Catalog.namespace_from(identifier)
        try:
            for depth in range(1, len(namespace) + 1):
                if not self.catalog.namespace_exists(namespace[:depth]):
                    # Somebody else may have been faster; whether it is there now shows when the table is made.
                    with suppress(Exception):
                        self.catalog.create_namespace(namespace[:depth])
        except (SpecError, CatalogError):
            raise
        except Exception as e:
            raise self._away(f"creating namespace {'.'.join(namespace)}", e) from None

    def _away(self, doing: str, error: Exception) -> CatalogError:
        if isinstance(error, (UnauthorizedError, ForbiddenError)):
            return CatalogError(
                f"catalog {self.name} refused the credentials while {doing} ({self.describe(error)}): "
                "correct them in the connection or in the section `catalog`"
            )
        return CatalogError(
            f"catalog {self.name} failed while {doing} ({self.describe(error)}): check that it runs and can be "
            "reached; the next attempt goes on from where this one stopped"
        )

    def describe(self, error: BaseException) -> str:
        """What an exception of the catalog says, without secrets."""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        for key, value in self._properties.items():
            if value and _SECRET.search(key):
                text = text.replace(value, "***")
            for userinfo in _USERINFO.findall(value):
                text = text.replace(userinfo, "***@")
        return _USERINFO.sub("***@", text)[:500]


def _remove_old_metadata(table: Table, after: TableMetadata) -> None:
    """Remove the metadata files that left the table's log with this commit, if the table asks for it. pyiceberg does
    this outside of the catalog's commit, which is all that is called here.
    """
    if after.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true":
        return
    kept = {entry.metadata_file for entry in after.metadata_log}
    for entry in table.metadata.metadata_log:
        if entry.metadata_file not in kept:
            with suppress(Exception):
                table.io.delete(entry.metadata_file)
