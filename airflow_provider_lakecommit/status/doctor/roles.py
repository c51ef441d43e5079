# SPDX-License-Identifier: Apache-2.0
"""Which rights of each role the connection has, and which it lacks.

:data:`NEEDS` is the table of the page "Several teams on one cluster"; a test compares them. For the *requested* roles a
missing right is ``FAIL``, for the others it is reported. Unknown rights (of a missing control topic, or an untried
transactional id) are not reported as missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRights:
    """What a role does with each source topic, with the control topic and with the landing's transactional ids.
    ``settings`` are topics (``source``, ``control``) whose settings it reads if allowed.
    """

    source: tuple[AclOperation, ...] = ()
    control: tuple[AclOperation, ...] = ()
    ids: bool = False
    settings: tuple[str, ...] = ()


NEEDS: Mapping[Role, RoleRights] = {
    Role.PLAN: RoleRights(
        source=(READ, DESCRIBE), control=(READ, WRITE, DESCRIBE), ids=True, settings=("source", "control")
    ),
    Role.WRITE: RoleRights(source=(READ, DESCRIBE), control=(READ, WRITE, DESCRIBE), ids=True),
    Role.COMMIT: RoleRights(source=(READ, DESCRIBE), control=(READ, WRITE, DESCRIBE), ids=True, settings=("control",)),
    Role.SENSOR: RoleRights(control=(READ, DESCRIBE)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedRights:
    """The rights of this connection as reported by the brokers; ``None`` for a topic that does not exist, and for ids
    if none was tried.
    """

    sources: Mapping[str, frozenset[AclOperation] | None]
    control: str
    on_control: frozenset[AclOperation] | None
    prefix: str
    ids: bool | None


def role_findings(granted: GrantedRights, roles: Collection[Role]) -> Iterable[CheckResult]:
    """Yield one finding for each role, the requested ones first."""
    for role in sorted(Role, key=lambda r: (r not in roles, list(Role).index(r))):
        lacking, blind = tuple(_lacking(NEEDS[role], granted)), tuple(_blind(NEEDS[role], granted))
        check = f"role {role}"
        if lacking and role in roles:
            yield fail(check, f"lacks {_text(lacking)}", _grant(lacking))
        elif lacking:
            yield ok(check, f"not for this connection: lacks {_text(lacking)}")
        elif blind and role in roles:
            yield warn(check, f"lacks {_text(blind)}, which is optional", _grant(blind))
        else:
            tried = granted.ids is not None or not NEEDS[role].ids
            yield ok(check, "has its rights" if tried else "has its rights on topics")


Lack = tuple[str, str, str]
"""An operation, and the kind and name of its resource."""


def _lacking(needs: RoleRights, granted: GrantedRights) -> Iterator[Lack]:
    required = [(topic, may, needs.source) for topic, may in granted.sources.items()]
    for topic, may, operations in (*required, (granted.control, granted.on_control, needs.control)):
        yield from ((o.name, "topic", topic) for o in operations if may is not None and o not in may)
    if needs.ids and granted.ids is False:
        yield from ((o.name, "transactional-id", granted.prefix) for o in (WRITE, DESCRIBE))


def _blind(needs: RoleRights, granted: GrantedRights) -> Iterator[Lack]:
    topics = dict(granted.sources) if "source" in needs.settings else {}
    if "control" in needs.settings:
        topics[granted.control] = granted.on_control
    yield from ((CONFIGS.name, "topic", t) for t, may in topics.items() if may is not None and CONFIGS not in may)


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
