# SPDX-License-Identifier: Apache-2.0
"""Each task of a landing under the rights that the documentation gives to its role, and no others: on a broker with
Kafka's own authorizer. And what `doctor` says of a connection that has them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, and exported without saying so
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.core.blocks import FAILURES_TO_BLOCK
from airflow_provider_lakecommit.core.model import ReadPosition, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import ControlTopicError, LakecommitError, SourceError
from airflow_provider_lakecommit.kafka.log_truncation import diverged
from airflow_provider_lakecommit.kafka.sample import sample
from airflow_provider_lakecommit.spark.read import SliceReader
from airflow_provider_lakecommit.status.doctor.brokers import brokers
from airflow_provider_lakecommit.status.doctor.finding import Level
from airflow_provider_lakecommit.status.doctor.roles import NEEDS, SETTINGS, Role
from dev.servers.kafka import Broker
from tests.fixtures.kafka import Sender, create_topic, delete_topic
from tests.support.declared import changed_landing, landing_of
from tests.support.steps import check_verified
from tests.support.waiting import until
from tests.support.world import SCHEMA, World, catalog_in, records

pytestmark = pytest.mark.integration

PATIENT_SECONDS = 20.0
"""Less than a writer waits for brokers that are away."""
TOPIC, IDS = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
Right = tuple[ResourceType, str, ResourcePatternType, tuple[AclOperation, ...]]
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
NO_GROUPS: Right = (ResourceType.GROUP, "*", LITERAL, ())
"""As on brokers that deny what nothing allows: a consumer requests the coordinator of its group all the same."""


def rights_of(role: Role) -> tuple[Right, ...]:
    """As docs/operate/security.rst has them, by a unit test."""
    needs = NEEDS[role]
    settings = dict.fromkeys(SETTINGS.get(role, ()), (AclOperation.DESCRIBE_CONFIGS,))
    topics = [(TOPIC, name, LITERAL, (*needs.get(name, ()), *settings.get(name, ()))) for name in ("source", "control")]
    return (*topics, (IDS, "lakecommit-rows-@test-", PREFIXED, needs.get("ids", ())))


class Guarded:
    """A broker on which a principal may do what it is given. The tests' own rights end at the topics."""

    def __init__(self, bootstrap: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    @contextmanager
    def role(self, role: Role) -> Iterator[None]:
        """Nothing but its rights, but for the tests' own topics and records."""
        with self.rights(*rights_of(role), NO_GROUPS):
            yield

    @contextmanager
    def rights(self, *rights: Right) -> Iterator[None]:
        given = [binding for right in rights for binding in self._bindings(right)]
        for answer in self.admin.create_acls(given).values():
            answer.result(30)
        self._heard(len(given))
        try:
            yield
        finally:
            every = AclBindingFilter(
                ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
            )
            self.admin.delete_acls([every])[every].result(30)
            self._heard(0)

    def _bindings(self, right: Right) -> list[AclBinding]:
        kind, name, pattern, operations = right
        # A rule for nobody: what has a rule is denied to all others.
        denied = [("User:ANONYMOUS", operation) for operation in operations] or [("User:nobody", READ)]
        return [AclBinding(kind, name, pattern, user, "*", o, AclPermissionType.ALLOW) for user, o in denied]

    def _heard(self, rules: int) -> None:
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        until(lambda: len(self.admin.describe_acls(every).result(30)) == rules, what="the rules")


RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("guarded"), properties=RULES) as broker:
        yield broker


@pytest.fixture
def guarded(broker: Broker) -> Iterator[Guarded]:
    """With a source of 40 records and a control topic, both of this test's own."""
    guarded, sender = Guarded(broker.bootstrap), Sender(broker.bootstrap)
    for topic in ("source", "control"):
        create_topic(guarded.admin, topic)
    sender.produce("source", records(0, 40))
    sender.close()
    yield guarded
    for topic in ("source", "control"):
        delete_topic(guarded.admin, topic)


def world_on(broker: Broker, path: Path) -> World:
    landing = landing_of(
        name="rows", topics="source", table="shop.rows", create=SCHEMA, control_topic="control", slice_records=40
    )
    return World(landing=landing, kafka={"bootstrap.servers": broker.bootstrap}, catalog=catalog_in(path))


def test_each_step_does_with_the_rights_of_its_role(broker: Broker, guarded: Guarded, tmp_path: Path) -> None:
    world = world_on(broker, tmp_path)
    with guarded.role(Role.SENSOR), pytest.raises(SourceError, match=r"source.*LC2012"):
        world.open("of another role")
    with guarded.role(Role.PLAN):
        opened = world.open("a")
    with guarded.role(Role.WRITE):
        assert [r.status for r in world.write(opened)] == ["done"]
    with guarded.role(Role.COMMIT):
        assert world.close("a", opened).rows == 40
    check_verified(world)


@pytest.mark.heavy
def test_who_has_no_right_on_any_group_reads_all_the_same(broker: Broker, guarded: Guarded) -> None:
    """In many rounds, so that the coordinator's refusal comes while something is read."""
    sender, kafka = Sender(broker.bootstrap), {"bootstrap.servers": broker.bootstrap}
    sender.produce("source", [str(n) for n in range(400)])
    sender.close()
    partition = SourcePartition("source", 0, "")
    spans = [Span(partition, OffsetRange(n, n + 10)) for n in range(0, 400, 20)]
    with guarded.role(Role.WRITE):
        with SliceReader(kafka, spans) as reader:
            assert sum(len(chunk.messages) for chunk in reader.read()) == 200
        assert sample(kafka, ["source"], 9)


