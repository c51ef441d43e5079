# SPDX-License-Identifier: Apache-2.0
"""The Iceberg catalog of a landing: load a table, create one, send one commit request.

Contract: the catalog is contacted when it is first needed. :meth:`Tables.load` always requests the table, so the result
is current and has all snapshots: a REST catalog is never asked for fewer, whatever the properties are.
:meth:`Tables.commit` sends one request with the given requirements (pyiceberg's REST client repeats it once with a new
token if the old one was rejected) and raises every exception unchanged: only the table shows the outcome. Several
threads may call at once, each with its own client (:mod:`~airflow_provider_lakecommit.iceberg.clients`), and no call
waits longer than :data:`ANSWER_SECONDS`.

Failure story: a missing table is a :class:`TableError` (create it), an unreachable catalog or rejected credentials a
:class:`CatalogError` (a retry may help), wrong properties a :class:`SpecError`. A gateway's answer is never mistaken
for the catalog's. No message shows a secret: values of secret-looking properties, and passwords in addresses, are
redacted in the texts of drivers. After :meth:`Tables.close` every call is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

import pydantic
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate

from airflow_provider_lakecommit.core import CONNECTION_ID, connection_suffix
from airflow_provider_lakecommit.exceptions import CatalogError, ClosedError, SpecError, StorageError, TableError
from airflow_provider_lakecommit.iceberg.catalog_errors import (
    NO_RIGHT,
    OF_FOLDERS,
    brief,
    denies,
    is_no_answer,
    missing_folder,
    mistake_in,
    remedy,
    wrong_database,
    wrong_warehouse,
)
from airflow_provider_lakecommit.iceberg.clients import MANY, CatalogClients, within
from airflow_provider_lakecommit.iceberg.guarded_catalog import connect as connected
from airflow_provider_lakecommit.iceberg.guarded_catalog import guard
from airflow_provider_lakecommit.iceberg.settings import as_text, for_client
from airflow_provider_lakecommit.iceberg.sql_catalog import catalog_name, found_under
from airflow_provider_lakecommit.iceberg.storage import OF_STORAGE, TableStorage, storage_of
from airflow_provider_lakecommit.redaction import redacted

T = TypeVar("T")

ANSWER_SECONDS = 60.0
"""How long a catalog may take for one answer. Database drivers and pyiceberg's REST client would wait for ever."""

KEEP_SNAPSHOTS = "lakecommit.keep-snapshots"
"""Table property: how many snapshots of its past a landing keeps; without it none is ever expired."""

CREATED_TABLE_PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    KEEP_SNAPSHOTS: "1000",
}
"""Properties of tables that landings create. Every commit leaves a metadata file and a snapshot, so old ones go."""

_SNAPSHOTS = "snapshot-loading-mode"
"""A setting of REST catalogs. With `refs`, they return only the snapshots of branches and tags. Snapshots between the
ledger and the head, and the outcome of a commit request, would then be unknown."""
_STORAGE = (*OF_STORAGE, "py-io-impl", "warehouse")


