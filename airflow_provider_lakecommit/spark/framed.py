# SPDX-License-Identifier: Apache-2.0
"""Values whose schema is named in a header of their record.

Contract: if the records of a landing name registry schemas, a schema from a header is put before the value, as
:mod:`~airflow_provider_lakecommit.formats.registry.framing` reads it; other values stay unchanged. Unreadable headers
name no schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any, Protocol

from airflow_provider_lakecommit.core import WITH_REGISTRY
from airflow_provider_lakecommit.formats import with_header
from airflow_provider_lakecommit.kafka import headers_of
from airflow_provider_lakecommit.landing import Landing

_headers_of = methodcaller("headers")


class _Record(Protocol):
    def headers(self) -> Any: ...


def with_schemas(landing: Landing, records: Sequence[_Record], values: Sequence[bytes]) -> Sequence[bytes]:
    """Return the values, each after the schema that its record names in a header, if any."""
    if landing.decoding.name not in WITH_REGISTRY or landing.decoding.schema or not _any_headers(records):
        return values
    return [with_header(value, headers_of(record)) for value, record in zip(values, records, strict=True)]


def _any_headers(records: Sequence[_Record]) -> bool:
    """Return True if any record has headers: most topics have none."""
    try:
        return any(map(_headers_of, records))
    except Exception:
        # A name that is not text.
        return True
