# SPDX-License-Identifier: Apache-2.0
"""Unfinished multipart uploads below a folder on S3: list and abort them.

A killed task leaves the parts of its upload. No listing of files shows them, and they cost as much as files. Aborting
an upload removes nothing readable: its object never existed. Arrow's client can neither list nor abort them, so this
uses boto3, if it is installed (extra ``s3``).

Failure story: a refusal of the storage is a :class:`StorageError` that names the required right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_lakecommit.exceptions import StorageError
from airflow_provider_lakecommit.operations.maintenance.listing import StoredFile
from airflow_provider_lakecommit.redaction import redacted

_SCHEMES = ("s3", "s3a", "s3n")


class UnfinishedUploads:
    """The unfinished uploads of one folder.

    :param location: the folder
    :param properties: as :func:`pyiceberg.io.load_file_io` takes them, secrets included
    """

    def __init__(self, location: str, properties: Mapping[str, str]) -> None:
        scheme, _, path = location.partition("://")
        self._bucket, _, self._prefix = path.partition("/")
        self._location, self._properties = location, properties
        self._ids: dict[str, str] = {}
        self._client: Any = _client(properties) if scheme in _SCHEMES else None
        self.unknown = scheme in _SCHEMES and self._client is None
        """Whether they cannot be listed."""

    def walk(self) -> Iterator[StoredFile]:
        """Yield the unfinished objects, with the size of their parts and the time of their start.

        :raises StorageError: they cannot be listed
        """
        if self._client is None:
            return
        try:
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._prefix.rstrip('/')}/"):
                for one in page.get("Uploads", ()):
                    self._ids[one["Key"]] = one["UploadId"]
                    yield StoredFile(one["Key"], self._size(one["Key"]), one["Initiated"].timestamp())
        except Exception as e:
            raise self._trouble("listed (s3:ListBucketMultipartUploads)", e) from None

    def abort(self, path: str) -> None:
        """Abort a listed upload.

        :raises StorageError: the storage refuses
        """
        try:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=path, UploadId=self._ids[path])
        except Exception as e:
            raise self._trouble("aborted (s3:AbortMultipartUpload)", e) from None

    def _size(self, path: str) -> int:
        pages = self._client.get_paginator("list_parts")
        found = pages.paginate(Bucket=self._bucket, Key=path, UploadId=self._ids[path])
        return sum(part["Size"] for page in found for part in page.get("Parts", ()))

    def _trouble(self, what: str, error: Exception) -> StorageError:
        error_text = redacted(f"{type(error).__name__}: {error}", self._properties)
        return StorageError(
            "LC7718", f"unfinished uploads below {self._location} cannot be {what}: {error_text}. Grant these rights"
        )


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
