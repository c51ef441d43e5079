# SPDX-License-Identifier: Apache-2.0
"""The everyday commands."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow_provider_lakecommit.cli.arguments import (
    Command,
    Effect,
    add_brokers,
    add_every,
    calling,
    duration,
    natural,
    on_spec,
    positive,
    source,
)
from airflow_provider_lakecommit.cli.from_airflow import add_airflow, landing_or_none, load, load_set_file
from airflow_provider_lakecommit.cli.terminal.output import Output, results_only
from airflow_provider_lakecommit.core import WITH_REGISTRY
from airflow_provider_lakecommit.cycle import FollowOptions
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSpec, load_spec, with_registry

_ONLY = ("window_age", "keep_snapshots", "log_interval")


def add_follow(parser: ArgumentParser) -> None:
    add = parser.add_argument_group("continuous mode").add_argument
    add("--follow", action="store_true", help="continue when caught up, until stopped")
    add("--follow-for", type=duration, metavar="TIME", help="continue for this time")
    add("--window-age", type=duration, metavar="TIME", help="open a window for records this old (default 2s)")
    keep = "expire older snapshots of this landing (default 1h)"
    add("--keep-snapshots", type=_kept, metavar="TIME|all", help=keep)
    add("--log-interval", type=duration, metavar="TIME", help="log progress this often (default 60s)")


def follow_of(options: Namespace) -> FollowOptions | None:
    """Return the options of continuous mode; ``None``: end when caught up."""
    given = {name: value for name in _ONLY if (value := getattr(options, name)) is not None}
    if not options.follow and options.follow_for is None:
        if given:
            options.usage_error(f"--{next(iter(given)).replace('_', '-')} needs --follow")
        return None
    if options.cycles is not None:
        options.usage_error("--cycles and --follow exclude each other")
    names = {"log_interval": "interval"}
    chosen: dict[str, Any] = {names.get(name, name): None if value == "all" else value for name, value in given.items()}
    return FollowOptions(lifetime=options.follow_for, **chosen)


def _kept(text: str) -> timedelta | str:
    return text if text == "all" else duration(text)


def _land_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--cycles", type=positive, metavar="N", help="stop after N cycles (default: when caught up)")
    add_follow(parser)


def _land(options: Namespace, output: Output) -> int:
    follow = follow_of(options)
    if options.dry_run:
        return PLAN.run(options, output)
    if (declared := load_set_file(options, output)) is not None:
        from airflow_provider_lakecommit.cli.runs.land_set import land_set

        with results_only(output):
            return land_set(declared, output, cycles=options.cycles, follow=follow)
    spec = load(options, output)
    from airflow_provider_lakecommit.cli.runs.land import land

    with results_only(output):
        return land(spec, output, cycles=options.cycles, follow=follow)


LAND = Command(
    description="land new records, cycle after cycle, until caught up",
    examples=(
        "land orders.yaml",
        "land orders.yaml --cycles 1 --json > cycles.jsonl",
        "land orders.yaml --follow --window-age 2s",
        "land --dag land_orders",
    ),
    arguments=_land_arguments,
    run=_land,
    runs_spark=True,
    effect=Effect.ACTS,
)


def _plan_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--explain", action="store_true", help="explain where each partition's window ends")


PLAN = Command(
    description="show what the next cycle would do; write nothing",
    examples=("plan orders.yaml --explain", "plan --dag land_orders --json"),
    arguments=_plan_arguments,
    run=on_spec("runs.plan:plan", of_set="runs.plan:plan_set"),
)


def _status_arguments(parser: ArgumentParser) -> None:
    add_every(parser)
    add = parser.add_argument
    add("--max-lag", type=natural, metavar="N", help="accept this many unlanded offsets (default 0)")
    add("--max-age", type=duration, metavar="TIME", help="accept tables that are complete up to then")


STATUS = Command(
    description="show lag, open windows and blocked ranges; 0 if well",
    examples=("status orders.yaml --every 5m", "status --dag land_shop --task-group orders"),
    arguments=_status_arguments,
    run=on_spec("status:status", of_set="status:status_set"),
)


def _verify_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--files", action=BooleanOptionalAction, help="check that files exist (default: on local disks)")
    add("--rows", action="store_true", help="check each row's record too; needs columns.metadata")
    add("--keys", action="store_true", help="check that no key of `upsert` has two rows")
    add("--source", dest="spark", action="store_true", help="read the records again and compare every column")
    sample = "with --source: compare a share or a range; repeatable"
    add("--sample", action="append", metavar="N%|TOPIC:PARTITION=FROM-TO", help=sample)


VERIFY = Command(
    description="check ledger, accounting and files over the tables' history",
    examples=(
        "verify orders.yaml --files",
        "verify orders.yaml --rows",
        "verify orders.yaml --source --sample 1%",
        "verify --dag land_orders --json",
    ),
    arguments=_verify_arguments,
    run=on_spec("verify:verify", results=True),
    runs_spark=True,
)


def _history_arguments(parser: ArgumentParser) -> None:
    add = parser.add_mutually_exclusive_group().add_argument
    add("--ledger", action="store_true", help="show the ledgers in the tables instead")
    control = "show the records of the control topic instead"
    add("--control-topic", nargs="?", const="", metavar="TOPIC", help=control)
    parser.add_argument("--group", metavar="GROUP_ID", help="show only control records of this group")
    add_brokers(parser)
    add_airflow(parser)


def _history(options: Namespace, output: Output) -> int:
    if options.control_topic is not None:
        from airflow_provider_lakecommit.cli.control_log import control_log

        options.wants_catalog = False
        found = landing_or_none(options, output)
        kafka, topic = source(options, output, options.control_topic, found)
        return control_log(kafka, topic, output, group=options.group)
    if not options.spec and not options.dag:
        options.usage_error("give SPEC, or --dag DAG of an Airflow deployment; put SPEC before --control-topic")
    spec = load(options, output)
    return calling("history:ledgers" if options.ledger else "history:history")(spec, output)


HISTORY = Command(
    description="show past windows, spec versions, epochs and decisions",
    examples=(
        "history orders.yaml",
        "history orders.yaml --ledger --json",
        "history orders.yaml --control-topic",
        "history --bootstrap localhost:9092 --control-topic control-iceberg --group connect-orders",
    ),
    arguments=_history_arguments,
    run=_history,
    spec="optional",
)


def _doctor_arguments(parser: ArgumentParser) -> None:
    add_every(parser)
    add = parser.add_argument
    add("--no-spark", dest="spark", action="store_false", help="start no Spark job")
    roles = "check these roles of the Kafka connection; repeatable"
    add("--role", action="append", choices=["plan", "write", "commit", "sensor"], help=roles)
    add("--deployment", default="", metavar="NAME", help="try a transactional id of this deployment")


DOCTOR = Command(
    description="check everything that a landing needs",
    examples=("doctor orders.yaml", "doctor --dag land_orders --no-spark"),
    arguments=_doctor_arguments,
    run=on_spec("doctor:doctor", results=True),
    runs_spark=True,
)


def _infer_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="TOPIC|SPEC", nargs="?", help="a topic of --bootstrap, or a landing's YAML file")
    add_brokers(parser)
    add("--records", type=positive, default=1000, metavar="N", help="sample this many records (default 1000)")
    add("--examples", action="store_true", help="show values of records in the comments")
    add("--registry", metavar="URL", help="use this schema registry, instead of a spec's")
    add("--subject", help="take columns from this subject (default TOPIC-value)")
    add_airflow(parser, iceberg=False)


def _infer(options: Namespace, output: Output) -> int:
    from airflow_provider_lakecommit.cli.infer_output import output_of
    from airflow_provider_lakecommit.cli.infer_schema import Question, infer_registered, infer_schema

    by_hand = any((options.bootstrap, options.kafka_config, options.kafka_conn_id))
    spec = load(options, output) if options.dag else None if by_hand else _sampled(options.source)
    kafka, _ = source(options, output, options.source, spec)
    landing = spec.landing if spec else None
    topics = landing.topic_names if landing else (options.source,)
    question = Question(
        kafka=with_registry(kafka, {"url": options.registry}) if options.registry else kafka,
        topics=topics,
        landing=landing,
        catalog=spec.catalog if spec else None,
        records=options.records,
        examples=options.examples,
    )
    if options.registry or (landing and landing.decoding.name in WITH_REGISTRY):
        return output_of(infer_registered(question, subject=options.subject), output)
    return output_of(infer_schema(question), output)


def _sampled(source: str) -> LandingSpec:
    if not Path(source).exists():
        raise SpecError(
            "LC8012", f"file {source} does not exist; for a topic {source}, give its brokers too: --bootstrap HOST:PORT"
        )
    return load_spec(source)


INFER_SCHEMA = Command(
    description="sample a topic and print a landing for it",
    examples=(
        "infer-schema orders --bootstrap localhost:9092 > orders.yaml",
        "infer-schema orders.yaml --records 10000",
        "infer-schema orders --kafka-conn-id kafka_default",
        "infer-schema orders --bootstrap localhost:9092 --registry http://localhost:8081",
    ),
    arguments=_infer_arguments,
    run=_infer,
    spec="none",
)
