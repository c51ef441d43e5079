# SPDX-License-Identifier: Apache-2.0
"""The files below a folder of a table's storage: list and delete them, and read the storage's clock.

Contract: any storage that pyiceberg reaches by Arrow, and local disks. Files are listed lazily: of a local disk one at
a time, of another storage a folder at a time; folders deeper than :data:`STEPS` are listed with their parent, as a
layout for object stores has a folder for nearly each file. Links are not followed. :meth:`FileStore.now` is the
storage's own clock, by a file that is written and deleted again: the times of its files are by that clock.

Failure story: a refusal of the storage is a :class:`StorageError` that names the folder. A missing file counts as
deleted, so that two concurrent sweeps are harmless.

Unfinished multipart uploads below a folder on S3: list and abort them.

A killed task leaves the parts of its upload. No listing of files shows them, and they cost as much as files. Aborting
an upload removes nothing readable: its object never existed. Arrow's client can neither list nor abort them, so this
uses boto3, if it is installed (extra ``s3``).

Failure story: a refusal of the storage is a :class:`StorageError` that names the required right. An upload that its
task finishes, or another sweep aborts, after it was listed, is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileType

from airflow_provider_lakecommit.exceptions import StorageError
from airflow_provider_lakecommit.iceberg import location_problem
from airflow_provider_lakecommit.redaction import redacted

STEPS = 2
"""Folders below the first that are listed one by one."""


class FileStore:
    """The storage of one folder.

    :param location: the folder
    :param properties: as :func:`pyiceberg.io.load_file_io` takes them, secrets included
    :raises StorageError: no storage is known for such a location
    """

    def __init__(self, location: str, properties: Mapping[str, str]) -> None:
        from airflow_provider_lakecommit.iceberg import ArrowFileIO

        self._location, self._properties = location, properties
        if problem := location_problem(location, properties):
            raise StorageError("LC7707", f"folder {location} cannot be listed: {problem}")
        io = ArrowFileIO(dict(properties))
        scheme, host, self._folder = io.parse_location(location, io.properties)
        self._local = scheme == "file"
        try:
            self._files: Any = io.fs_by_scheme(scheme, host)
        except Exception as e:
            raise self._trouble("cannot be reached", e) from None

    def walk(self) -> Iterator[FileInfo]:
        """Yield all files below the folder, in no order; nothing if the folder is missing."""
        try:
            yield from self._walk_disk(self._folder) if self._local else self._walk(self._folder, STEPS)
        except OSError as e:
            raise self._trouble("cannot be listed", e) from None

    def delete(self, path: str) -> bool:
        """Remove a listed file; return True if it still existed."""
        try:
            self._files.delete_file(path)
        except FileNotFoundError:
            return False
        except OSError as e:
            # Not all storages have a separate error for it.
            if "does not exist" in str(e):
                return False
            raise self._trouble(f"keeps {path}", e) from None
        return True

    def read(self, path: str) -> bytes:
        """Return the content of a listed file."""
        with self._files.open_input_file(path) as stream:
            return bytes(stream.read())

    def now(self, name: str) -> float:
        """Return the seconds of the epoch by the storage's clock, by a file of that name, which is deleted again."""
        path = f"{self._folder.rstrip('/')}/{name}"
        try:
            with self._files.open_output_stream(path) as stream:
                stream.write(b"\0")
            return float(self._files.get_file_info(path).mtime_ns) / 1e9
        except OSError as e:
            raise self._trouble("cannot be written", e) from None
        finally:
            self.delete(path)

    def _walk_disk(self, folder: str) -> Iterator[FileInfo]:
        below: list[str] = []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        try:
                            fact = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue
                        yield _file_info(entry.path, fact.st_size, fact.st_mtime_ns)
        except FileNotFoundError:
            return
        for each in below:
            yield from self._walk_disk(each)

    def _walk(self, folder: str, steps: int) -> Iterator[FileInfo]:
        below: list[str] = []
        for info in self._files.get_file_info(FileSelector(folder, allow_not_found=True, recursive=not steps)):
            if info.type is FileType.File:
                yield _file_info(info.path, info.size or 0, info.mtime_ns or 0)
            elif info.type is FileType.Directory and steps:
                below.append(info.path)
        for each in below:
            yield from self._walk(each, steps - 1)

    def _trouble(self, what: str, error: Exception) -> StorageError:
        error_text = redacted(f"{type(error).__name__}: {error}", self._properties)
        return StorageError(
            "LC7708", f"the storage {what} below {self._location} ({error_text}): check its permissions, then try again"
        )


