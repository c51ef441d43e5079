# SPDX-License-Identifier: Apache-2.0
"""Checks everything that a landing needs, in one run.

Nothing is landed, created or changed, except an empty transaction, and a small file in the tables' storage that is
removed at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.cycle import LandingSession, vended_of
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.redaction import is_secret
from airflow_provider_lakecommit.spark import LocalSpark, Secrets, SparkSection, engine_of, run_probe
from airflow_provider_lakecommit.status.doctor.brokers import brokers
from airflow_provider_lakecommit.status.doctor.finding import CheckResult, checked, checked_after, failed, warn
from airflow_provider_lakecommit.status.doctor.groups import deployments, sharing, signatures
from airflow_provider_lakecommit.status.doctor.host import executor, installed_versions, java, memory, versions
from airflow_provider_lakecommit.status.doctor.lake import headroom, name_of, probe_path, tables, vended
from airflow_provider_lakecommit.status.doctor.registry_check import registry
from airflow_provider_lakecommit.status.doctor.roles import LANDING_ROLES, NEEDS, Role
from airflow_provider_lakecommit.status.doctor.upsert_costs import upserts

if TYPE_CHECKING:
    from pyiceberg.table import Table


def examine(
    spec: LandingSpec,
    log: Callable[[str], None],
    *,
    every: timedelta | None,
    spark: bool,
    roles: Collection[Role] = LANDING_ROLES,
    deployment: str = "",
) -> list[CheckResult]:
    """Return all findings, in the order of their dependencies.

    :param log: gets the lines of the connections that are opened
    :param every: how often the landing runs
    :param spark: also run a task
    :param roles: roles of the Kafka connection
    :param deployment: owner of the transactional ids to try
    """
    section = SparkSection(spec.spark)
    master = None if section.remote else section.master
    out = checked("versions", lambda: versions(installed_versions()))
    out += checked("java", lambda: java(master))
    out += checked("memory", lambda: memory(master, section.conf))
    kafka = checked("brokers", lambda: brokers(spec.landing, spec.kafka, every, roles, deployment))
    out += kafka
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=log) as session:
        lake, there = tables(session, reachable=failed(*kafka) != "brokers")
        out += lake
        for table in there:
            if (storage := session.tables.known_storage(name_of(table))) is not None:
                out += vended(storage, name_of(table), time.time())
        reads = any("source" in NEEDS[role] for role in roles)
        if reads and (there or failed(*lake)):
            out += checked_after((*kafka, *lake), "headroom", lambda: headroom(session, every))
            data = next((t for t in there if name_of(t) == spec.landing.table), None)
            if spec.landing.upsert.key:
                out += checked_after((*kafka, *lake), "upsert", lambda: upserts(session, data))
        out += checked("schema registry", lambda: registry(spec.landing, spec.kafka))
        out += checked_after(kafka, "control signatures", lambda: signatures(session))
        out += checked_after(kafka, "control topic in common", lambda: sharing(session))
        out += checked_after(kafka, "deployment id", lambda: deployments(session))
        if spark:
            out += checked("executor", lambda: _executor(spec, section, session, there, log))
    return out


def _executor(
    spec: LandingSpec,
    section: SparkSection,
    session: LandingSession,
    there: Sequence[Table],
    log: Callable[[str], None],
) -> Iterable[CheckResult]:
    paths = {name_of(table): probe_path(table) for table in there}
    storage = {name: session.tables.storage(name) for name in vended_of(session.tables, paths)}
    secrets = Secrets(kafka={}, io=session.tables.io_properties(), tables=storage)
    if section.remote is not None:
        if any(map(is_secret, (*secrets.io, *(name for s in storage.values() for name in s.properties)))):
            paths = {}
        try:
            # As a landing does: Spark's own client retries for ten minutes if nothing listens.
            with closing(engine_of(section, spec.landing.name, log=log, on_start=lambda: None)) as warm:
                warm.start()
            observed, began = _through_connect(section.remote, paths, secrets)
        except ImportError as e:
            yield warn("executor", f"not checked: {e}", "install pyspark-client here, or use --no-spark")
            return
    else:
        engine = LocalSpark(section, log=log, on_start=lambda: None)
        try:
            engine.start()
            began = time.time()
            observed = engine.probe(paths, secrets)
        finally:
            engine.close()
    yield from executor(observed, began, tried=bool(paths))


def _through_connect(remote: str, paths: Mapping[str, str], secrets: Secrets) -> tuple[dict[str, Any], float]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(remote).create()
    try:
        began = time.time()
        return run_probe(session, paths, lambda: secrets), began
    finally:
        session.stop()
