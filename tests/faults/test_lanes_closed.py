# SPDX-License-Identifier: Apache-2.0
"""A stream that is half landed when its topic is made anew, or its cluster is lost: it is closed all the same, and what
it has landed stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.model import filled_from
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.plan.open_lanes import open_lanes
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.operations.backfill.closing import close_lane
from airflow_provider_lakecommit.operations.backfill.opening import joined_session
from airflow_provider_lakecommit.operations.backfill.preview import lane_preview
from airflow_provider_lakecommit.operations.backfill.request import lane_request
from airflow_provider_lakecommit.operations.decisions.migrate import migrate_landing
from airflow_provider_lakecommit.operations.decisions.migrate_preview import migration_preview
from dev.servers.kafka import Broker
from tests.faults.test_lanes import lane, sections
from tests.fixtures.kafka import Sender, create_topic, delete_topic
from tests.support.messes import TABLE
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = [pytest.mark.faults, pytest.mark.heavy]

DECISION = Decision(command="backfill --close", actor="ann", host="here", at="2026-01-01T00:00:00+00:00")
Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("elsewhere")) as broker:
        yield broker


@pytest.fixture
def half(make_world: Make, produce: Produce) -> World:
    """A stream of 100 offsets is open; 40 of them are landed, 20 more are reported. No record was ever rejected."""
    world = make_world(partitions=1, start="latest", slice_records=20)
    produce(world.landing.topics, records(0, 100), partition=0)
    world.settle()
    past = lane(world, "0=0-100", name="past")
    opened = past.open("one")
    past.write(opened, only=lambda place: place in (0, 1, 3))
    past.close("one", opened)
    return world


def close(world: World) -> str:
    with world.session() as session, joined_session(session, open_lanes(session)[0]) as own:
        return str(close_lane(own, decision=DECISION))


def test_an_open_stream_reports_what_it_has_landed_though_no_record_was_rejected(half: World) -> None:
    with half.session() as session:
        [found] = open_lanes(session)
    assert next(found.lines()) == "backfill past: 40 of 100 offsets are in the tables"


def test_on_a_topic_that_was_recreated_the_command_that_closes_the_stream_is_named(
    half: World, produce: Produce
) -> None:
    topic, admin = str(half.landing.topics), AdminClient(dict(half.kafka))
    delete_topic(admin, topic)
    create_topic(admin, topic)
    produce(topic, records(500, 120), partition=0)
    past = lane(half, "0=0-100", name="past")
    for request in (past.request, lane_request(name="past")):
        with (
            half.session() as session,
            pytest.raises(SourceError, match=r"recreated .*backfill SPEC --close past.*LC7219"),
        ):
            lane_preview(session, request)
    with half.session() as session, joined_session(session, open_lanes(session)[0]) as own:
        named = pytest.raises(SourceError, match=r"recreated.*backfill SPEC --close past.*LC1304")
        with named:
            open_cycle(own, past.run_identity("two"))
    # What is reported behind the hole is published, and the rest is given up.
    assert close(half).endswith("[0] [40, 60) [80, 100)")
    half.check(Counter([*range(40), *range(60, 80)]))


def test_a_stream_is_closed_whatever_cluster_is_connected(half: World, elsewhere: Broker, produce: Produce) -> None:
    """As rebind requests it first. What the stream has landed is kept as that of the cluster it was landed from."""
    moved = replace(half, kafka={"bootstrap.servers": elsewhere.bootstrap})
    create_topic(AdminClient(dict(moved.kafka)), str(half.landing.topics))
    with moved.session() as session, pytest.raises(LedgerError, match=r"backfill SPEC --close NAME.*LC7026"):
        migration_preview(session, start="earliest")
    assert close(moved).endswith("[0] [40, 100)")
    with moved.session() as session:
        [old] = {s.cluster_id for s in read_ledger(session.tables.load(TABLE).metadata).sections}
        migrate_landing(session, migration_preview(session, start="earliest"), decision=DECISION)
    assert sections(moved, TABLE)[filled_from(old)] == "[0] [0, 40)"
    sender = Sender(elsewhere.bootstrap)
    sender.produce(str(half.landing.topics), records(1000, 10))
    sender.close()
    moved.settle()
    moved.check(Counter([*range(40), *range(1000, 1010)]))
    check_verified(moved)
