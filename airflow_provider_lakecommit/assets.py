# SPDX-License-Identifier: Apache-2.0
"""The asset of a landing, which other DAGs are scheduled on.

Contract: one asset per landing, one whose events are partitioned by hour, and one per table of rows if there are
several. All are made from the declaration alone, so they can be at the top of a DAG file; no connection is read. It
knows a landing only as :class:`Declared`, so that ``Landing.asset`` can use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow.sdk import Asset


class Connected(Protocol):
    """The connections of a landing that its asset's name uses."""

    @property
    def iceberg(self) -> str: ...


class Declared(Protocol):
    """The parts of a landing that its asset's name uses."""

    @property
    def name(self) -> str: ...
    @property
    def table(self) -> str: ...
    @property
    def data_tables(self) -> tuple[str, ...]: ...
    @property
    def branch(self) -> str: ...
    @property
    def connections(self) -> Connected: ...


def asset_of(landing: Declared) -> Asset:
    """Return the asset of a landing; equal declarations give equal assets."""
    return _asset(landing, "")


def hourly_asset_of(landing: Declared) -> Asset:
    """Return the asset whose events have partition keys, one for each hour that is complete in the tables, for DAGs
    scheduled by partition. Tasks with ``hourly=True`` send its events.
    """
    return _asset(landing, "/hourly")


def table_assets_of(landing: Declared) -> dict[str, Asset]:
    """Return the assets of single tables, by table, of a landing with several tables of rows; empty for a single table.
    An event of such an asset is sent only with a snapshot of that table.
    """
    from airflow.sdk import Asset

    if len(landing.data_tables) == 1:
        return {}
    # `extra` distinguishes them from the assets of landings.
    return {
        table: Asset(
            name=f"lakecommit/{landing.name}/{table}",
            uri=f"lakecommit://{_place(landing)}/tables/{quote(table, safe='')}",
            extra={"table_of": landing.name, "table": table, "branch": landing.branch},
        )
        for table in landing.data_tables
    }


def _place(landing: Declared) -> str:
    return "/".join(quote(part, safe="") for part in (landing.connections.iceberg, landing.table, landing.name))


def _asset(landing: Declared, which: str) -> Asset:
    from airflow.sdk import Asset

    return Asset(
        name=f"lakecommit/{landing.name}{which}",
        uri=f"lakecommit://{_place(landing)}{which}",
        extra={"landing": landing.name, "table": landing.table, "branch": landing.branch},
    )
