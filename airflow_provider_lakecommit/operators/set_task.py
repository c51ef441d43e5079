# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a landing set share: its declaration and its connections.

Contract: constructing a task reads no connection and imports no Kafka, Iceberg or Spark library. Which landings there
are is found by the plan of each run, and known to the tasks behind it by what it left them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias, BaseOperator

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.operators.base import log_session_line
from airflow_provider_lakecommit.settings import Settings
from airflow_provider_lakecommit.tasks.arguments import refuse_unknown
from airflow_provider_lakecommit.telemetry.lineage import catalog_namespace, kafka_namespace

if TYPE_CHECKING:
    from airflow_provider_lakecommit.iceberg.catalog import Tables
    from airflow_provider_lakecommit.many.connections import SetConnections
    from airflow_provider_lakecommit.many.expansion import Expansion

__all__ = ["SetPlaces", "SetTask", "alias_of", "landing_set_of", "named_failures"]

NAMED = 20
"""Failures that an error tells in full."""


def landing_set_of(declared: LandingSet | str | Path) -> LandingSet:
    """A set, or the one that a YAML spec declares; the file is read when the DAG is parsed.

    :raises SpecError: what is wrong with the declaration
    """
    if isinstance(declared, LandingSet):
        return declared
    if not isinstance(declared, str | Path):
        raise SpecError(f"`landing_set` is a LandingSet, or the path of its YAML spec, not a {type(declared).__name__}")
    return LandingSet.from_yaml(declared)


def named_failures(failed: Mapping[str, object]) -> str:
    """What failed and why, by landing, in one line: the first :data:`NAMED`, as all of them are in the log."""
    more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    return "; ".join(f"{name}: {why}" for name, why in list(failed.items())[:NAMED]) + more


def alias_of(declared: LandingSet) -> AssetAlias:
    """What stands for the assets of a set's tables when a DAG is parsed; events are of each table's own asset."""
    return AssetAlias(f"lakecommit/{declared.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPlaces:
    """Where a set lands: its declaration as this deployment completes it, its settings and its catalog; ``namespaces``
    are what lineage calls its brokers and its catalog.
    """

    declared: LandingSet
    namespaces: tuple[str, str]
    kafka: dict[str, Any]
    tables: Tables
    settings: Settings

    @property
    def place(self) -> str:
        return str(self.declared.defaults.get("iceberg_conn_id", "iceberg_default"))

    def connect(self, expansion: Expansion) -> SetConnections:
        """Connections that all landings share; whoever asks closes them."""
        from airflow_provider_lakecommit.many.connections import SetConnections

        deployment = self.settings.deployment_id
        return SetConnections(
            self.declared, expansion, self.kafka, self.tables, deployment=deployment, place=self.place
        )


class SetTask(BaseOperator):
    """Base of the operators of a landing set.

    :param landing_set: the set, or the path of its YAML spec (its connections are Airflow's)
    """

    def __init__(self, *, landing_set: LandingSet | str | Path, **kwargs: Any) -> None:
        refuse_unknown(type(self), kwargs, kwargs.get("task_id", ""))
        super().__init__(**kwargs)
        self.landing_set = landing_set_of(landing_set)

    @contextmanager
    def places(self, *, reach: bool = True) -> Iterator[SetPlaces]:
        """The connections of the set; the catalog's clients are closed at the end of the block.

        :param reach: may the catalog be asked? A writer must do without it
        """
        from airflow_provider_lakecommit.hooks.connections import catalog_properties, source_settings
        from airflow_provider_lakecommit.iceberg.catalog import Tables
        from airflow_provider_lakecommit.many.steps import CLIENTS

        settings = Settings.read()
        whole = self.landing_set.completed_by(settings.complete)
        one = whole.with_defaults(whole.name)
        catalog, kafka = catalog_properties(one.iceberg_conn_id, reach=reach), source_settings(one)
        namespaces = kafka_namespace(kafka), catalog_namespace(catalog, one.iceberg_conn_id)
        tables = Tables(catalog, one.iceberg_conn_id, few=CLIENTS)
        try:
            yield SetPlaces(declared=whole, kafka=kafka, tables=tables, settings=settings, namespaces=namespaces)
        finally:
            tables.close()

    def log_line(self, line: str) -> None:
        """A line of a landing's session in the task's log, with its name before it."""
        whose, colon, rest = line.partition(": ")
        log_session_line(self.log, rest, whose + colon)
