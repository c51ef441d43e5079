# SPDX-License-Identifier: Apache-2.0
"""A landing set that is landed in this process, step by step as its operators do, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition

from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.cycle.sets.former_scan import start_former
from airflow_provider_lakecommit.cycle.sets.plans import SetPlans, plans_of
from airflow_provider_lakecommit.cycle.sets.shared_connections import SetConnections, for_all, found_landings
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import LandingSetSpec, load_set
from tests.support.shop import Shop
from tests.support.waiting import PATIENCE
from tests.support.world import World

__all__ = ["SetWorld"]


@dataclass(kw_only=True)
class SetWorld:
    """A set of a shop; each run is a fresh process as far as the package can tell."""

    shop: Shop
    lines: list[str] = field(default_factory=list)
    runs: int = 0

    def spec(self, **changed: object) -> LandingSetSpec:
        return load_set(self.shop.write(**changed))

    def run(self, *, only: str = "plan write close", **changed: object) -> tuple[SetPlans, Mapping[str, object]]:
        """One run of all landings: its plans, and how each landing was closed.

        :param only: the steps that are done; a run without "close" has died before
        """
        self.runs += 1
        run = RunIdentity(deployment="test", dag_id="test", run_id=f"run-{self.runs}")
        spec = self.spec(**changed)
        expansion = found_landings(spec.landing_set, spec.kafka)
        tables, log = Tables(spec.catalog), self.lines.append

        def plan(session: LandingSession) -> Opened:
            return open_cycle(session, run, release=lambda cycle: cycle.run != run.run_id)

        def publish(session: LandingSession) -> Opened:
            return start_former(session, run, lambda cycle: cycle.run != run.run_id)

        try:
            with SetConnections(spec.landing_set, expansion, spec.kafka, tables, deployment="test") as connections:
                plans = plans_of(spec.landing_set, connections, plan, log, publish=publish)
                if "write" in only:
                    for name, opened in plans.opened.items():
                        world = World(landing=plans.landings[name], kafka=spec.kafka, catalog=self.shop.catalog)
                        world.write(opened)
                if "close" not in only:
                    return plans, {}

                def close(session: LandingSession) -> Closed:
                    return close_cycle(session, run, plans.opened[session.landing.name].ticket)

                landings = [plans.landings[name] for name in plans.opened]
                return plans, for_all(connections, landings, close, log)
        finally:
            tables.close()

    def remove(self, what: str, offset: int, partitions: int = 2) -> None:
        """Remove records of a topic before an offset, as retention does."""
        for p in range(partitions):
            partition = TopicPartition(f"{self.shop.prefix}.{what}", p, offset)
            self.shop.admin.delete_records([partition])[partition].result(PATIENCE)
