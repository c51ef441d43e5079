# SPDX-License-Identifier: Apache-2.0
"""Take landings of a DAG, and connections of Airflow, instead of a spec and its sections.

Airflow is imported only if an option requests it. Its output goes to standard error. The output knows the secrets of
connections before anything else can print them.
"""

from __future__ import annotations

import argparse
import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from airflow_provider_lakecommit.cli.terminal.output import Output, results_only, start_logging
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import (
    Landing,
    LandingSetSpec,
    LandingSpec,
    declares_set,
    load_set,
    load_spec,
    registry_settings,
    with_registry,
)

PROCESS_CONTEXT = "_AIRFLOW_PROCESS_CONTEXT"
"""Airflow uses it to decide where a process may get connections from; `airflow connections` sets it the same way."""
SECTIONS = {"kafka": "kafka_conn_id", "catalog": "iceberg_conn_id", "spark": "spark_conn_id"}
"""Options that replace sections."""


def add_airflow(
    parser: argparse.ArgumentParser, *, dag: bool = True, iceberg: bool = True, spark: bool = False
) -> None:
    """Add the options of a command that takes its landing, or its connections, from an Airflow deployment."""
    group = parser.add_argument_group("in an Airflow deployment")
    if dag:
        group.add_argument("--dag", metavar="DAG", help="take the landing that this DAG declares")
        group.add_argument("--task-group", metavar="GROUP", help="take only landings with tasks in this group")
        group.add_argument("--landing", metavar="NAME", help="take only this landing of the DAG or set")
    add = group.add_argument
    add("--kafka-conn-id", metavar="ID", help="take brokers from this Airflow connection")
    if iceberg:
        add("--iceberg-conn-id", metavar="ID", help="take the catalog from this Airflow connection")
    if spark:
        add("--spark-conn-id", metavar="ID", help="take Spark from this Airflow connection")
    parser.set_defaults(wants_spark=spark, wants_catalog=iceberg)


def load(options: Namespace, output: Output) -> LandingSpec:
    """Return the landing of a command, with everything that it needs: of a DAG, or of a spec with the given connections
    of Airflow instead of its sections.
    """
    name = getattr(options, "landing", None)
    if (of_set := _declared_set(options, output)) is not None:
        from airflow_provider_lakecommit.cli.runs.land_set import landing_of

        return landing_of(of_set, name)
    if options.dag:
        specs = load_dag(options, output)
        if len(specs) > 1:
            raise SpecError(
                "LC8013",
                f"DAG {options.dag!r} has {len(specs)} landings, {', '.join(s.landing.name for s in specs)}: choose "
                "one by --landing NAME or --task-group GROUP",
            )
        return specs[0]
    path = options.spec
    if name:
        raise SpecError("LC8014", f"spec {path} is of one landing: --landing NAME is for a set, leave it out")
    spec = load_spec(path, elsewhere=connection_ids(options))
    landing = spec.landing
    found = _completed(spec, landing.connections.registry, path, options, output)
    if connection_ids(options):
        with opened(options, output) as airflow:
            landing = airflow.complete(landing)
    return LandingSpec(landing=landing, **found, variables=spec.variables)


def load_set_file(options: Namespace, output: Output) -> LandingSetSpec | None:
    """Return the complete set that a command is given, if any."""
    return None if options.landing else _declared_set(options, output)


def _declared_set(options: Namespace, output: Output) -> LandingSetSpec | None:
    """Return the set of the DAG or the spec; ``None`` if that declares single landings."""
    if options.dag:
        return load_dag_set(options, output)
    path = options.spec
    if not declares_set(path):
        return None
    spec = load_set(path, elsewhere=connection_ids(options))
    found = _completed(spec, spec.landing_set.with_defaults("all").connections.registry, path, options, output)
    return LandingSetSpec(landing_set=spec.landing_set, **found, variables=spec.variables)


def _completed(
    spec: LandingSpec | LandingSetSpec, registry: str | None, path: str, options: Namespace, output: Output
) -> dict[str, Any]:
    """Return a spec's sections, with the given connections of Airflow instead of them."""
    named = connection_ids(options)
    output.keep(spec.variables, *(getattr(spec, s) for s in SECTIONS if s not in named))
    found: dict[str, Any] = {s: getattr(spec, s) for s in SECTIONS}
    if named:
        with opened(options, output) as airflow:
            found |= _sections(airflow, named, output)
            if "kafka" in named:
                found["kafka"] = _with_registry(airflow, registry, {**found["kafka"], **spec.kafka}, output)
    if not found["catalog"]:
        raise SpecError(
            "LC8015",
            f"spec {path}: the section 'catalog' is missing: add it, or give --iceberg-conn-id of an Airflow "
            "connection",
        )
    return found


