# SPDX-License-Identifier: Apache-2.0
"""Where a landing set lands, for the tasks of its run.

Contract: the plan task of each run finds the landings of the set; downstream tasks know them from its XCom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias

from airflow_provider_lakecommit.assets import asset_of, hourly_asset_of, table_assets_of
from airflow_provider_lakecommit.hooks import Settings
from airflow_provider_lakecommit.landing import Landing, LandingSet
from airflow_provider_lakecommit.operators.base import log_session_line
from airflow_provider_lakecommit.telemetry import catalog_namespace, kafka_namespace

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle import Expansion, SetConnections
    from airflow_provider_lakecommit.iceberg import Tables

NAMED = 20
"""Failures that an error names in full."""


def named_failures(failed: Mapping[str, object]) -> str:
    """Return failures and reasons by landing in one line: the first :data:`NAMED`, as the log has all of them."""
    more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    return "; ".join(f"{name}: {why}" for name, why in list(failed.items())[:NAMED]) + more


def outlets_of(declared: Landing | LandingSet, *, hourly: bool) -> tuple[list[Asset | AssetAlias], list[Asset]]:
    """Return the outlets of a task that commits, the leading one first, and those with events by hour."""
    if isinstance(declared, LandingSet):
        # At parse time; events are of each table's own asset.
        return [AssetAlias(f"lakecommit/{declared.name}")], []
    hours = [hourly_asset_of(declared)] if hourly else []
    return [asset_of(declared), *table_assets_of(declared).values(), *hours], hours


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTarget:
    """The target of a set: its declaration as completed by this deployment, its settings and its catalog.
    ``catalog_key`` is the catalog's connection, ``namespaces`` are the lineage names of its brokers and catalog.
    """

    declared: LandingSet
    catalog_key: str
    namespaces: tuple[str, str]
    kafka: dict[str, Any]
    tables: Tables
    settings: Settings

    def connect(self, expansion: Expansion) -> SetConnections:
        """Return connections that all landings share; the caller closes them."""
        from airflow_provider_lakecommit.cycle import SetConnections

        deployment = self.settings.deployment_id
        return SetConnections(
            self.declared, expansion, self.kafka, self.tables, deployment=deployment, catalog_key=self.catalog_key
        )


@contextmanager
def set_target(declared: LandingSet, *, reach: bool = True) -> Iterator[SetTarget]:
    """Open the connections of a set; the catalog's clients are closed at the end of the block.

    :param reach: whether the catalog may be requested; a writer must do without it
    """
    from airflow_provider_lakecommit.cycle import CLIENTS
    from airflow_provider_lakecommit.hooks import catalog_properties, source_settings
    from airflow_provider_lakecommit.iceberg import Tables

    settings = Settings.read()
    complete = declared.completed_by(settings.complete)
    one = complete.with_defaults(complete.name)
    key = one.connections.iceberg
    catalog, kafka = catalog_properties(key, reach=reach), source_settings(one)
    namespaces = kafka_namespace(kafka), catalog_namespace(catalog, key)
    tables = Tables(catalog, key, few=CLIENTS)
    try:
        yield SetTarget(
            declared=complete, catalog_key=key, kafka=kafka, tables=tables, settings=settings, namespaces=namespaces
        )
    finally:
        tables.close()


def log_set_line(log: Any, line: str) -> None:
    """Log a line of a landing's session in the task's log, after the landing's name."""
    name, colon, rest = line.partition(": ")
    log_session_line(log, rest, name + colon)
