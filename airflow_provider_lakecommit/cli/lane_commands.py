# SPDX-License-Identifier: Apache-2.0
"""The commands that land a range beside the live stream, and those about such lanes.

Contract: as in :mod:`~airflow_provider_lakecommit.cli.commands`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace

from airflow_provider_lakecommit.cli.arguments import Command, add_confirmation, positive
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.terminal.output import Output, results_only

__all__ = ["BackfillCommand", "LanesCloseCommand", "LanesListCommand"]


class BackfillCommand(Command):
    says = "land a range of the topics beside the live stream: a time, or offsets"
    runs_spark = True
    examples = (
        "backfill orders.yaml --since 2026-11-01 --until 2026-11-02 --dry-run",
        "backfill orders.yaml --range orders:0=1500-2000",
        "backfill --dag land_orders --until 2026-11-01T06:00",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--since", metavar="TIME", help="the first record at or after that, by timestamp (default: the earliest)")
        add("--until", metavar="TIME", help="up to the first record at or after that (default: the live stream)")
        add("--range", action="append", metavar="TOPIC:PARTITION=FROM-TO", help="these offsets (may be repeated)")
        add("--lane", metavar="NAME", help="the lane's name (default: made of the range)")
        add("--dry-run", action="store_true", help="say what would be read; nothing is written")
        add("--cycles", type=positive, metavar="N", help="at most N cycles (default: until all of it is landed)")
        add("--max-records", type=positive, metavar="N", help="most records per window (default: the landing's)")
        add("--groups", type=positive, metavar="N", help="partition groups per window (default: the landing's)")

    def run(self, options: Namespace, output: Output) -> int:
        from airflow_provider_lakecommit.lanes.asked import lane_asked
        from airflow_provider_lakecommit.repair.stated import parse_ranges

        ranges = parse_ranges(options.range or ())
        asked = lane_asked(since=options.since, until=options.until, ranges=ranges, name=options.lane)
        spec = load(options, output)
        own = {k: v for k in ("max_records", "groups") if (v := getattr(options, k)) is not None}
        spec = replace(spec, landing=replace(spec.landing, **own))
        from airflow_provider_lakecommit.cli.lanes import backfill

        with results_only(output):
            return backfill(spec, output, asked, dry=options.dry_run, cycles=options.cycles)


class LanesListCommand(Command):
    says = "the lanes that are open, and what they lack"
    examples = ("lanes list orders.yaml", "lanes list --dag land_orders --json")

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.lanes import list_lanes

        return list_lanes(spec, output)


class LanesCloseCommand(Command):
    says = "close a lane, and give up what it has not landed"
    examples = ('lanes close orders.yaml --lane past --reason "the day is not needed"',)

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--lane", required=True, metavar="NAME", help="which one")
        add_confirmation(parser)

    def run(self, options: Namespace, output: Output) -> int:
        spec = load(options, output)
        from airflow_provider_lakecommit.cli.lanes import close

        return close(spec, output, lane=options.lane, yes=options.yes, reason=options.reason)
