# SPDX-License-Identifier: Apache-2.0
"""Each task of a landing under the rights that the documentation gives to its role, and no others: on a broker with
Kafka's own authorizer.
"""

from __future__ import annotations

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

from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.landing import Landing
from dev.servers.kafka import Broker
from tests.fixtures.kafka import Sender, create_topic
from tests.support.steps import check_verified
from tests.support.waiting import until
from tests.support.world import SCHEMA, World, catalog_in, records

pytestmark = pytest.mark.integration

TOPIC, IDS = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
Right = tuple[ResourceType, str, ResourcePatternType, tuple[AclOperation, ...]]
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
OUR_IDS: Right = (IDS, "lakecommit-rows-@test-", PREFIXED, (WRITE, DESCRIBE))

#: As docs/howto/tenancy.rst has them.
ROLES: dict[str, tuple[Right, ...]] = {
    "plan": (
        (TOPIC, "source", LITERAL, (READ, DESCRIBE, AclOperation.DESCRIBE_CONFIGS)),
        (TOPIC, "control", LITERAL, (READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS)),
        OUR_IDS,
    ),
    "write": (
        (TOPIC, "source", LITERAL, (READ, DESCRIBE)),
        (TOPIC, "control", LITERAL, (READ, WRITE, DESCRIBE)),
        OUR_IDS,
    ),
    "commit": (
        (TOPIC, "source", LITERAL, ()),
        (TOPIC, "control", LITERAL, (READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS)),
        OUR_IDS,
    ),
}


class Guarded:
    """A broker on which a principal may do what it is given. The tests' own rights end at the topics."""

    def __init__(self, bootstrap: str) -> None:
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    @contextmanager
    def role(self, name: str) -> Iterator[None]:
        given = [binding for right in ROLES[name] for binding in self._bindings(right)]
        for answer in self.admin.create_acls(given).values():
            answer.result(30)
        self._heard(len(given))
        yield
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        self.admin.delete_acls([every])[every].result(30)
        self._heard(0)

    def _bindings(self, right: Right) -> list[AclBinding]:
        kind, name, pattern, operations = right
        # A rule for nobody: what has a rule is denied to all others.
        who = [("User:ANONYMOUS", operation) for operation in operations] or [("User:nobody", READ)]
        return [AclBinding(kind, name, pattern, user, "*", o, AclPermissionType.ALLOW) for user, o in who]

    def _heard(self, rules: int) -> None:
        every = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        until(lambda: len(self.admin.describe_acls(every).result(30)) == rules, what="the rules")


def test_each_step_does_with_the_rights_of_its_role(tmp_path: Path) -> None:
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(tmp_path / "guarded", properties=rules) as broker:
        guarded, sender = Guarded(broker.bootstrap), Sender(broker.bootstrap)
        for topic in ("source", "control"):
            create_topic(guarded.admin, topic)
        sender.produce("source", records(0, 40))
        sender.close()
        landing = Landing(
            name="rows", topics="source", table="shop.rows", create=SCHEMA, control_topic="control", slice_records=40
        )
        world = World(landing=landing, kafka={"bootstrap.servers": broker.bootstrap}, catalog=catalog_in(tmp_path))
        with guarded.role("commit"), pytest.raises(SourceError, match="source"):
            world.open("of another role")
        with guarded.role("plan"):
            opened = world.open("a")
        with guarded.role("write"):
            assert [r.status for r in world.write(opened)] == ["done"]
        with guarded.role("commit"):
            assert world.close("a", opened).rows == 40
        check_verified(world)
