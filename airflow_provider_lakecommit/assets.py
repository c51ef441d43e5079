# SPDX-License-Identifier: Apache-2.0
"""The asset of a landing, which other DAGs are scheduled on.

Contract: one asset per landing, made from the declaration alone, so that it may stand at the top of a DAG file; no
connection is read. It is told what a landing is only by :class:`Declared`, so that ``Landing.asset`` can hand it on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow.sdk import Asset

__all__ = ["Declared", "asset_of"]


class Declared(Protocol):
    """What of a landing names its asset."""

    @property
    def name(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def iceberg_conn_id(self) -> str: ...


def asset_of(landing: Declared) -> Asset:
    """The asset of a landing; equal declarations give equal assets."""
    from airflow.sdk import Asset

    place = "/".join(quote(part, safe="") for part in (landing.iceberg_conn_id, landing.table, landing.name))
    return Asset(
        name=f"lakecommit/{landing.name}",
        uri=f"lakecommit://{place}",
        extra={"landing": landing.name, "table": landing.table, "branch": landing.branch},
    )
