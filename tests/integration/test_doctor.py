# SPDX-License-Identifier: Apache-2.0
"""`lakecommit doctor` on real parts, with one thing after the other really wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.control.control_topic_settings import TOPIC_SETTINGS
from airflow_provider_lakecommit.exceptions import LedgerError, SpecError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.status.doctor.examine import examine
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, Level
from airflow_provider_lakecommit.status.status import read_status
from dev.servers.kafka import Broker
from dev.servers.server import free_port
from tests.fixtures.kafka import create_topic
from tests.support.cli import LAND_SECONDS, run, write_spec
from tests.support.declared import changed_landing
from tests.support.waiting import until
from tests.support.world import World, records

pytestmark = pytest.mark.integration


Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def world(make_world: Make, produce: Produce, make_topic: Callable[..., str]) -> World:
    """A landing that ran, with a control topic as a landing makes it."""
    made = make_world(partitions=1, dead_letter_table=None)
    settings = {key.replace(".", "_"): value for key, value in TOPIC_SETTINGS.items()}
    made.landing = changed_landing(made.landing, control_topic=make_topic(2, **settings))
    produce(made.landing.topics, records(0, 10))
    made.run()
    return made


def spec_of(world: World, **changes: Any) -> LandingSpec:
    values = {"landing": world.landing, "kafka": world.kafka, "catalog": world.catalog, "spark": {"master": "local[1]"}}
    return LandingSpec(**{**values, **changes})


def findings(spec: LandingSpec, every: timedelta | None = MINUTE) -> list[CheckResult]:
    return examine(spec, Output(as_json=False).log, every=every, spark=False)


def bad(spec: LandingSpec, every: timedelta | None = MINUTE, level: Level = Level.FAIL) -> dict[str, str]:
    """What is wrong, by check; each has a remedy."""
    found = [f for f in findings(spec, every) if f.level is level]
    assert all(f.remedy for f in found)
    return {f.check: f.observed for f in found}


def set_topic(admin: AdminClient, topic: str, **settings: str) -> None:
    expected = {key.replace("_", "."): value for key, value in settings.items()}
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in expected.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)
    # The controller has it then; the broker that is asked hears of it a moment later.
    entry = ConfigResource(ResourceType.TOPIC, topic)
    until(
        lambda: (
            expected.items()
            <= {k: e.value for k, e in admin.describe_configs([entry])[entry].result(30).items()}.items()
        )
    )


def test_a_landing_that_works_has_nothing_wrong_and_is_left_as_it_was(world: World) -> None:
    spec, topic = spec_of(world), world.landing.topics
    with world.session() as session:
        before = (
            session.control.read(0, None),
            session.control.read(1, None),
            session.tables.load("shop.rows").metadata_location,
        )
    assert bad(spec) == {}
    warned = {f"control topic {world.landing.control_topic_name}", "control signatures"}
    assert set(bad(spec, level=Level.WARN)) == warned, "1 replica, no key"
    with world.session() as session:
        assert (
            session.control.read(0, None),
            session.control.read(1, None),
            session.tables.load("shop.rows").metadata_location,
        ) == before
    assert list(Path(world.catalog["warehouse"].removeprefix("file://")).rglob("*lakecommit-probe*")) == []
    observed = {f.check: f.observed for f in findings(spec)}
    assert observed["headroom"] == "everything is landed"
    assert observed["transactional id"] == "lakecommit-rows-doctor: an empty transaction was committed"
    assert "the landing may pause for 6 d 23 h" in observed[f"retention of {topic}"]


@pytest.mark.heavy
def test_brokers_and_catalog_that_are_away_are_both_reported_in_one_run(world: World) -> None:
    kafka = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    catalog = {"type": "rest", "uri": f"http://127.0.0.1:{free_port()}"}
    found = bad(spec_of(world, kafka=kafka, catalog=catalog))
    assert list(found) == ["brokers", "catalog"]
    assert kafka["bootstrap.servers"] in found["brokers"]


@pytest.mark.heavy
def test_brokers_that_are_away_are_waited_for_once(make_world: Make) -> None:
    """Each of the two missing tables would ask the control topic, for 30 seconds."""
    world = make_world(partitions=1)
    began = time.monotonic()
    found = findings(spec_of(world, kafka={"bootstrap.servers": f"127.0.0.1:{free_port()}"}))
    assert time.monotonic() - began < 25
    assert [f.check for f in found if f.level is Level.FAIL] == ["brokers"]
    skipped = {f.check: f.observed for f in found if f.level is Level.SKIP}
    named = {f"topic {world.landing.topics}", f"control topic {world.landing.control_topic_name}"}
    about_log = {"transactional id", "control signatures", "control topic in common", "deployment id"}
    assert skipped == dict.fromkeys(named | about_log, "not checked, because 'brokers' failed")
    assert {f.check: f.level for f in found}[f"table {world.landing.table}"] is Level.OK


@pytest.mark.heavy
def test_a_spark_connect_server_that_is_away_is_reported_at_once(world: World) -> None:
    # Spark's own client goes on for ten minutes, which is longer than a test may take.
    spec = spec_of(world, spark={"remote": f"sc://127.0.0.1:{free_port()}"})
    (found,) = (f for f in examine(spec, Output(as_json=False).log, every=None, spark=True) if f.level is Level.FAIL)
    assert found.check == "executor"
    assert "cannot be reached" in found.observed


@pytest.mark.heavy
def test_a_source_topic_that_is_missing_or_forgets_too_soon(world: World, admin: AdminClient) -> None:
    topic = str(world.landing.topics)
    assert list(bad(spec_of(world), every=timedelta(days=4))) == [f"retention of {topic}"]
    set_topic(admin, topic, retention_bytes="1000")
    assert "retention.bytes=1000" in bad(spec_of(world), level=Level.WARN)[f"retention of {topic}"]
    spec = spec_of(world, landing=replace(world.landing, topics=("nobody-made-this",)))
    assert "does not exist" in bad(spec)["topic nobody-made-this"]


@pytest.mark.heavy(but=("settings0-*",))
@pytest.mark.parametrize(
    ("settings", "observed"),
    [
        ({"cleanup_policy": "compact"}, "cleanup.policy=compact"),
        ({"retention_ms": "3600000"}, "retention.ms keeps 1 h"),
        ({"min_insync_replicas": "2"}, "min.insync.replicas=2 with 1 replicas"),
        ({"max_message_bytes": "10000"}, "max.message.bytes=10000"),
    ],
)
def test_a_control_topic_that_cannot_do_its_work(
    world: World, admin: AdminClient, settings: dict[str, str], observed: str
) -> None:
    name = world.landing.control_topic_name
    set_topic(admin, name, **settings)
    assert observed in bad(spec_of(world))[f"control topic {name}"]


def test_a_control_topic_that_is_missing_may_be_made_if_the_brokers_report_it(world: World, admin: AdminClient) -> None:
    spec = spec_of(world, landing=changed_landing(world.landing, control_topic="not-yet-there"))
    observed = {f.check: f for f in findings(spec)}["control topic not-yet-there"]
    assert (observed.level, "can create it" in observed.observed) == (Level.OK, True)
    assert "not-yet-there" not in admin.list_topics(timeout=30).topics
    # Kafka refuses names that differ in a dot and an underscore only.
    odd = str(world.landing.topics) + ".x"
    create_topic(admin, odd)
    name = odd.replace(".", "_")
    spec = spec_of(world, landing=changed_landing(world.landing, control_topic=name))
    assert "cannot be created: Topic" in bad(spec)[f"control topic {name}"]


@pytest.mark.heavy
def test_tables_that_cannot_take_the_rows(world: World) -> None:
    landing = world.landing
    spec = spec_of(world, landing=replace(landing, table="shop.none", create=None))
    assert "there is no table shop.none" in bad(spec)["table shop.none"]
    odd = {"schema": [{"name": "id", "type": "colour"}]}
    with pytest.raises(SpecError, match=r"column id: 'colour' is not a type.*LC1167"):
        replace(landing, table="shop.none", create=odd)
    assert (
        "no branch 'audit'"
        in bad(spec_of(world, landing=landing.changed(publish={"branch": "audit"})))["table shop.rows"]
    )
    wants = replace(landing, timestamps={"name": "epoch_millis"})
    assert "name" in bad(spec_of(world, landing=wants))["table shop.rows"]


def test_checks_that_cannot_be_run_are_reported_before_the_first_window(world: World) -> None:
    checks = ["SELECT no_such FROM added_rows", "no_such.check", "SELECT 1 WHERE false"]
    landing = world.landing.changed(publish={"checks": checks})
    for table in ("shop.rows", "shop.none"):
        found = bad(spec_of(world, landing=replace(landing, table=table)))
        assert [name for name in found if name.startswith("check ")] == [f"check {c}" for c in checks[:2]]
        assert "LC6252" in found[f"check {checks[0]}"]
        assert "LC6253" in found[f"check {checks[1]}"]


def test_a_ledger_that_needs_a_user_names_the_command(world: World, produce: Produce) -> None:
    table = Tables(world.catalog).load("shop.rows")
    rows = table.scan().to_arrow()
    table.append(rows)
    former = Tables(world.catalog).load("shop.rows").current_snapshot()
    table.append(rows)
    assert former is not None
    Tables(world.catalog).load("shop.rows").maintenance.expire_snapshots().by_id(former.snapshot_id).commit()
    (found,) = [f for f in findings(spec_of(world)) if f.level is Level.FAIL]
    assert (found.check, found.observed[:3]) == ("ledger of shop.rows", "cut")
    assert "reset assert SPEC --snapshot" in found.remedy


@pytest.mark.heavy(but=("True",))
@pytest.mark.parametrize("remade", [False, True])
def test_a_table_that_was_dropped_is_no_first_run(world: World, remade: bool) -> None:
    with world.session() as session:
        catalog = session.tables.catalog
        table = catalog.load_table(world.landing.table)
    catalog.drop_table(world.landing.table)
    if remade:
        catalog.create_table(world.landing.table, table.schema(), properties=table.properties)
    assert "the control topic remembers slices" in str(bad(spec_of(world)))


def test_storage_that_cannot_be_written_is_reported_with_its_location(world: World) -> None:
    wall = f"{world.catalog['warehouse']}/wall"
    Path(wall.removeprefix("file://")).write_text("no folder")
    table = Tables(world.catalog).load("shop.rows")
    table.transaction().set_properties({"write.data.path": wall}).commit_transaction()
    found = bad(spec_of(world))["storage of shop.rows"]
    assert found.startswith(f"writing {wall}/.lakecommit-probe-")


@pytest.mark.heavy
def test_unread_offsets_that_expire_soon_or_are_missing(world: World, admin: AdminClient, produce: Produce) -> None:
    topic = str(world.landing.topics)
    produce(topic, records(10, 5))
    set_topic(admin, topic, retention_ms=str(2 * 3600 * 1000))
    patient = spec_of(world, landing=changed_landing(world.landing, completion_timeout=timedelta(hours=3)))
    assert "unread offset 10 expires in 1 h" in bad(patient, level=Level.WARN)["headroom"]
    partition = TopicPartition(topic, 0, 12)
    admin.delete_records([partition])[partition].result(30)
    assert "2 unread offsets were removed" in bad(spec_of(world))["headroom"]


@pytest.mark.heavy
def test_rights_that_a_principal_lacks_are_named(world: World, tmp_path: Path) -> None:
    """A broker with Kafka's own authorizer: what has an access list is denied but for what that allows."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(tmp_path / "guarded", properties=rules) as guarded:
        admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
        landing = changed_landing(world.landing, topics="source", control_topic="control")
        for topic in ("source", "control"):
            create_topic(admin, topic)
        allowed = [
            (ResourceType.TOPIC, "source", AclOperation.DESCRIBE),
            (ResourceType.TOPIC, "control", AclOperation.READ),
            (ResourceType.TRANSACTIONAL_ID, "lakecommit-rows-doctor", AclOperation.DESCRIBE),
        ]
        for kind, name, operation in allowed:
            pattern = ResourcePatternType.LITERAL
            entry = AclBinding(kind, name, pattern, "User:ANONYMOUS", "*", operation, AclPermissionType.ALLOW)
            admin.create_acls([entry])[entry].result(30)
        spec = spec_of(world, landing=landing, kafka={"bootstrap.servers": guarded.bootstrap})
        # The broker's authorizer hears of a rule a moment after it was made.
        rights = {"rights on source", "rights on control", "transactional id"}
        until(lambda: rights <= bad(spec).keys())
        found = bad(spec)
        assert found["rights on source"] == "lacks READ"
        assert found["rights on control"] == "lacks WRITE"
        assert "lakecommit-rows-doctor" in found["transactional id"]
        assert "cannot be read" in bad(spec, level=Level.WARN)["retention of source"]


