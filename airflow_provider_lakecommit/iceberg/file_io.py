# SPDX-License-Identifier: Apache-2.0
"""Open all files of tables: by the scheme of each location, and only if the connection allows it.

Contract: :class:`GuardedFileIO` opens each location by its own scheme, so one catalog may hold tables in several
storages; S3 by :class:`~airflow_provider_lakecommit.iceberg.arrow_io.ArrowFileIO`. It refuses locations that
:func:`location_problem` refuses, and files that are too large to read at
once. A ``py-io-impl`` of the connection is used behind it, for all locations. :class:`LightFileIO` is the same for a
catalog's client, but opens local files without Arrow: pyiceberg uses Arrow's file systems also for local paths, and
loading those costs more than a second of CPU per process (they import pandas). A plan and a commit only read metadata
files, in tasks that live for a second or two.

Failure story: a refused location or file is a :class:`TableError`: only a change of the table or of the connection
helps. pyiceberg's log line about loading an implementation for each table is suppressed.

Anyone who can write to a table chooses the paths in its metadata. So local files may be opened only below the
connection's ``warehouse``. S3, Google's and Alibaba's storage are always allowed: their clients use the credentials of
the connection or of the catalog, run no command and read no file that a path names. Azure's client may run a command to
find credentials if it has none, HDFS starts a Java machine, and Hugging Face's client reads a token from the home
folder: these three are allowed only if the connection's warehouse is there, or if a property with their prefix is set.
All other schemes are refused.

A path with a step up, or with characters that clients interpret differently, counts as outside.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlparse

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

from airflow_provider_lakecommit.core import path_problem
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.bounded import BoundedInput

IO_IMPL = "py-io-impl"
S3 = frozenset({"s3", "s3a", "s3n"})
_USERS_IMPL = "lakecommit.py-io-impl"
"""The connection's ``py-io-impl``, where a catalog's client is given :class:`LightFileIO`."""


class GuardedFileIO(FileIO):
    """The storage of a table.

    :param properties: of the storage; ``py-io-impl`` and ``warehouse`` are the connection's
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        self._impl = properties.get(_USERS_IMPL, properties.get(IO_IMPL, ""))
        super().__init__({key: value for key, value in properties.items() if key not in (IO_IMPL, _USERS_IMPL)})
        self._by_scheme: dict[str, FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        return BoundedInput(self._serving(location).new_input(location))

    def new_output(self, location: str) -> OutputFile:
        return self._serving(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        self._serving(path).delete(path)

    def _serving(self, location: str) -> FileIO:
        if problem := location_problem(location, self.properties):
            raise TableError("LC3316", f"a file of a table is not opened: {problem}")
        scheme = scheme_of(location)
        if scheme not in self._by_scheme:
            own = {**self.properties, IO_IMPL: self._impl} if self._impl else self.properties
            self._by_scheme[scheme] = self._made(scheme, own, location)
        return self._by_scheme[scheme]

    def _made(self, scheme: str, properties: Properties, location: str) -> FileIO:
        if scheme in S3 and not self._impl:
            from airflow_provider_lakecommit.iceberg.arrow_io import ArrowFileIO

            return ArrowFileIO(properties)
        return load_file_io(properties, location)


class LightFileIO(GuardedFileIO):
    """The same, with local files served without Arrow unless the connection names an implementation."""

    def _made(self, scheme: str, properties: Properties, location: str) -> FileIO:
        if scheme in LOCAL and not self._impl:
            return _local(properties)
        return super()._made(scheme, properties, location)


def _local(properties: Properties) -> FileIO:
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
    from pyiceberg.io.fsspec import FsspecFileIO

    class LocalFiles(LocalFileSystem):  # type: ignore[misc,unused-ignore]
        """Local files. fsspec strips the scheme from a path in all calls but this one, with which pyiceberg checks that
        a file exists: without it, every file would seem to be missing.
        """

        def lexists(self, path: str, **options: Any) -> bool:
            return bool(super().lexists(self._strip_protocol(path), **options))

    class LocalFileIO(FsspecFileIO):
        def get_fs(self, scheme: str, hostname: str | None = None) -> LocalFileSystem:
            return LocalFiles(auto_mkdir=True)

    return LocalFileIO(properties)


def _is_relevant(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    return LightFileIO.__qualname__ not in text and not text.startswith("Defaulting to")


logging.getLogger("pyiceberg.io").addFilter(_is_relevant)


def with_light_io(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a connection's properties with :class:`LightFileIO` in front of the implementation that they name."""
    light = f"{LightFileIO.__module__}.{LightFileIO.__qualname__}"
    return {**properties, IO_IMPL: light, _USERS_IMPL: properties.get(IO_IMPL, "")}


LOCAL = frozenset({"", "file"})
_ALWAYS = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "oss"})
_IF_NAMED: Mapping[str, str] = {
    "abfs": "adls.",
    "abfss": "adls.",
    "wasb": "adls.",
    "wasbs": "adls.",
    "hdfs": "hdfs.",
    "viewfs": "hdfs.",
    "hf": "hf.",
}
"""The prefix of the properties of each scheme."""
_SECRETLESS = "adls.sas-token-expires-at-ms"


def scheme_of(location: str) -> str:
    """Return the scheme that pyiceberg's clients see in a location."""
    return urlparse(location).scheme


def location_problem(location: str, properties: Mapping[str, str]) -> str | None:
    """Return why a location must not be opened, or ``None``.

    :param properties: of the storage, the connection's ``warehouse`` among them
    """
    scheme, warehouse = scheme_of(location), properties.get("warehouse", "")
    if scheme in LOCAL:
        return _local_problem(location, warehouse)
    if scheme in _ALWAYS:
        return None
    if (prefix := _IF_NAMED.get(scheme)) is None:
        return f"{location} is in a storage that pyiceberg does not support"
    named = any(key.startswith(prefix) and not key.startswith(_SECRETLESS) for key in properties)
    if named or _IF_NAMED.get(scheme_of(warehouse)) == prefix:
        return None
    return f"{location} is in a storage that the connection does not configure: set a property {prefix}* there"


def _local_problem(location: str, warehouse: str) -> str | None:
    if not warehouse or scheme_of(warehouse) not in LOCAL or not warehouse.removeprefix("file:").startswith("/"):
        return f"{location} is a local file, and the connection states no local `warehouse`: state it if this is meant"
    if path_problem(location, (warehouse,)) is not None:
        return f"{location} is a local file that is not below the `warehouse` of the connection, {warehouse}"
    return None
