# SPDX-License-Identifier: Apache-2.0
"""Open all files of tables: by the scheme of each location, and only if the connection allows it.

Contract: :class:`GuardedFileIO` opens each location by its own scheme, so one catalog may hold tables in several
storages; S3 by :class:`~airflow_provider_lakecommit.iceberg.arrow_io.ArrowFileIO`. It refuses locations that
:func:`~airflow_provider_lakecommit.iceberg.locations.location_problem` refuses, and files that are too large to read at
once. A ``py-io-impl`` of the connection is used behind it, for all locations. :class:`LightFileIO` is the same for a
catalog's client, but opens local files without Arrow: pyiceberg uses Arrow's file systems also for local paths, and
loading those costs more than a second of CPU per process (they import pandas). A plan and a commit only read metadata
files, in tasks that live for a second or two.

Failure story: a refused location or file is a :class:`TableError`: only a change of the table or of the connection
helps. pyiceberg's log line about loading an implementation for each table is suppressed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.bounded import BoundedInput
from airflow_provider_lakecommit.iceberg.locations import LOCAL, location_problem, scheme_of

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