@pytest.mark.heavy
def test_a_commit_that_checks_the_source_needs_its_rights_there(
    broker: Broker, guarded: Guarded, tmp_path: Path
) -> None:
    """A slice of tombstones: that it has no row is not trusted of a log that nobody signs."""
    sender = Sender(broker.bootstrap)
    sender.produce("source", [(str(n), None) for n in range(5)])
    sender.close()
    world = world_on(broker, tmp_path)
    world.landing = changed_landing(world.landing, slice_records=5)
    with guarded.role(Role.PLAN):
        opened = world.open("a")
    with guarded.role(Role.WRITE):
        world.write(opened)
    control, ids = rights_of(Role.COMMIT)[1:]
    with (
        guarded.rights((TOPIC, "source", LITERAL, ()), control, ids),
        pytest.raises(LakecommitError, match=r"source.*LC2012"),
    ):
        world.close("a", opened)
    with guarded.role(Role.COMMIT):
        assert world.close("a", opened).rows == 40
    check_verified(world)


@pytest.mark.parametrize("role", list(Role))
def test_doctor_finds_a_role_complete_that_has_its_rights_and_no_others(
    role: Role, broker: Broker, guarded: Guarded, tmp_path: Path
) -> None:
    world = world_on(broker, tmp_path)
    with guarded.role(role):
        found = list(brokers(world.landing, world.kafka, None, (role,), "test"))
    assert [f for f in found if f.level is Level.FAIL] == []
    (own,) = (f for f in found if f.check == f"role {role}")
    assert (own.level, own.observed) == (Level.OK, "has its rights")


@pytest.mark.parametrize("lacking", range(3), ids=["source", "control", "ids"])
def test_doctor_reports_what_a_role_lacks(lacking: int, broker: Broker, guarded: Guarded, tmp_path: Path) -> None:
    world, rights = world_on(broker, tmp_path), list(rights_of(Role.WRITE))
    kind, name, pattern, _ = rights[lacking]
    rights[lacking] = (kind, name, pattern, ())
    with guarded.rights(*rights):
        found = {f.check: f for f in brokers(world.landing, world.kafka, None, (Role.WRITE,), "test")}
    assert found["role write"].level is Level.FAIL
    assert found["role write"].observed.count(";") == 0
    assert found["role write"].observed.endswith(f" {name}")
    assert found["role plan"].observed.startswith("not for this connection: lacks")


def test_an_unreadable_topic_is_reported_where_its_log_is_to_be_compared(broker: Broker, guarded: Guarded) -> None:
    partition = SourcePartition("source", 0, "any"), ReadPosition(offset=40, leader_epoch=0)
    kafka = {"bootstrap.servers": broker.bootstrap}
    assert diverged(kafka, [partition], 60.0) == []
    with (
        guarded.rights((TOPIC, "source", LITERAL, (DESCRIBE,))),
        pytest.raises(SourceError, match=r"topic source cannot be read .*grant this principal READ on it.*LC2007"),
    ):
        diverged(kafka, [partition], 600.0)


@pytest.mark.heavy
def test_a_right_that_is_taken_in_mid_run_is_named_and_blocks_nothing(
    broker: Broker, guarded: Guarded, tmp_path: Path
) -> None:
    world = world_on(broker, tmp_path)
    source, control, ids = rights_of(Role.WRITE)
    for n in range(FAILURES_TO_BLOCK + 1):
        with guarded.role(Role.PLAN):
            opened = world.open(f"{n}")
        assert opened.slices, "nothing is blocked"
        with guarded.rights((*source[:3], (DESCRIBE,)), control, ids, NO_GROUPS):
            (result,) = world.write(opened)
        assert result.status == "again"
        assert "grant this principal READ: `kafka-acls --add" in str(result.detail)
        with guarded.role(Role.COMMIT):
            world.close(f"{n}", opened)
    with guarded.role(Role.PLAN):
        opened = world.open("given back")
    with guarded.role(Role.WRITE):
        world.write(opened)
    with guarded.role(Role.COMMIT):
        assert world.close("given back", opened).rows == 40
    check_verified(world)


def test_a_writer_whose_id_is_denied_in_mid_run_ends_at_once(broker: Broker, guarded: Guarded) -> None:
    """It may not abort its transaction either, and must not try to for as long as it waits for brokers."""
    (_, control, (kind, name, pattern, _)), sent = rights_of(Role.WRITE), [(b"key", b"value", [])]
    with (
        ControlTopic("control", {"bootstrap.servers": broker.bootstrap}) as topic,
        topic.writer("lakecommit-rows-@test-live-0-plan", 0) as writer,
    ):
        writer.send(sent)
        with guarded.rights(control, (kind, name, pattern, ())):
            began = time.monotonic()
            with pytest.raises(
                ControlTopicError, match=r"transactional id 'lakecommit-rows-@test-live-0-plan'.*LC2336"
            ):
                writer.send(sent)
            assert time.monotonic() - began < PATIENT_SECONDS
        writer.send(sent)