@pytest.mark.heavy
def test_the_command_runs_a_task_and_ends_with_1_when_anything_fails(
    tmp_path: Path, bootstrap: str, catalog_properties: dict[str, str], catalog: Any, make_topic: Callable[..., str]
) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DecimalType, LongType, NestedField

    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "amount", DecimalType(12, 2)))
    catalog.create_table("shop.orders", schema=schema)
    topic = make_topic(1)
    spec = write_spec(tmp_path, "orders", topic, f"{topic}-control", bootstrap, catalog_properties)
    answer = run("doctor", str(spec), "--every", "5m", "--json", timeout=LAND_SECONDS)
    assert answer.code == 0, answer.out + answer.err
    observed = {f["check"]: (f["level"], f["seen"]) for f in answer.value["findings"]}
    assert observed["executor"][0] == "ok"
    assert observed["executor storage"] == ("ok", "a file was written, read and deleted from a task")
    assert observed["executor libraries"][0] == "ok"
    values = json.loads(spec.read_text())
    spec.write_text(json.dumps({**values, "topics": "nobody-made-this"}))
    answer = run("doctor", str(spec), "--no-spark")
    assert answer.code == 1
    assert "FAIL  topic nobody-made-this" in answer.out
    assert "  -> correct `topics`" in answer.out


