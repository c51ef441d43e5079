# SPDX-License-Identifier: Apache-2.0
"""The disasters of `docs/operate/disasters.rst`, played as they are described there."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.operations.decisions.migrate import migrate_landing
from airflow_provider_lakecommit.operations.decisions.migrate_preview import migration_preview
from dev.servers.kafka import Broker
from tests.faults.test_migrate import DECISION
from tests.fixtures.kafka import Sender, create_topic
from tests.support.messes import CREATE, TABLE, ledger_ends
from tests.support.steps import Step, check_verified, interrupted_cycle
from tests.support.waiting import PATIENCE
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


PARTITIONS = 2


def newest_metadata(location: str) -> Path:
    """As the page says it is found: the highest number."""
    return max((Path(urlsplit(location).path) / "metadata").glob("*.metadata.json"))


def empty(admin: AdminClient, topic: str, partitions: int) -> None:
    """Remove all records, as retention does."""
    for answer in admin.delete_records([TopicPartition(topic, p, -1) for p in range(partitions)]).values():
        answer.result(PATIENCE)


def database(world: World) -> Path:
    return Path(world.catalog["uri"].removeprefix("sqlite:///"))


@pytest.mark.heavy
@pytest.mark.parametrize("step", [Step.OPENED, Step.REPORTED, Step.APPENDED, Step.CLOSED])
def test_a_catalog_that_is_restored_from_yesterday_lands_again_what_it_has_forgotten(
    make_world: Make, produce: Produce, step: Step, tmp_path: Path
) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table="shop.dead", slice_records=100)
    topic, backup = world.landing.topics, tmp_path / "yesterday.db"
    produce(topic, [*records(0, 40), ("bad", "no json")])
    world.run()
    shutil.copy(database(world), backup)
    produce(topic, [*records(40, 60), ("bad", "no json either")])
    world.run()
    produce(topic, records(100, 20))
    interrupted_cycle(world, step, lambda: shutil.copy(backup, database(world)))
    produce(topic, records(120, 5))
    world.settle()
    world.check(Counter(range(125)))
    assert len(world.rows("shop.dead")) == 2
    check_verified(world)


@pytest.fixture
def forgotten(make_world: Make, produce: Produce, admin: AdminClient, tmp_path: Path) -> World:
    """The catalog is of yesterday, and the source no longer has what was landed since."""
    world = make_world(create=CREATE, table=TABLE, dead_letter_table=None)
    topic, backup = world.landing.topics, tmp_path / "yesterday.db"
    produce(topic, records(0, 40))
    world.run()
    shutil.copy(database(world), backup)
    produce(topic, records(40, 60))
    world.run()
    shutil.copy(backup, database(world))
    empty(admin, topic, PARTITIONS)
    produce(topic, records(100, 20))
    return world


def test_what_the_source_has_lost_too_is_published_anew_from_its_reports(forgotten: World) -> None:
    forgotten.settle()
    forgotten.check(Counter(range(120)))
    check_verified(forgotten)


def test_where_reports_are_lost_as_well_the_tables_newest_metadata_is_registered(
    forgotten: World, admin: AdminClient
) -> None:
    empty(admin, forgotten.landing.control_topic_name, 3)
    with pytest.raises(SourceError, match="LC1303"):
        forgotten.settle()
    assert len(forgotten.rows()) == 40

    with forgotten.session() as session:
        catalog = session.tables.catalog
        metadata = newest_metadata(catalog.load_table(TABLE).location())
        catalog.drop_table(TABLE)
        catalog.register_table(TABLE, str(metadata))
    forgotten.settle()
    forgotten.check(Counter(range(120)))
    check_verified(forgotten)


@pytest.mark.heavy
def test_brokers_that_moved_with_their_topics_go_on_where_a_user_states(
    make_world: Make, produce: Produce, tmp_path: Path
) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table=None)
    topic = world.landing.topics
    produce(topic, records(0, 40))
    world.run()
    ends = ledger_ends(world)
    with Broker(tmp_path / "elsewhere") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        create_topic(admin, topic, PARTITIONS)
        create_topic(admin, world.landing.control_topic_name, 3)
        with_copies = Sender(broker.bootstrap)
        with_copies.produce(topic, [*records(0, 40), *records(40, 20)])
        moved = replace(world, kafka={"bootstrap.servers": broker.bootstrap})
        with pytest.raises(SourceError, match=r"reset migrate SPEC --old.*LC6012"):
            moved.run()
        with moved.session() as session:
            migrate_landing(session, migration_preview(session, start=ends), decision=DECISION)
        moved.settle()
        moved.check(Counter(range(60)))
        check_verified(moved)
        with_copies.close()
    with pytest.raises(SourceError, match="LC6012"):
        world.run()
