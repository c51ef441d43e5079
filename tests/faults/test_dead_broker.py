# SPDX-License-Identifier: Apache-2.0
"""A broker that dies under a window of many slices: the window ends soon, and nothing of it is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.spark.task import run_task
from dev.servers.kafka import Broker
from tests.fixtures.kafka import Sender, create_topic
from tests.support.declared import landing_of
from tests.support.groups import group_job
from tests.support.world import SCHEMA, World, catalog_in, records

pytestmark = pytest.mark.faults


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "kafka") as running:
        yield running


def test_a_dead_broker_is_waited_for_once_and_not_by_each_slice(
    own_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = {"bootstrap.servers": own_broker.bootstrap}
    create_topic(AdminClient({"bootstrap.servers": own_broker.bootstrap}), "many")
    sender = Sender(own_broker.bootstrap)
    sender.produce("many", records(0, 40))
    sender.close()
    landing = landing_of(name="rows", topics="many", table="shop.rows", create=SCHEMA, slice_records=4)
    world = World(landing=landing, kafka=kafka, catalog=catalog_in(tmp_path))
    opened = world.open("killed")
    assert len(opened.slices) == 10
    with world.session() as session:
        job = group_job(landing, session.control, opened.groups[0], "test")
    assert job is not None
    job, secrets = job.begun(), world.secrets
    assert run_task(job, secrets, 0).status.is_reported

    own_broker.kill()
    with monkeypatch.context() as patch:
        # Each request waits for brokers over a restart, 30 s by default.
        patch.setattr(ControlTopic.__init__, "__defaults__", (3.0, ()))
        results = [run_task(job, secrets, n) for n in range(1, 10)]
    assert {r.status for r in results} == {results[0].status}
    assert not results[0].status.is_final
    waited = [r for r in results if "not begun" not in r.detail]
    assert len(waited) == 1, results

    own_broker.start()
    world.settle()
    world.check(Counter(range(40)))