def test_the_warehouse_is_tried_before_there_is_a_table(
    make_world: Make, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    world = make_world(partitions=1)
    observed = {f.check: (f.level, f.observed) for f in findings(spec_of(world))}
    assert observed["warehouse"] == (Level.OK, "a file was written, read and deleted from here")
    assert list(Path(world.catalog["warehouse"].removeprefix("file://")).rglob("*lakecommit-probe*")) == []
    file = tmp_path / "file"
    file.write_text("no folder")
    assert "LC3307" in bad(spec_of(world, catalog={**world.catalog, "warehouse": f"file://{file}"}))["warehouse"]
    assert "writing" in bad(spec_of(world, catalog={**world.catalog, "warehouse": "file:///proc/lake"}))["warehouse"]


def test_a_table_under_another_name_of_the_catalog_is_found(world: World) -> None:
    elsewhere = replace(world, catalog={**world.catalog, "name": "elsewhere"})
    assert "LC6051" in str(bad(spec_of(elsewhere)))
    name = Tables(world.catalog).name
    with elsewhere.session() as session:
        (table,) = read_status(session, MINUTE).tables
        assert table.condition == "lost"
        assert f"`name: {name}`" in table.reason
    with pytest.raises(LedgerError, match=rf"`name: {name}`.*\[LC6051\]"):
        elsewhere.open("another")
