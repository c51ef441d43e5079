# SPDX-License-Identifier: Apache-2.0
"""The commands that need brokers and no landing, each with what it is asked (`add_arguments`) and what it does (`run`).

Contract: nothing is imported for a command before it runs, so that help and mistakes are answered at once, also where
only guards are installed.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import timedelta
from pathlib import Path

from airflow_provider_lakecommit.cli.arguments import Command, duration, factor, moment, positive, source
from airflow_provider_lakecommit.cli.from_airflow import (
    add_airflow,
    airflow_landing,
    catalog_connection,
    connect_connection,
)
from airflow_provider_lakecommit.connector.sink import CONTROL_TOPIC
from airflow_provider_lakecommit.core.formats import WITH_REGISTRY
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSpec, load_spec
from airflow_provider_lakecommit.landing_set import declares_set, load_set
from airflow_provider_lakecommit.registry.settings import with_registry
from airflow_provider_lakecommit.terminal.output import Output

__all__ = ["ControlLogCommand", "InferSchemaCommand", "RescueCommand", "StallCommand"]


class InferSchemaCommand(Command):
    says = "sample a topic and print a landing with a `create` section"
    spec = "none"
    examples = (
        "infer-schema orders --bootstrap localhost:9092 > orders.yaml",
        "infer-schema orders.yaml --records 10000",
        "infer-schema orders --kafka-conn-id kafka_default",
        "infer-schema orders --bootstrap localhost:9092 --registry http://localhost:8081",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "source",
            metavar="TOPIC|SPEC",
            nargs="?",
            help="a topic, with --bootstrap or --kafka-conn-id; or a YAML file of a landing",
        )
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers of the topic, in place of a spec")
        parser.add_argument("--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings")
        parser.add_argument(
            "--records", type=positive, default=1000, metavar="N", help="how many to sample (default 1000)"
        )
        parser.add_argument("--examples", action="store_true", help="show values of records in the comments")
        parser.add_argument("--registry", metavar="URL", help="schema registry of the topic, in place of a spec")
        parser.add_argument("--subject", help="whose newest version gives the columns (default TOPIC-value)")
        add_airflow(parser, iceberg=False)

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.cli.infer_registered import infer_registered
        from airflow_provider_lakecommit.cli.infer_schema import Question, infer_schema

        by_hand = any((options.bootstrap, options.kafka_config, options.kafka_conn_id))
        spec = airflow_landing(options, output) or (None if by_hand else _spec(options.source))
        kafka, _ = source(options, output, options.source, spec)
        landing = spec.landing if spec else None
        topics = landing.topic_names if landing else (options.source,)
        asked = Question(
            kafka=with_registry(kafka, {"url": options.registry}) if options.registry else kafka,
            topics=topics,
            landing=landing,
            catalog=spec.catalog if spec else None,
            records=options.records,
            examples=options.examples,
        )
        if options.registry or (landing and landing.format in WITH_REGISTRY):
            return infer_registered(asked, output, subject=options.subject)
        return infer_schema(asked, output)


def _spec(source: str) -> LandingSpec:
    """:raises SpecError: it cannot be read; a topic alone is not enough"""
    if not Path(source).exists():
        raise SpecError(
            f"there is no file {source}; of the topic {source}, give its brokers too: --bootstrap HOST:PORT"
        )
    return load_spec(source)


class ControlLogCommand(Command):
    says = "every record of a control topic, decoded"
    spec = "optional"
    examples = (
        "control-log orders.yaml --json",
        "control-log --bootstrap localhost:9092 --topic control-iceberg --group connect-orders",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers, in place of a spec")
        parser.add_argument("--topic", help="control topic (default: the one of the spec)")
        parser.add_argument("--group", metavar="GROUP_ID", help="only records of this control group")
        parser.add_argument(
            "--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings, for brokers that want a login"
        )
        add_airflow(parser, iceberg=False)

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.cli.control_log import control_log

        kafka, topic = source(options, output, options.topic, _landing(options, output))
        return control_log(kafka, topic, output, group=options.group)


class StallCommand(Command):
    says = "how commits are doing, after every event of a control topic"
    spec = "optional"
    examples = (
        "stall orders.yaml --follow",
        "stall --bootstrap localhost:9092 --control-topic control-iceberg --group connect-orders",
        "stall --dag land_orders",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--bootstrap", metavar="HOST:PORT", help="brokers (or bootstrap.servers by the next two)")
        add("--kafka-config", "--config", metavar="FILE", help="YAML mapping of librdkafka settings")
        add("-X", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="one of them")
        add("--control-topic", metavar="TOPIC", help="default: that of the landing, or of all landings")
        add(
            "--group",
            metavar="GROUP_ID",
            help="connect-NAME of a connector, lakecommit-NAME of a landing (default: that of SPEC or DAG, else all)",
        )
        add("--follow", action="store_true", help="go on at the end of the topic")
        clock_help = "whose time: the events' own, or what it is now"
        add("--clock", choices=["event", "wall"], default="wall", help=clock_help)
        add("--until", type=moment, metavar="ISO", help="up to that time, and what is to be said then")
        add("--stalled-cycles", type=positive, default=3, metavar="N", help="cycles in a row (default 3)")
        add("--silent-intervals", type=factor, default=3.0, metavar="X", help="silence that means dead (default 3)")
        add("--interval", type=duration, metavar="TIME", help="a connector's commit interval (default: learned)")
        add("--unanswered-cycles", type=positive, default=3, metavar="N", help="that a partition may miss (default 3)")
        timeout_help = "a landing's (default: that of SPEC or DAG, else 1h)"
        add("--completion-timeout", type=duration, metavar="TIME", help=timeout_help)
        add("--only-cycles", action="store_true", help="nothing but the rule of cycles in a row")
        add_airflow(parser, iceberg=False)

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.cli.stall import StallOptions, stall, with_settings
        from airflow_provider_lakecommit.stall.verdict import StallRules

        given = with_settings({}, options.settings)
        options.bootstrap = options.bootstrap or given.get("bootstrap.servers")
        spec = _landing(options, output)
        kafka, topic = source(options, output, options.control_topic, spec)
        group, timeout = options.group, options.completion_timeout or timedelta(hours=1)
        if spec is not None:
            group = group or spec.landing.group_id
            timeout = options.completion_timeout or spec.landing.completion_timeout
        kafka = {**kafka, **given, "bootstrap.servers": kafka["bootstrap.servers"]}
        output.keep(kafka)
        rules = StallRules(
            stalled_cycles=options.stalled_cycles,
            silent_intervals=options.silent_intervals,
            interval=options.interval.total_seconds() if options.interval else None,
            unanswered_cycles=options.unanswered_cycles,
            only_cycles=options.only_cycles,
        )
        request = StallOptions(
            group=group,
            rules=rules,
            events_clock=options.clock == "event",
            until=options.until,
            follow=options.follow,
            completion_timeout=timeout.total_seconds(),
        )
        return stall(kafka, topic, output, request)


class RescueCommand(Command):
    says = "commit what a Kafka Connect sink announced and never committed"
    spec = "none"
    examples = (
        "rescue --connector orders --catalog catalog.yaml --bootstrap localhost:9092",
        "rescue --connector orders --kafka-conn-id kafka_default --iceberg-conn-id iceberg_default --connector-is-gone",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--connector", required=True, metavar="NAME", help="of the sink")
        add("--catalog", metavar="FILE", help="YAML mapping of pyiceberg's properties (or --iceberg-conn-id)")
        add("--bootstrap", metavar="HOST:PORT", help="brokers (or bootstrap.servers by the next)")
        add("--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings")
        add("--control-topic", default=CONTROL_TOPIC, metavar="TOPIC", help=f"default {CONTROL_TOPIC}")
        add("--group", metavar="GROUP_ID", help="in its events (default: connect-NAME)")
        add("--reason", default="", metavar="TEXT", help="kept in the snapshots, with who and where")
        add("--table", action="append", metavar="TABLE", help="only this table (may be repeated)")
        add("--branch", default="main", help="of the tables (default main)")
        add("--commit", action="store_true", help="commit what waits; without, it is only shown")
        connect_help = "YAML mapping of url, login, password, headers, verify: a login on a command line is seen by all"
        add("--connect-config", metavar="FILE", help=connect_help)
        add = parser.add_mutually_exclusive_group().add_argument
        add("--connect", metavar="URL", help="Kafka Connect, which must say that it is stopped or not there")
        add("--connector-is-gone", action="store_true", help="your word for it, where Connect is gone too")
        add("--kafka-connect-conn-id", metavar="ID", help="Kafka Connect by this Airflow connection of type http")
        add_airflow(parser, dag=False)

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.cli.rescue import catalog_of, connect_of, rescue

        kafka, _ = source(options, output, options.control_topic)
        catalog = catalog_connection(options, output) or catalog_of(options.catalog)
        connect = connect_connection(options, output) or connect_of(options.connect, options.connect_config)
        output.keep(catalog, {"connect": connect or {}})
        return rescue(kafka, catalog, output, options, connect)


def _landing(options: Namespace, output: Output) -> LandingSpec | None:
    """The landing that is named by a DAG or a spec, if one is."""
    if (found := airflow_landing(options, output)) is not None or not options.spec:
        return found
    elsewhere = ("catalog", "spark", *(("kafka",) if options.kafka_conn_id else ()))
    if declares_set(options.spec):
        of_set = load_set(options.spec, elsewhere=elsewhere)
        if not options.landing:
            raise SpecError(f"{options.spec} is a set of landings: say which by --landing NAME")
        output.keep(of_set.variables, of_set.kafka)
        # Its name is all that the control topic knows it by.
        return of_set.of(of_set.landing_set.with_defaults(options.landing))
    spec = load_spec(options.spec, elsewhere=elsewhere)
    output.keep(spec.variables, spec.kafka)
    return spec
