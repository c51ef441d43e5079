# SPDX-License-Identifier: Apache-2.0
"""Checks the brokers: reachable, topics present, rights granted, the control topic suitable.

Nothing is produced or created. Rights are what the brokers report for this principal (``authorized operations`` of a
description), creation is a trial run, and the transactional id is tried with an *empty* transaction under an id of the
landing's own, ``lakecommit-<landing>-doctor``, or that of a stated deployment: it leaves no record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # public, and exported without saying so

from airflow_provider_lakecommit.control import NOT_EVERYWHERE, PARTITIONS, TOPIC_SETTINGS
from airflow_provider_lakecommit.core import Retention
from airflow_provider_lakecommit.core.planning.headroom import duration_text
from airflow_provider_lakecommit.exceptions import ControlTopicError, LakecommitError
from airflow_provider_lakecommit.kafka import ClusterAdmin, LastError, TopicFacts, bootstrap_servers, made
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, fail, ok, skipped, warn
from airflow_provider_lakecommit.status.doctor.roles import LANDING_ROLES, NEEDS, Role, role_findings

TIMEOUT = 10.0
TRANSACTION_MS = 10_000
"""The timeout of our transactions."""
HEADER_BYTES, ROOMY_BYTES = 300_000, 1_000_000
"""The largest header is 256 KiB; a list of files comes on top."""


def brokers(
    landing: Landing,
    kafka: Mapping[str, Any],
    every: timedelta | None,
    roles: Collection[Role] = LANDING_ROLES,
    deployment: str = "",
) -> Iterable[CheckResult]:
    """Check everything.

    :param every: how often the landing runs, if known
    :param roles: roles of the connection
    :param deployment: owner of the transactional ids; any by default
    """
    admin = ClusterAdmin(
        kafka, timeout=TIMEOUT, away=ControlTopicError, refused=ControlTopicError, remedy=lambda: "grant DESCRIBE"
    )
    try:
        cluster = admin.cluster_id()
    except LakecommitError as e:
        yield fail("brokers", str(e), "correct `bootstrap.servers` and the login; the brokers got no further requests")
        named = (*(f"topic {t}" for t in landing.topic_names), f"control topic {landing.control_topic_name}")
        yield from (skipped(check, "brokers") for check in (*named, "transactional id"))
        return
    yield ok("brokers", f"cluster {cluster} at {bootstrap_servers(kafka)}")
    control = landing.control_topic_name
    rights = {name: admin.rights(name) for name in (*landing.topic_names, control)}
    for name in landing.topic_names if any("source" in NEEDS[r] for r in roles) else ():
        yield from _source(name, rights[name], admin.settings(name), landing, every)
    yield from _control(landing, admin, rights[control], every, roles)
    yield from _broker_settings(admin)
    prefix = f"lakecommit-{landing.name}-{f'@{deployment}-' if deployment else ''}"
    tried: bool | None = None
    if any("ids" in NEEDS[r] for r in roles):
        found, tried = _transaction(prefix, kafka)
        yield found
    admin.close()
    may = {name: None if facts is None else facts.operations for name, facts in rights.items()}
    yield from role_findings(roles, may, control, prefix, tried)


def _source(
    name: str, rights: TopicFacts | None, settings: Mapping[str, str] | None, landing: Landing, every: timedelta | None
) -> Iterable[CheckResult]:
    check = f"topic {name}"
    if rights is None or not rights.partitions:
        yield fail(check, "does not exist or cannot be described", "correct `topics`, create it, or grant DESCRIBE")
        return
    yield ok(check, f"{len(rights.partitions)} partitions")
    yield _granted(check, rights, (AclOperation.READ, AclOperation.DESCRIBE))
    yield from _retention(f"retention of {name}", settings, landing, every)


def _granted(check: str, rights: TopicFacts, operations: Sequence[AclOperation]) -> CheckResult:
    lacking = [operation.name for operation in operations if operation not in rights.operations]
    check = f"rights on {check.removeprefix('topic ')}"
    if lacking:
        return fail(check, f"lacks {', '.join(lacking)}", f"grant this principal {', '.join(lacking)} on the topic")
    return ok(check, ", ".join(operation.name for operation in operations))


def _retention(
    check: str, settings: Mapping[str, str] | None, landing: Landing, every: timedelta | None
) -> Iterable[CheckResult]:
    if settings is None:
        yield warn(check, "the settings cannot be read", "grant DESCRIBE_CONFIGS, so that the headroom is known")
        return
    kept = Retention.of(settings)
    if kept.bytes is not None:
        yield warn(
            check,
            f"retention.bytes={kept.bytes}: how long that lasts depends on the volume of records",
            "size it for the longest pause of the landing, or set it to -1",
        )
    if kept.time is None:
        yield ok(check, "records are not removed for their age")
        return
    need = landing.window.completion_timeout + 2 * (every or timedelta(0))
    observed = f"records are kept {duration_text(kept.time)}"
    what = f"window.completion_timeout{f' and two runs, one every {duration_text(every)}' if every else ''}"
    if every is not None and kept.time <= 2 * every:
        yield fail(
            check, f"{observed}, runs are {duration_text(every)} apart", "raise retention.ms, or land more often"
        )
    elif kept.time <= need:
        yield warn(check, f"{observed}; {what} take {duration_text(need)}", "raise retention.ms, or land more often")
    else:
        rest = "" if every is None else f"; the landing may pause for {duration_text(kept.time - every)}"
        yield ok(check, f"{observed}{rest}")


def _control(
    landing: Landing, admin: ClusterAdmin, rights: TopicFacts | None, every: timedelta | None, roles: Collection[Role]
) -> Iterable[CheckResult]:
    name = landing.control_topic_name
    check = f"control topic {name}"
    if rights is None:
        objection = admin.create(name, partitions=PARTITIONS, replication=None, settings=TOPIC_SETTINGS, trial=True)
        if objection is None:
            yield ok(check, "does not exist; the first run can create it")
        else:
            yield fail(check, f"does not exist and cannot be created: {objection.str()}", "have it created")
        return
    if not rights.partitions:
        yield fail(check, "cannot be described, if it exists", "grant this principal DESCRIBE on it")
        return
    yield ok(check, f"{len(rights.partitions)} partitions")
    operations = dict.fromkeys(operation for role in roles for operation in NEEDS[role]["control"])
    yield _granted(check.replace("control topic ", ""), rights, tuple(operations))
    settings = admin.settings(name)
    if settings is None:
        yield warn(check, "the settings cannot be read", "grant DESCRIBE_CONFIGS")
        return
    yield from _control_settings(check, settings, rights, landing, every)


def _control_settings(
    check: str, settings: Mapping[str, str], rights: TopicFacts, landing: Landing, every: timedelta | None
) -> Iterable[CheckResult]:
    kept, size = Retention.of(settings), int(settings["max.message.bytes"])
    if kept.compacted:
        yield fail(check, f"cleanup.policy={settings['cleanup.policy']}", "set cleanup.policy=delete")
    else:
        yield ok(check, f"cleanup.policy={settings['cleanup.policy']}")
    need = 2 * landing.window.completion_timeout + 3 * (every or timedelta(0))
    if kept.time is not None and kept.time < need:
        yield fail(
            check,
            f"retention.ms keeps {duration_text(kept.time)}, open cycles and their failures need {duration_text(need)}",
            "raise retention.ms; a topic created by a landing keeps 30 days",
        )
    elif kept.time is not None and kept.time < timedelta(days=7):
        yield warn(
            check,
            f"retention.ms keeps {duration_text(kept.time)}",
            "raise it above the longest pause of the landing: pending slices that expire unpublished are read again",
        )
    else:
        yield ok(check, "kept for ever" if kept.time is None else f"kept {duration_text(kept.time)}")
    if kept.bytes is not None:
        yield warn(check, f"retention.bytes={kept.bytes}", "set retention.bytes=-1: other landings share the partition")
    if size < HEADER_BYTES:
        yield fail(check, f"max.message.bytes={size}", "a plan's header takes up to 262144: set it to 1048588")
    elif size < ROOMY_BYTES:
        yield warn(check, f"max.message.bytes={size}", "large lists of files may not fit: set it to 1048588")
    if (compression := settings.get(NOT_EVERYWHERE, "uncompressed")) != "uncompressed":
        yield warn(
            check,
            f"compression.type={compression}: any writer can make each reader unpack a gigabyte",
            "set compression.type=uncompressed",
        )
    isr = int(settings["min.insync.replicas"])
    if isr > rights.replicas:
        yield fail(
            check,
            f"min.insync.replicas={isr} with {rights.replicas} replicas: nothing can be written",
            "lower it, or add replicas",
        )
    elif rights.replicas < 2:
        yield warn(check, "1 replica: its loss voids pending slices", "give it 3 replicas if the cluster has them")
    else:
        yield ok(check, f"{rights.replicas} replicas, min.insync.replicas={isr}")


def _broker_settings(admin: ClusterAdmin) -> Iterable[CheckResult]:
    check = "transaction.max.timeout.ms"
    found = admin.broker_settings()
    if found is None or check not in found:
        yield warn(check, "the settings of the brokers cannot be read", "check that it is at least 10000")
    elif int(found[check]) < TRANSACTION_MS:
        yield fail(check, f"{found[check]} on the brokers", f"raise it to at least {TRANSACTION_MS}")
    else:
        yield ok(check, found[check])


def _transaction(prefix: str, kafka: Mapping[str, Any]) -> tuple[CheckResult, bool | None]:
    """Register an id, commit an empty transaction; return the finding and whether it is allowed, if known."""
    check, name, trouble = "transactional id", f"{prefix}doctor", LastError()
    ours = {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_MS, "enable.idempotence": True}
    try:
        producer: Producer = made(Producer, kafka, trouble, **ours)
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        producer.commit_transaction(TIMEOUT)
    except KafkaException as e:
        observed = redacted(f"{name}: {e.args[0].str()}{f' ({trouble.cause})' if trouble.cause else ''}", kafka)
        denied = e.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        remedy = f"grant this principal WRITE and DESCRIBE on transactional ids with the prefix {prefix}"
        return fail(check, observed, remedy), False if denied else None
    return ok(check, f"{name}: an empty transaction was committed"), True
