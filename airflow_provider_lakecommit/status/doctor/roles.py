# SPDX-License-Identifier: Apache-2.0
"""Which rights of each role the connection has, and which it lacks.

:data:`NEEDS` is the table of the page "Several teams on one cluster"; a test compares them. For the *requested* roles a
missing right is ``FAIL``, for the others it is reported. Unknown rights (of a missing control topic, or an untried
transactional id) are not reported as missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # public, and exported without saying so

from airflow_provider_lakecommit.status.doctor.finding import CheckResult, fail, ok, warn

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CONFIGS = AclOperation.DESCRIBE_CONFIGS


class Role(StrEnum):
    """The user of a connection."""

    PLAN = "plan"
    WRITE = "write"
    COMMIT = "commit"
    SENSOR = "sensor"
    """Sensors, triggers and `lakecommit connect watch`."""


LANDING_ROLES = (Role.PLAN, Role.WRITE, Role.COMMIT)
"""Roles of a landing under one connection, as in `lakecommit land`."""


USE: Mapping[str, tuple[AclOperation, ...]] = {
    "source": (READ, DESCRIBE),
    "control": (READ, WRITE, DESCRIBE),
    "ids": (WRITE, DESCRIBE),
}
NEEDS: Mapping[Role, Mapping[str, tuple[AclOperation, ...]]] = {
    Role.PLAN: USE,
    Role.WRITE: USE,
    Role.COMMIT: USE,
    Role.SENSOR: {"control": (READ, DESCRIBE)},
}
"""What a role does with each source topic, with the control topic and with the landing's transactional ids."""
SETTINGS: Mapping[Role, tuple[str, ...]] = {Role.PLAN: ("source", "control"), Role.COMMIT: ("control",)}
"""Topics whose settings a role reads if allowed."""


Granted = Mapping[str, frozenset[AclOperation] | None]
"""The operations that the brokers report for this connection, by topic; ``None`` for a topic that does not exist."""
Lack = tuple[str, str, str]
"""An operation, and the kind and name of its resource."""


def role_findings(
    roles: Collection[Role], topics: Granted, control: str, prefix: str, ids: bool | None
) -> Iterable[CheckResult]:
    """Yield one finding for each role, the requested ones first.

    :param control: which of the topics is the control topic
    :param prefix: of the transactional ids
    :param ids: whether the connection may use them; ``None`` if none was tried
    """
    for role in sorted(Role, key=lambda r: (r not in roles, list(Role).index(r))):
        needs, check = NEEDS[role], f"role {role}"
        lacking, blind = list(_lacking(needs, topics, control)), list(_blind(role, topics, control))
        if ids is False:
            lacking += [(o.name, "transactional-id", prefix) for o in needs.get("ids", ())]
        if lacking and role in roles:
            yield fail(check, f"lacks {_text(lacking)}", _grant(lacking))
        elif lacking:
            yield ok(check, f"not for this connection: lacks {_text(lacking)}")
        elif blind and role in roles:
            yield warn(check, f"lacks {_text(blind)}, which is optional", _grant(blind))
        else:
            yield ok(check, "has its rights" if ids is not None or "ids" not in needs else "has its rights on topics")


def _lacking(needs: Mapping[str, Iterable[AclOperation]], topics: Granted, control: str) -> Iterator[Lack]:
    for topic, may in topics.items():
        operations = needs.get("control" if topic == control else "source", ())
        yield from ((o.name, "topic", topic) for o in operations if may is not None and o not in may)


def _blind(role: Role, topics: Granted, control: str) -> Iterator[Lack]:
    read = (t for t in topics if ("control" if t == control else "source") in SETTINGS.get(role, ()))
    yield from ((CONFIGS.name, "topic", t) for t in read if (may := topics[t]) is not None and CONFIGS not in may)


def _by_resource(lacking: Iterable[Lack]) -> dict[tuple[str, str], list[str]]:
    out: dict[tuple[str, str], list[str]] = {}
    for operation, kind, name in lacking:
        out.setdefault((kind, name), []).append(operation)
    return out


def _text(lacking: Iterable[Lack]) -> str:
    shown = {"topic": "topic ", "transactional-id": "transactional ids "}
    found = _by_resource(lacking).items()
    return "; ".join(f"{', '.join(o)} on {shown[kind]}{name}" for (kind, name), o in found)


def _grant(lacking: Iterable[Lack]) -> str:
    texts = []
    for (kind, name), operations in _by_resource(lacking).items():
        prefixed = " --resource-pattern-type prefixed" if kind == "transactional-id" else ""
        texts.append(f"--{kind} {name}{prefixed}{''.join(f' --operation {o}' for o in operations)}")
    return f"`kafka-acls --add --allow-principal User:NAME` with {'; '.join(texts)}"
