# SPDX-License-Identifier: Apache-2.0
"""Tells cycles of a landing on a real control topic, as its tasks would, without landing anything."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer

from airflow_provider_lakecommit.control.records import Outgoing, Sender, table_reference
from airflow_provider_lakecommit.core.identity import cycle_id
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import LIVE, Cycle, Plan
from tests.support.story import ORDERS, P0, Ranges, coverage, plan, report_of, table_uuid

__all__ = ["Narrator"]


class Narrator:
    """What it tells happened ``ago`` seconds ago.

    :param kafka: settings of the client
    :param producer: one that several share
    """

    ago = 0.0

    def __init__(
        self,
        kafka: Mapping[str, Any],
        topic: str,
        landing: str,
        dag: str,
        deployment: str = "live-test",
        producer: Producer | None = None,
    ) -> None:
        self.topic, self.landing = topic, landing
        self._dag, self._deployment = dag, deployment
        self._producer = Producer({**kafka, "max.in.flight": 1}) if producer is None else producer
        self._plans: dict[str, Plan] = {}

    def opens(self, run: str, ranges: Ranges = ((P0, 0, 10),), *, groups: int = 1, **of_plan: Any) -> None:
        """A cycle with a slice for each range, in so many groups."""
        requested_at = datetime.fromtimestamp(time.time() - self.ago, UTC)
        made = plan([[r] for r in ranges], **{"requested_at": requested_at, **of_plan})
        slices = tuple(replace(s, group=n % groups) for n, s in enumerate(made.slices))
        self._plans[run] = replace(made, slices=slices)
        cycle = Cycle(
            commit_id=self._sender(run).commit_id, dag=self._dag, run=run, number=0, slot=0, deployment=self._deployment
        )
        self._send(self._sender(run).opened(uuid4(), _now(), cycle, self._plans[run], Directives()))

    def reports(self, run: str, which: slice = slice(None), **of_report: Any) -> None:
        """These of its slices are reported, by default all."""
        made = self._plans[run]
        for work in made.slices[which]:
            report = report_of(work, attempt=uuid4(), window=made.window_id, **of_report)
            self._send(self._sender(run, "write").reported(uuid4(), _now(), report))

    def fails(self, run: str, reason: str = "catalog answers 503") -> None:
        """A commit attempt of it fails."""
        self._send(self._sender(run, "commit").commit_failed(uuid4(), _now(), reason, str(uuid4()), Directives()))

    def completes(self, run: str, tables: Sequence[str] = (ORDERS,), ranges: Ranges | None = None) -> None:
        """It publishes its tables, and closes; by default with all that was planned."""
        sender, made = self._sender(run, "commit"), self._plans[run]
        for table in tables:
            self._send(
                sender.published(
                    uuid4(),
                    _now(),
                    table=table_reference("lake", table, table_uuid(table)),
                    snapshot_id=7,
                    token=uuid4(),
                    coverage=made.coverage if ranges is None else coverage(ranges),
                    directives=Directives(),
                )
            )
        self._send(sender.closed(uuid4(), _now(), None, Directives()))

    def lands(self, run: str, ranges: Ranges = ((P0, 0, 10),), **of_plan: Any) -> None:
        """A whole cycle."""
        self.opens(run, ranges, **of_plan)
        self.reports(run)
        self.completes(run)

    def stalls(self, cycles: int = 3) -> None:
        """Cycles whose commits fail."""
        for n in range(cycles):
            run = f"stalled-{uuid4()}"
            self.opens(run, ((P0, 10 * n, 10 * n + 10),))
            self.fails(run)

    def _sender(self, run: str, role: str = "plan") -> Sender:
        commit = cycle_id(self._deployment, self.landing, LIVE, self._dag, run, 0)
        return Sender(landing=self.landing, lane=LIVE, role=role, commit_id=commit)

    def _send(self, record: Outgoing) -> None:
        at = int((time.time() - self.ago) * 1000)
        self._producer.produce(
            self.topic, record.value, record.key, headers=list(record.headers), partition=0, timestamp=at
        )
        assert self._producer.flush(30) == 0


def _now() -> datetime:
    return datetime.now(UTC)