class Tables:
    """The tables of one catalog.

    :param catalog_properties: as :func:`pyiceberg.catalog.load_catalog` takes them, and the catalog's ``name``
    :param name: the catalog's name where neither the properties nor its database have one
    :param connect: makes the catalog from its name and properties
    :param few: clients at a time, as long as none of them takes long; to make one costs more than to use it
    """

    def __init__(
        self,
        catalog_properties: Mapping[str, Any],
        name: str = "default",
        *,
        connect: Callable[..., Catalog] = connected,
        few: int = MANY,
    ) -> None:
        self._whose = connection_suffix(catalog_properties)
        self._properties = as_text({k: v for k, v in catalog_properties.items() if k != CONNECTION_ID})
        self._default_name = name
        self._connect = connect
        self._storage: dict[str, TableStorage] = {}
        self._clients = CatalogClients(self._connected, lambda: self.name, few)

    @cached_property
    def name(self) -> str:
        """Return the catalog's name in events."""
        return catalog_name(self._properties, self._default_name)

    @property
    def called(self) -> str:
        """Return the catalog's name in a message, with the connection that defines its address."""
        return f"catalog {self.name}{self._whose}"

    @property
    def _reached(self) -> str:
        """Return the same with its address, and with what defines that where it is not a connection."""
        if not (uri := self._properties.get("uri")):
            return self.called
        return f"catalog {self.name} at {self.without_secrets(uri)}{self._whose or ' (`catalog.uri` of the spec)'}"

    @property
    def catalog(self) -> Catalog:
        """A client of the catalog, connected now if it was not before; for a caller that is alone.

        :raises SpecError: the properties are wrong
        :raises CatalogError: it cannot be reached, or refuses the credentials
        """
        with self._clients.lend() as catalog:
            return catalog

    def load(self, identifier: str) -> Table:
        """Load the current table.

        :raises TableError: it does not exist
        :raises CatalogError: the catalog cannot be reached, or refuses the credentials
        """
        table = self.find(identifier)
        if table is None:
            raise TableError(
                "LC3304",
                f"there is no table {identifier} in {self.called}: "
                + (
                    self.elsewhere(identifier)
                    or "create it, or run the landing: it creates the tables that have a `create` section, and its "
                    "dead-letter table"
                ),
            )
        return table

    def find(self, identifier: str) -> Table | None:
        """Like :meth:`load`, but a table that does not exist is ``None``."""
        try:
            table = self._call(lambda catalog: catalog.load_table(identifier))
            self._storage[identifier] = storage_of(table, self.io_properties())
            return table
        except (NoSuchTableError, NoSuchNamespaceError) as e:
            if denies(e):
                return None
            raise self.unavailable(f"reading table {identifier}", e) from None
        except (SpecError, TableError, CatalogError, ClosedError):
            raise
        except FileNotFoundError as e:
            raise TableError(
                "LC3305",
                f"the catalog points table {identifier} to a metadata file that is missing ({self.describe(e)}): "
                "restore the file, or register the table with its newest metadata file",
            ) from None
        except (ValidationError, pydantic.ValidationError) as e:
            if isinstance(e, pydantic.ValidationError) and is_no_answer(e):
                raise self.unavailable(f"reading table {identifier}", e) from None
            raise TableError(
                "LC3306",
                f"pyiceberg cannot read the metadata of table {identifier} ({self.describe(e)}): remove columns of "
                "unsupported types, such as variant, from the table",
            ) from None
        except Exception as e:
            raise self.unavailable(f"reading table {identifier}", e) from None

    def check_warehouse(self) -> str:
        """Return the folder for new tables; empty where only the catalog knows it.

        :raises SpecError: no table can be made in it
        """
        if wrong := wrong_warehouse(self._properties):
            raise SpecError("LC3307", f"{self.called}: {wrong}")
        return self._properties.get("warehouse", "") if self._properties.get("type") in OF_FOLDERS else ""

    def elsewhere(self, identifier: str) -> str:
        """Return under which other name the catalog's database has a missing table, and what to set; empty if none."""
        return found_under(self._properties, identifier)

    def create(
        self,
        identifier: str,
        schema: Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
        order: SortOrder = UNSORTED_SORT_ORDER,
    ) -> Table:
        """Create a table and its namespace, unless they exist. Of two callers, the second gets the first one's table.

        :raises CatalogError: the catalog cannot be reached
        :raises StorageError: it answers, but the table cannot be created
        :raises SpecError: no other process would find the table
        """
        table = self.find(identifier)
        if table is not None:
            return table
        self.check_warehouse()
        self._create_namespace(identifier)
        options: dict[str, Any] = {"partition_spec": spec, "sort_order": order}
        options["properties"] = {**CREATED_TABLE_PROPERTIES, **(properties or {})}
        try:
            made = self._call(lambda catalog: catalog.create_table(identifier, schema, **options))
            # A catalog may hand out storage properties with a table that is read, and none with one that is made.
            return self.find(identifier) or made
        except ClosedError:
            raise
        except Exception as e:
            # Catalogs report a lost race in many ways; in all of them the table now exists.
            table = self.find(identifier)
            if table is None:
                raise self.unavailable(f"creating table {identifier}", e, StorageError) from None
            return table

    def commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> TableMetadata:
        """Send one commit request; exceptions are raised unchanged."""
        response = self._call(lambda catalog: catalog.commit_table(table, requirements, updates))
        _remove_old_metadata(table, response.metadata)
        return response.metadata

    def io_properties(self) -> dict[str, str]:
        """Properties of the storage, secrets included, as :func:`pyiceberg.io.load_file_io` takes them; none of those
        by which the catalog is reached. They never belong into a plan, an argument or a log.
        """
        return {key: value for key, value in self._properties.items() if key.startswith(_STORAGE)}

    def storage(self, identifier: str) -> TableStorage:
        """Return the current access to a table's files: the connection's properties, and those that the catalog issues
        with the table. For tasks, like :meth:`io_properties`.

        :raises TableError: the table does not exist
        :raises CatalogError: the catalog cannot be reached, or refuses the credentials
        """
        self.load(identifier)
        return self._storage[identifier]

    def known_storage(self, identifier: str) -> TableStorage | None:
        """Return the access of the last request for this table, if there was one; sends no request."""
        return self._storage.get(identifier)

    def close(self) -> None:
        """Let go of all connections, those in calls that hang as soon as they come back; returns at once."""
        self._clients.close()

    def _call(self, question: Callable[[Catalog], T]) -> T:
        with self._clients.lend() as catalog:
            return within(ANSWER_SECONDS, lambda: question(catalog))

    def _connected(self) -> Catalog:
        try:
            properties = for_client({key: value for key, value in self._properties.items() if key != "name"})
            name = self.name
            catalog = within(ANSWER_SECONDS, lambda: self._connect(name, **properties))
            # After the server had its say, which counts for more than what the client states.
            catalog.properties.pop(_SNAPSHOTS, None)
            guard(catalog)
            return catalog
        except pydantic.ValidationError as e:
            raise self.unavailable("connecting", e) from None
        except Exception as e:
            if problem := wrong_database(self._properties):
                raise SpecError("LC3381", f"{self.called}: {problem}") from None
            if (mistake := mistake_in(self._properties, e)) is None:
                raise self.unavailable("connecting", e) from None
            given = ", ".join(sorted(self._properties)) or "none"
            problem = self.without_secrets(mistake) or self.describe(e)
            raise SpecError("LC3308", f"{self._reached}: {problem}; the properties given are: {given}") from None

    def _create_namespace(self, identifier: str) -> None:
        namespace = Catalog.namespace_from(identifier)
        try:
            self._call(lambda catalog: _make_namespaces(catalog, namespace))
        except (SpecError, CatalogError, ClosedError):
            raise
        except Exception as e:
            raise self.unavailable(f"creating namespace {'.'.join(namespace)}", e, StorageError) from None

    def unavailable(self, doing: str, error: Exception, kind: type[CatalogError] = CatalogError) -> CatalogError:
        """Return the error for an exception of the catalog."""
        what = "refused the credentials" if isinstance(error, NO_RIGHT) else "failed"
        way = self.without_secrets(missing_folder(self._properties)) or remedy(error)
        return kind("LC3361", f"{self._reached} {what} while {doing} ({self.describe(error)}): {way}")

    def describe(self, error: BaseException) -> str:
        """What an exception of the catalog says, without secrets."""
        return " ".join(self.without_secrets(f"{type(error).__name__}: {brief(error)}").split())[:500]

    def without_secrets(self, text: str) -> str:
        """A text without those of the connection, and those that the catalog handed out."""
        handed_out = (storage.properties for storage in tuple(self._storage.values()))
        return redacted(text, self._properties, *handed_out)


def _make_namespaces(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    # From the innermost one: the rights to see the outer ones may be missing.
    if catalog.namespace_exists(namespace):
        return
    for depth in range(1, len(namespace) + 1):
        # It may exist, or another process may be faster: creating the table shows whether it exists.
        with suppress(Exception):
            if depth == len(namespace) or not catalog.namespace_exists(namespace[:depth]):
                catalog.create_namespace(namespace[:depth])


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
