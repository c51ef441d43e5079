# SPDX-License-Identifier: Apache-2.0
"""Define commands, the rule that they preview before they act, and the parsers of their arguments.

A command that acts does so at once and has ``--dry-run``. One that deletes, skips or goes backwards only shows its
effect, and ends with :data:`Exit.UNCONFIRMED`, until it is given ``--yes``. An invalid argument is argparse's error,
an invalid file a :class:`SpecError`. Nothing is imported for a command before it runs. The output knows the secrets of
a file's settings before anything else can print them.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from importlib import import_module
from typing import Any

from airflow_provider_lakecommit.cli.from_airflow import add_airflow, load, load_set_file
from airflow_provider_lakecommit.cli.terminal.output import Output, results_only
from airflow_provider_lakecommit.core import parse_budget
from airflow_provider_lakecommit.landing import EXAMPLES, LandingSpec, duration_of

Run = Callable[..., int]


class Effect(Enum):
    """The effect of a command on its surroundings."""

    READS = "reads"
    ACTS = "acts"
    """At once; with ``--dry-run`` it shows what it would do."""
    GIVES_UP = "gives up"
    """Deletes, skips or goes backwards: with ``--yes``, otherwise it shows what it would do."""
    BY_OPTION = "by option"
    """Acts; with :attr:`Command.yes_with` gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    :param description: its line of help, an imperative of at most ten words
    :param examples: command lines without the program's name
    :param run: runs it; returns the exit code
    :param arguments: adds its own to the parser
    :param spec: whether it takes a spec: required, optional or none
    :param runs_spark: whether it needs an engine
    :param effect: its effect on its surroundings
    :param yes_with: the options with which a command :attr:`Effect.BY_OPTION` needs ``--yes``
    :param reason: whether it records why
    """

    description: str
    examples: tuple[str, ...]
    run: Run
    arguments: Callable[[ArgumentParser], None] = lambda _: None
    spec: str = "required"
    runs_spark: bool = False
    effect: Effect = Effect.READS
    yes_with: tuple[str, ...] = ()
    reason: bool = False

    def add_to(self, parser: ArgumentParser) -> None:
        parser.set_defaults(run=self.run, usage_error=parser.error, needs_landing=self.spec == "required")
        add = parser.add_argument
        if self.spec != "none":
            add("spec", metavar="SPEC", nargs="?", help="YAML file: the landing's keys, kafka, catalog, spark")
        self.arguments(parser)
        if self.effect in (Effect.ACTS, Effect.BY_OPTION):
            add("--dry-run", action="store_true", help="show what would happen; write nothing")
        if self.effect in (Effect.GIVES_UP, Effect.BY_OPTION):
            does = f"do {' or '.join(self.yes_with) or 'it'}"
            add("--yes", action="store_true", help=f"{does}; without this, only show it")
        if self.reason:
            add("--reason", default="", metavar="TEXT", help="record why in the tables' history")
        add("--json", action="store_true", help="print results and errors as JSON on standard output")
        add("--verbose", action="store_true", help="log more on standard error")
        if self.spec == "required":
            add_airflow(parser, spark=self.runs_spark)


def on_spec(function: str, *, of_set: str = "", results: bool = False) -> Run:
    """Return a runner that loads the landing of a command and passes it on with options and output.

    :param function: ``module:name`` within the command line
    :param of_set: the function for a landing set, if the command takes one
    :param results: keep standard output for results, also from Java and its children
    """

    def run(options: Namespace, output: Output) -> int:
        declared = load_set_file(options, output) if of_set else None
        chosen, spec = (function, load(options, output)) if declared is None else (of_set, declared)
        with results_only(output) if results else nullcontext():
            return calling(chosen)(spec, options, output)

    return run


def on_session(function: str) -> Run:
    """Return a runner that connects the landing of a command and passes the session on with options and output."""

    def run(options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cycle import LandingSession

        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            return calling(function)(session, options, output)

    return run


def calling(function: str) -> Run:
    """Return a function ``module:name`` of the command line, imported when it is called."""

    def run(*arguments: Any) -> int:
        module, _, name = function.partition(":")
        return int(getattr(import_module(f"airflow_provider_lakecommit.cli.{module}"), name)(*arguments))

    return run


def add_every(parser: ArgumentParser) -> None:
    """Add the option of commands that check how long the source keeps its records."""
    parser.add_argument("--every", type=duration, metavar="TIME", help="how often the landing runs: 30s, 5m, 2h or 1d")


def add_ranges(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--range", action="append", metavar="TOPIC:PARTITION=FROM-TO", help="take only these offsets; repeatable"
    )


def add_selection_times(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--since", metavar="TIME", help="start at this time, e.g. 2026-03-01T12:00Z (default: the earliest)")
    add("--until", metavar="TIME", help="end before this time (default: no end)")


def add_brokers(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--bootstrap", metavar="HOST:PORT", help="connect to these brokers, instead of a spec's")
    add("--kafka-config", metavar="FILE", help="read librdkafka settings from this YAML mapping")


def add_connect(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--connector", required=True, metavar="NAME", help="name the sink connector")
    add("--control-topic", metavar="TOPIC", help="its control topic (default control-iceberg)")
    add("--group", metavar="GROUP_ID", help="its group in control events (default connect-NAME)")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--connect", metavar="URL|FILE", help="reach Kafka Connect: a worker's URL, or YAML with logins")
    add("--connector-is-gone", action="store_true", help="state that connector and Kafka Connect no longer exist")
    add("--kafka-connect-conn-id", metavar="ID", help="reach Kafka Connect by this Airflow connection")


def source(
    options: Namespace, output: Output, topic: str | None, spec: LandingSpec | None = None
) -> tuple[dict[str, Any], str]:
    """Return brokers and control topic, if no spec is needed to name them."""
    from airflow_provider_lakecommit.cli.control_log import source_of
    from airflow_provider_lakecommit.cli.from_airflow import section_connection

    connection = section_connection("kafka", options, output)
    kafka, found = source_of(
        spec, bootstrap=options.bootstrap, topic=topic, config_file=options.kafka_config, connection=connection
    )
    output.keep(kafka)
    return kafka, found


def duration(text: str) -> timedelta:
    found = duration_of(text)
    if not isinstance(found, timedelta) or found <= timedelta(0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration, e.g. {EXAMPLES}")
    return found


def positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def factor(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def moment(text: str) -> float:
    """Return seconds of the epoch from ISO text; UTC by default."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, e.g. 2026-03-01T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def budget(text: str) -> str:
    """Check dead letters and their ratio, for example 500:0.2."""
    try:
        parse_budget(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None
    return text
