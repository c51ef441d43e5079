# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a landing set share: its declaration, its connections, and which runs have ended.

Contract: constructing a task reads no connection and imports no Kafka, Iceberg or Spark library. Which landings there
are is found by the plan of each run, and known to the tasks behind it by what it left them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import AssetAlias, BaseOperator

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.operators.arguments import refuse_unknown
from airflow_provider_lakecommit.operators.base import ENDED, WARNING
from airflow_provider_lakecommit.settings import Settings

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core.model import Cycle
    from airflow_provider_lakecommit.iceberg.catalog import Tables
    from airflow_provider_lakecommit.many.connections import SetConnections
    from airflow_provider_lakecommit.many.expansion import Expansion

__all__ = ["SetPlaces", "SetTask", "alias_of", "landing_set_of"]


def landing_set_of(declared: LandingSet | str | Path) -> LandingSet:
    """A set, or the one that a YAML spec declares; the file is read when the DAG is parsed.

    :raises SpecError: what is wrong with the declaration
    """
    if isinstance(declared, LandingSet):
        return declared
    if not isinstance(declared, str | Path):
        raise SpecError(f"`landing_set` is a LandingSet, or the path of its YAML spec, not a {type(declared).__name__}")
    return LandingSet.from_yaml(declared)


def alias_of(declared: LandingSet) -> AssetAlias:
    """What stands for the assets of a set's tables when a DAG is parsed; events are of each table's own asset."""
    return AssetAlias(f"lakecommit/{declared.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPlaces:
    """Where a set lands: its declaration as this deployment completes it, its settings and its catalog."""

    declared: LandingSet
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
    def places(self) -> Iterator[SetPlaces]:
        """The connections of the set; the catalog's clients are closed at the end of the block."""
        from airflow_provider_lakecommit.hooks.connections import catalog_properties, source_settings
        from airflow_provider_lakecommit.iceberg.catalog import Tables
        from airflow_provider_lakecommit.many.steps import CLIENTS

        settings, declared = Settings.read(), self.landing_set
        any_of = {**declared.defaults, "name": declared.name, "topics": "any", "table": "any.table"}
        one = settings.complete(Landing.from_dict(any_of))
        shared = {"control_topic": one.control_topic, "location_providers": one.location_providers}
        whole = replace(declared, defaults={**declared.defaults, **shared})
        tables = Tables(catalog_properties(one.iceberg_conn_id), one.iceberg_conn_id, few=CLIENTS)
        try:
            yield SetPlaces(declared=whole, kafka=source_settings(one), tables=tables, settings=settings)
        finally:
            tables.close()

    def log_line(self, line: str) -> None:
        """A line of a session in the task's log, at the level that it asks for."""
        whose, _, rest = line.partition(": ")
        text = rest.removeprefix(WARNING)
        (self.log.info if text == rest else self.log.warning)("%s: %s", whose, text)

    def ended_runs(self, ti: Any) -> Callable[[Cycle], bool]:
        """Tells cycles of runs of this DAG that have ended or were deleted. Airflow is asked once for each run, by one
        thread at a time; where it does not say, a run is taken for alive.
        """
        known: dict[str, bool] = {}
        asking = threading.Lock()

        def is_over(cycle: Cycle) -> bool:
            if cycle.dag != ti.dag_id or cycle.run == ti.run_id or cycle.deployment != Settings.read().deployment_id:
                return False
            with asking:
                if cycle.run not in known:
                    known[cycle.run] = self._is_over(ti, cycle.run)
                return known[cycle.run]

        return is_over

    def _is_over(self, ti: Any, run: str) -> bool:
        try:
            there = ti.get_dr_count(dag_id=ti.dag_id, run_ids=[run])
            return not there or bool(ti.get_dr_count(dag_id=ti.dag_id, run_ids=[run], states=list(ENDED)))
        except Exception as e:
            self.log.warning("Airflow does not say whether run %s of %s is alive: %s", run, ti.dag_id, e)
            return False