def _file_info(path: str, size: int, mtime_ns: int) -> FileInfo:
    """:param mtime_ns: by the storage's clock"""
    return FileInfo(path, type=FileType.File, size=size, mtime_ns=mtime_ns)


_SCHEMES = ("s3", "s3a", "s3n")


class UnfinishedUploads:
    """The unfinished uploads of one folder."""

    def __init__(self, location: str, properties: Mapping[str, str]) -> None:
        scheme, _, path = location.partition("://")
        self._bucket, _, self._prefix = path.partition("/")
        self._location, self._properties = location, properties
        self._ids: dict[str, str] = {}
        self._client: Any = _client(properties) if scheme in _SCHEMES else None
        self.unknown = scheme in _SCHEMES and self._client is None
        """Whether they cannot be listed."""

    def walk(self) -> Iterator[FileInfo]:
        """Yield the unfinished objects, with the size of their parts and the time of their start."""
        if self._client is None:
            return
        try:
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._prefix.rstrip('/')}/"):
                for one in page.get("Uploads", ()):
                    self._ids[one["Key"]] = one["UploadId"]
                    if (size := self._size(one["Key"])) is not None:
                        yield _file_info(one["Key"], size, int(one["Initiated"].timestamp() * 1e9))
        except Exception as e:
            raise self._trouble("listed (s3:ListBucketMultipartUploads)", e) from None

    def abort(self, path: str) -> bool:
        """Abort a listed upload; return False if it has ended since."""
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=path, UploadId=self._ids[path])
        except Exception as e:
            if _ended(e):
                return False
            raise self._trouble("aborted (s3:AbortMultipartUpload)", e) from None
        return True

    def _size(self, path: str) -> int | None:
        pages = self._client.get_paginator("list_parts")
        found = pages.paginate(Bucket=self._bucket, Key=path, UploadId=self._ids[path])
        try:
            return sum(int(part["Size"]) for page in found for part in page.get("Parts", ()))
        except Exception as e:
            if _ended(e):
                return None
            raise

    def _trouble(self, what: str, error: Exception) -> StorageError:
        error_text = redacted(f"{type(error).__name__}: {error}", self._properties)
        return StorageError(
            "LC7718", f"unfinished uploads below {self._location} cannot be {what}: {error_text}. Grant these rights"
        )


def _ended(error: Exception) -> bool:
    """Return True if the upload of a request no longer exists: it was finished or aborted."""
    answer: Mapping[str, Any] = getattr(error, "response", {})
    return bool(answer.get("Error", {}).get("Code") == "NoSuchUpload")


def _client(properties: Mapping[str, str]) -> Any:
    """Return a client with the settings of the tables' storage; ``None``: boto3 is not installed."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        return None

    def stated(name: str) -> str | None:
        return properties.get(f"s3.{name}") or properties.get(f"client.{name}")

    virtual = properties.get("s3.force-virtual-addressing", "").lower()
    style = {"true": "virtual", "false": "path"}.get(virtual, "path" if stated("endpoint") else "auto")
    return boto3.client(
        "s3",
        region_name=stated("region"),
        endpoint_url=stated("endpoint"),
        aws_access_key_id=stated("access-key-id"),
        aws_secret_access_key=stated("secret-access-key"),
        aws_session_token=stated("session-token"),
        config=Config(s3={"addressing_style": style}, retries={"max_attempts": 10, "mode": "standard"}),
    )
