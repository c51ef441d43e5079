# SPDX-License-Identifier: Apache-2.0
"""The commands that need brokers and no landing, each with what it is asked (`add_arguments`) and what it does (`run`).

Contract: nothing is imported for a command before it runs, so that help and mistakes are answered at once, also where
only guards are installed.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import timedelta

from airflow_provider_lakecommit.cli.arguments import Command, duration, factor, moment, positive, source
from airflow_provider_lakecommit.cli.output import Output
from airflow_provider_lakecommit.connector.sink import CONTROL_TOPIC
from airflow_provider_lakecommit.landing import load_spec

__all__ = ["ControlLogCommand", "InferSchemaCommand", "RescueCommand", "StallCommand"]


class InferSchemaCommand(Command):
    says = "sample a topic and print a landing with a `create` section"
    spec = "none"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "source", metavar="TOPIC|SPEC", help="a topic, with --bootstrap; or a YAML file of a landing"
        )
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers of the topic, in place of a spec")
        parser.add_argument("--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings")
        parser.add_argument(
            "--records", type=positive, default=1000, metavar="N", help="how many to sample (default 1000)"
        )
        parser.add_argument("--examples", action="store_true", help="show values of records in the comments")

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.cli.infer_schema import infer_schema

        by_hand = options.bootstrap is not None or options.kafka_config is not None
        spec = None if by_hand else load_spec(options.source)
        kafka, _ = source(options, output, options.source, spec)
        landing = spec.landing if spec else None
        topics = landing.topic_names if landing else (options.source,)
        return infer_schema(kafka, topics, landing, output, records=options.records, examples=options.examples)


class ControlLogCommand(Command):
    says = "every record of a control topic, decoded"
    spec = "optional"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers, in place of a spec")
        parser.add_argument("--topic", help="control topic (default: the one of the spec)")
        parser.add_argument("--group", metavar="GROUP_ID", help="only records of this control group")
        parser.add_argument(
            "--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings, for brokers that want a login"
        )

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.cli.control_log import control_log

        spec = load_spec(options.spec) if options.spec else None
        kafka, topic = source(options, output, options.topic, spec)
        return control_log(kafka, topic, output, group=options.group)


class StallCommand(Command):
    says = "how commits are doing, after every event of a control topic"
    spec = "none"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--bootstrap", metavar="HOST:PORT", help="brokers (or bootstrap.servers by the next two)")
        add("--kafka-config", "--config", metavar="FILE", help="YAML mapping of librdkafka settings")
        add("-X", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="one of them")
        add("--control-topic", metavar="TOPIC", help="default: that of landings")
        add(
            "--group",
            metavar="GROUP_ID",
            help="connect-NAME of a connector, lakecommit-NAME of a landing (default: all)",
        )
        add("--follow", action="store_true", help="go on at the end of the topic")
        clock_help = "whose time: the events' own, or what it is now"
        add("--clock", choices=["event", "wall"], default="wall", help=clock_help)
        add("--until", type=moment, metavar="ISO", help="up to that time, and what is to be said then")
        add("--stalled-cycles", type=positive, default=3, metavar="N", help="cycles in a row (default 3)")
        add("--silent-intervals", type=factor, default=3.0, metavar="X", help="silence that means dead (default 3)")
        add("--interval", type=duration, metavar="TIME", help="a connector's commit interval (default: learned)")
        add("--unanswered-cycles", type=positive, default=3, metavar="N", help="that a partition may miss (default 3)")
        hour = timedelta(hours=1)
        add("--completion-timeout", type=duration, default=hour, metavar="TIME", help="a landing's (default 1h)")
        add("--only-cycles", action="store_true", help="nothing but the rule of cycles in a row")

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.cli.stall import StallOptions, stall, with_settings
        from airflow_provider_lakecommit.stall.verdict import StallRules

        given = with_settings({}, options.settings)
        options.bootstrap = options.bootstrap or given.get("bootstrap.servers")
        kafka, topic = source(options, output, options.control_topic)
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
            group=options.group,
            rules=rules,
            events_clock=options.clock == "event",
            until=options.until,
            follow=options.follow,
            completion_timeout=options.completion_timeout.total_seconds(),
        )
        return stall(kafka, topic, output, request)


class RescueCommand(Command):
    says = "commit what a Kafka Connect sink announced and never committed"
    spec = "none"

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--connector", required=True, metavar="NAME", help="of the sink")
        add("--catalog", required=True, metavar="FILE", help="YAML mapping of pyiceberg's properties")
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

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.cli.rescue import catalog_of, connect_of, rescue

        kafka, _ = source(options, output, options.control_topic)
        catalog, connect = catalog_of(options.catalog), connect_of(options.connect, options.connect_config)
        output.keep(catalog, {"connect": connect or {}})
        return rescue(kafka, catalog, output, options, connect)
