# SPDX-License-Identifier: Apache-2.0
"""Decide which files may be opened for a table: anyone who can write to the table chooses the paths in its metadata.

Contract: pure. Local files may be opened only below the connection's ``warehouse``. S3, Google's and Alibaba's storage
are always allowed: their clients use the credentials of the connection or of the catalog, run no command and read no
file that a path names. Azure's client may run a command to find credentials if it has none, HDFS starts a Java machine,
and Hugging Face's client reads a token from the home folder: these three are allowed only if the connection's warehouse
is there, or if a property with their prefix is set. All other schemes are refused.

Failure story: a path with a step up, or with characters that clients interpret differently, counts as outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlparse

from airflow_provider_lakecommit.core import path_problem

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