def load_dag(options: Namespace, output: Output) -> list[LandingSpec]:
    specs = []
    with opened(options, output) as airflow:
        for declared in airflow.landings_of(options.dag, group=options.task_group, name=options.landing):
            landing = airflow.complete(declared.of)
            specs.append(LandingSpec(landing=landing, **_connected(airflow, landing, declared, options, output)))
    return specs


def load_dag_set(options: Namespace, output: Output) -> LandingSetSpec | None:
    """Return the landing set of a DAG, with its connections; ``None`` if the DAG has none."""
    with opened(options, output) as airflow:
        declared = airflow.set_of(options.dag, group=options.task_group)
        if declared is None:
            return None
        one = declared.of.with_defaults(declared.of.name)
        found = _connected(airflow, one, declared, options, output)
    return LandingSetSpec(landing_set=declared.of, **found)


def _connected(
    airflow: ModuleType, landing: Landing, declared: Any, options: Namespace, output: Output
) -> dict[str, Any]:
    """Return the sections of a spec, by the connections that a landing, or those of its set, name."""
    given = connection_ids(options)
    named = {"kafka": given.get("kafka") or landing.connections.kafka}
    if options.wants_catalog:
        named["catalog"] = given.get("catalog") or landing.connections.iceberg
    found = _sections(airflow, named, output)
    found["kafka"] = _with_registry(airflow, landing.connections.registry, found["kafka"], output)
    if options.wants_spark and getattr(options, "spark", True):
        spark = airflow.spark_of(given.get("spark") or declared.spark_conn_id, declared.spark_conf)
        output.keep(spark)
        found["spark"] = spark
    return {"catalog": {}, "spark": {}, **found}


def landing_or_none(options: Namespace, output: Output) -> LandingSpec | None:
    """Return the landing of the named DAG or spec, if any; for commands that need no catalog."""
    if options.dag or not options.spec:
        return load(options, output) if options.dag else None
    elsewhere = ("catalog", "spark", *(("kafka",) if options.kafka_conn_id else ()))
    if declares_set(options.spec):
        of_set = load_set(options.spec, elsewhere=elsewhere)
        if not options.landing:
            raise SpecError("LC8016", f"{options.spec} is a set of landings: choose one by --landing NAME")
        output.keep(of_set.variables, of_set.kafka)
        # The control topic knows it by its name alone.
        return of_set.of(of_set.landing_set.with_defaults(options.landing))
    spec = load_spec(options.spec, elsewhere=elsewhere)
    output.keep(spec.variables, spec.kafka)
    return spec


def connect_connection(options: Namespace, output: Output) -> dict[str, Any] | None:
    if not options.kafka_connect_conn_id:
        return None
    with opened(options, output) as airflow:
        found: dict[str, Any] = airflow.rest_of(options.kafka_connect_conn_id)
        return found


def connection_ids(options: Namespace) -> dict[str, str]:
    return {s: found for s, option in SECTIONS.items() if (found := getattr(options, option, None))}


@contextmanager
def opened(options: Namespace, output: Output) -> Iterator[ModuleType]:
    """Yield Airflow as :mod:`~airflow_provider_lakecommit.cli.deployment`. It searches its database for connections,
    too; a command within a task has only those of tasks.
    """
    os.environ.setdefault(PROCESS_CONTEXT, "server")
    if not options.verbose:
        os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
    with results_only(output):
        try:
            from airflow_provider_lakecommit.cli import deployment

            yield deployment
        finally:
            # Airflow configures the logging of a process that imports it.
            start_logging(output, verbose=options.verbose)


def _sections(airflow: ModuleType, named: dict[str, str], output: Output) -> dict[str, Any]:
    read = {"kafka": airflow.kafka_of, "catalog": airflow.catalog_of, "spark": airflow.spark_of}
    found = {section: read[section](conn_id) for section, conn_id in named.items()}
    output.keep(*found.values())
    return found


def _with_registry(airflow: ModuleType, conn_id: str | None, kafka: dict[str, Any], output: Output) -> dict[str, Any]:
    """Return the brokers' settings, with those of the named registry."""
    if conn_id is None or registry_settings(kafka):
        return kafka
    found = airflow.registry_of(conn_id)
    output.keep(found)
    return with_registry(kafka, found)


def section_connection(section: str, options: Namespace, output: Output) -> dict[str, Any] | None:
    conn_id = getattr(options, SECTIONS[section], None)
    if not conn_id:
        return None
    with opened(options, output) as airflow:
        return dict(_sections(airflow, {section: conn_id}, output)[section])
