# SPDX-License-Identifier: Apache-2.0
"""What a command is, and what the texts of its arguments are turned into.

Contract: a text that is not what its argument needs is argparse's error, with an example of what is; a file that is not
is a :class:`SpecError`. Nothing is imported for a command. The secrets of a file's settings are known to the output
before anything else can speak of them.
"""

from __future__ import annotations

import argparse
from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from airflow_provider_lakecommit.core.budgets import parse_budget
from airflow_provider_lakecommit.declared.times import EXAMPLES, duration_of
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.terminal.output import Output

__all__ = [
    "Command",
    "add_confirmation",
    "add_every",
    "add_others",
    "budget",
    "duration",
    "factor",
    "moment",
    "natural",
    "positive",
    "source",
    "spec_files",
]


class Command:
    """One command. ``says`` is its line of help, ``spec`` how many specs it takes: required, many, optional or none;
    ``runs_spark`` says whether it needs an engine. ``examples`` are command lines without the program's name.
    """

    says: str
    examples: tuple[str, ...]
    spec: ClassVar[str] = "required"
    runs_spark: ClassVar[bool] = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Beside the spec, `--json` and `--verbose`."""

    @abstractmethod
    def run(self, options: argparse.Namespace, output: Output) -> int:
        """Do it; the exit code."""


def add_every(parser: argparse.ArgumentParser) -> None:
    """Of commands that ask how long the source keeps its records."""
    parser.add_argument(
        "--every", type=duration, metavar="TIME", help="how often the landing runs, as in 30s, 5m, 2h or 1d"
    )


def add_confirmation(parser: argparse.ArgumentParser) -> None:
    """Of commands that may give something up."""
    parser.add_argument("--yes", action="store_true", help="do it, whatever it gives up")
    parser.add_argument("--reason", default="", metavar="TEXT", help="kept in the tables' history, with who and where")


def add_others(parser: argparse.ArgumentParser) -> None:
    """Of commands that set a ledger."""
    rows = "where a table's ledger is lost: whether rows of other landings are in it"
    parser.add_argument("--others", choices=["there", "gone"], help=rows)


def spec_files(given: Sequence[str]) -> list[str]:
    """Files as they are, and of a folder all that are YAML, by name."""
    found: list[str] = []
    for path in map(Path, given):
        inside = sorted(p for p in path.iterdir() if p.suffix in (".yaml", ".yml")) if path.is_dir() else [path]
        if not inside:
            raise SpecError(f"there is no spec (*.yaml, *.yml) in folder {path}")
        found += [str(p) for p in inside]
    return found


def source(
    options: argparse.Namespace, output: Output, topic: str | None, spec: LandingSpec | None = None
) -> tuple[dict[str, Any], str]:
    """Brokers and control topic, where a spec is not needed to name them."""
    from airflow_provider_lakecommit.cli.control_log import source_of
    from airflow_provider_lakecommit.cli.from_airflow import kafka_connection

    connection = kafka_connection(options, output)
    kafka, found = source_of(
        spec, bootstrap=options.bootstrap, topic=topic, config_file=options.kafka_config, connection=connection
    )
    output.keep(kafka)
    return kafka, found


def duration(text: str) -> timedelta:
    """A time, as in 5m."""
    found = duration_of(text)
    if not isinstance(found, timedelta) or found <= timedelta(0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, as in {EXAMPLES}")
    return found


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def natural(text: str) -> int:
    """A whole number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def factor(text: str) -> float:
    """A number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def moment(text: str) -> float:
    """Seconds of the epoch, from ISO text; UTC where it says none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, as in 2026-03-01T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def budget(text: str) -> tuple[int, float]:
    """Dead letters and their ratio, as in 500:0.2."""
    try:
        return parse_budget(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None
