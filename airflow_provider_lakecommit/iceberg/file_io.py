# SPDX-License-Identifier: Apache-2.0
"""Where a catalog's client reads and writes metadata files: local files without Arrow, all else as pyiceberg would.

pyiceberg takes Arrow's file systems also for local paths, and loading those costs a process more than a second of CPU
(they bring pandas along). A plan and a commit only touch metadata files, in tasks that live for a second or two.

Contract: each location is served by its own scheme, so one catalog may hold tables in several storages. A `py-io-impl`
that the user states wins over this one. Writers of data files are not concerned: they are given the user's properties.
That pyiceberg loads this one or its default, for each table anew, is told in no log.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlparse

from pyiceberg.io import FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

__all__ = ["IO_IMPL", "LightFileIO", "with_light_io"]

IO_IMPL = "py-io-impl"
_LOCAL = frozenset({"", "file"})


class LightFileIO(FileIO):
    """Picks the implementation by the scheme of each location."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__({key: value for key, value in properties.items() if key != IO_IMPL})
        self._by_scheme: dict[str, FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        return self._serving(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self._serving(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        self._serving(path).delete(path)

    def _serving(self, location: str) -> FileIO:
        scheme = urlparse(location).scheme
        if scheme not in self._by_scheme:
            self._by_scheme[scheme] = self._local() if scheme in _LOCAL else load_file_io(self.properties, location)
        return self._by_scheme[scheme]

    def _local(self) -> FileIO:
        from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]
        from pyiceberg.io.fsspec import FsspecFileIO

        class LocalFiles(LocalFileSystem):  # type: ignore[misc,unused-ignore]
            """fsspec takes the scheme off a path in all calls but this one, by which pyiceberg asks whether a file is
            there: without it every file would seem to be gone.
            """

            def lexists(self, path: str, **options: Any) -> bool:
                return bool(super().lexists(self._strip_protocol(path), **options))

        class LocalFileIO(FsspecFileIO):
            def get_fs(self, scheme: str, hostname: str | None = None) -> LocalFileSystem:
                return LocalFiles(auto_mkdir=True)

        return LocalFileIO(self.properties)


def _worth_telling(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    return LightFileIO.__qualname__ not in text and not text.startswith("Defaulting to")


logging.getLogger("pyiceberg.io").addFilter(_worth_telling)


def with_light_io(properties: Properties) -> Properties:
    """Catalog properties that lead to :class:`LightFileIO`, unless they name an implementation themselves."""
    return {IO_IMPL: f"{LightFileIO.__module__}.{LightFileIO.__qualname__}", **properties}
