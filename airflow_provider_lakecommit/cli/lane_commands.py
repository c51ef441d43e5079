# SPDX-License-Identifier: Apache-2.0
"""The commands that land a range beside the live stream, and those about such lanes.

Contract: as in :mod:`~airflow_provider_lakecommit.cli.commands`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_lakecommit.cli.arguments import Command, add_confirmation, duration, positive
from airflow_provider_lakecommit.cli.from_airflow import load
from airflow_provider_lakecommit.terminal.output import Output, results_only

if TYPE_CHECKING:
    from airflow_provider_lakecommit.landing import LandingSpec
    from airflow_provider_lakecommit.lanes.asked import LaneAsked

__all__ = ["BackfillCommand", "LanesCloseCommand", "LanesListCommand", "ReplayCommand"]


class BackfillCommand(Command):
    says = "land a range of the topics beside the live stream: a time, or offsets"
    runs_spark = True
    examples = (
        "backfill orders.yaml --since 2026-11-01 --until 2026-11-02 --dry-run",
        "backfill orders.yaml --range orders:0=1500-2000",
        "backfill --dag land_orders --until 2026-11-01T06:00 --yield-to-live 30s",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        _add_range(parser)

    def run(self, options: Namespace, output: Output) -> int:
        asked = _asked(options, replaces=False)
        spec = _spec(options, output)
        from airflow_provider_lakecommit.cli.lanes import backfill

        with results_only(output):
            return backfill(
                spec,
                output,
                asked,
                dry=options.dry_run,
                cycles=options.cycles,
                yield_to_live=options.yield_to_live,
            )


class ReplayCommand(Command):
    says = "land a range again that the table has: its rows are replaced at once, when all of it is read"
    runs_spark = True
    examples = (
        "replay orders.yaml --since 2026-11-01 --until 2026-11-02 --dry-run",
        'replay orders.yaml --range orders:0=1500-2000 --reason "prices were cents"',
        "replay --dag land_orders --since 2026-11-01T06:00 --until 2026-11-01T07:00 --yes",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        _add_range(parser)
        parser.add_argument("--fewer", action="store_true", help="others have deleted rows of it: those come back")
        add_confirmation(parser)

    def run(self, options: Namespace, output: Output) -> int:
        asked = _asked(options, replaces=True)
        spec = _spec(options, output)
        from airflow_provider_lakecommit.cli.replay import Replay

        with results_only(output):
            replay = Replay(
                spec=spec,
                output=output,
                asked=asked,
                fewer=options.fewer,
                yes=options.yes,
                reason=options.reason,
                yield_to_live=options.yield_to_live,
            )
            return replay.dry_run() if options.dry_run else replay.run(options.cycles)


def _add_range(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--since", metavar="TIME", help="the first record at or after that, by timestamp (default: the earliest)")
    add("--until", metavar="TIME", help="up to the first record at or after that (default: the live stream)")
    add("--range", action="append", metavar="TOPIC:PARTITION=FROM-TO", help="these offsets (may be repeated)")
    add("--lane", metavar="NAME", help="the lane's name (default: made of the range)")
    add("--dry-run", action="store_true", help="say what would be read; nothing is written")
    add("--cycles", type=positive, metavar="N", help="at most N cycles (default: until all of it is landed)")
    add("--max-records", type=positive, metavar="N", help="most records per window (default: the landing's)")
    live = "open no window while the live stream has records older than that and not in the table, as in 30s"
    add("--yield-to-live", type=duration, metavar="AGE", help=live)
    add("--groups", type=positive, metavar="N", help="partition groups per window (default: the landing's)")


def _asked(options: Namespace, *, replaces: bool) -> LaneAsked:
    from airflow_provider_lakecommit.lanes.asked import lane_asked
    from airflow_provider_lakecommit.repair.stated import parse_ranges

    ranges = parse_ranges(options.range or ())
    return lane_asked(since=options.since, until=options.until, ranges=ranges, name=options.lane, replaces=replaces)


def _spec(options: Namespace, output: Output) -> LandingSpec:
    spec = load(options, output)
    own = {k: v for k in ("max_records", "groups") if (v := getattr(options, k)) is not None}
    return replace(spec, landing=replace(spec.landing, **own))


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
