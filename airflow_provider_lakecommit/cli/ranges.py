# SPDX-License-Identifier: Apache-2.0
"""Commands about ranges of offsets."""

from __future__ import annotations

from argparse import ArgumentParser

from airflow_provider_lakecommit.cli.arguments import (
    Command,
    Effect,
    add_ranges,
    add_selection_times,
    budget,
    duration,
    on_session,
    on_spec,
    positive,
)
from airflow_provider_lakecommit.core import RESET_ASSERT, RESET_BLOCKED, RESET_HARD, RESET_KEY, RESET_OFFSETS, spoken
from airflow_provider_lakecommit.core import RESET_MIGRATE as MIGRATE

_POSITIONS = "earliest|latest|TIME|TOPIC:PARTITION=OFFSET,…"


def _backfill_arguments(parser: ArgumentParser) -> None:
    add_selection_times(parser)
    add_ranges(parser)
    add = parser.add_argument
    add("--name", dest="lane", metavar="NAME", help="name the backfill (default: made of the range)")
    add("--cycles", type=positive, metavar="N", help="stop after N cycles (default: when complete)")
    add("--max-records", type=positive, metavar="N", help="limit records per window (default: the landing's)")
    add("--yield-to-live", type=duration, metavar="AGE", help="wait while the live stream lags by more")
    add("--fewer", action="store_true", help="accept that other writers deleted some rows")
    how = parser.add_mutually_exclusive_group().add_argument
    how("--replace", action="store_true", help="replace the range's rows, once all is read")
    how("--list", action="store_true", help="list open backfills and what they lack")
    how("--close", metavar="NAME", help="close a backfill; give up what it lacks")


BACKFILL = Command(
    description="land or replace a range alongside the live stream",
    examples=(
        "backfill orders.yaml --since 2026-11-01 --until 2026-11-02 --dry-run",
        "backfill orders.yaml --range orders:0=1500-2000",
        'backfill orders.yaml --range orders:0=1500-2000 --replace --yes --reason "prices were cents"',
        "backfill --dag land_orders --until 2026-11-01T06:00 --yield-to-live 30s",
        "backfill orders.yaml --list",
        'backfill orders.yaml --close past --yes --reason "the day is not needed"',
    ),
    arguments=_backfill_arguments,
    run=on_spec("backfill:backfill", results=True),
    runs_spark=True,
    effect=Effect.BY_OPTION,
    yes_with=("--replace", "--close"),
    reason=True,
)


def _dead_letters_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    kind = "take only this kind, e.g. wrong_value:id; repeatable"
    add("--kind", action="append", default=[], metavar="KIND[:COLUMN]", help=kind)
    add_ranges(parser)
    add_selection_times(parser)
    add("--limit", type=positive, metavar="N", help="take at most N (default with --values: 10)")
    add("--table", metavar="NAME", help="read a former dead-letter table of the landing")
    how = parser.add_mutually_exclusive_group().add_argument
    how("--values", action="store_true", help="show open dead letters with their values")
    how("--replay", action="store_true", help="make rows of open dead letters, after a fix")


DEAD_LETTERS = Command(
    description="count, show or replay rejected records",
    examples=(
        "dead-letters orders.yaml",
        "dead-letters orders.yaml --values --kind wrong_value:id --limit 3",
        'dead-letters orders.yaml --replay --kind wrong_value:id --reason "id may be text"',
        "dead-letters --dag land_orders --replay --range orders:3=15-20 --dry-run",
    ),
    arguments=_dead_letters_arguments,
    run=on_session("dead_letters:dead_letters"),
    effect=Effect.ACTS,
    reason=True,
)


def _add_fewer(parser: ArgumentParser) -> None:
    parser.add_argument("--fewer", action="store_true", help="accept that other writers deleted some rows")


def _add_ledger(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--give-up-reported", action="store_true", help="give up reported records that the source has lost")
    others = "state whether the table has other landings' rows"
    add("--others", choices=["present", "missing"], help=others)


def _offsets_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="start", required=True, metavar=_POSITIONS, help="continue here; unnamed partitions stay")
    add("--partition", action="append", metavar="TOPIC:PARTITION", help="move only this partition; repeatable")
    add("--fill", metavar="LANE", help="leave skipped offsets to this backfill")
    back = parser.add_mutually_exclusive_group().add_argument
    back("--again", action="store_true", help="go back over landed offsets; rows are duplicated")
    back("--delete", action="store_true", help="go back over landed offsets; delete their rows")
    _add_fewer(parser)
    _add_ledger(parser)


def _assert_arguments(parser: ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group(required=True).add_argument
    how("--snapshot", type=positive, metavar="ID", help="assert the ledger of this snapshot")
    how("--from-log", action="store_true", help="assert what the control topic reports as published")
    how("--at", metavar="TOPIC:PARTITION=OFFSET,…", help="assert everything below these offsets; also JSON")
    only = "set only this table (default: those without a ledger)"
    parser.add_argument("--table", action="append", metavar="TABLE", help=only)
    _add_ledger(parser)


def _blocked_arguments(parser: ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group(required=True).add_argument
    again = "read again with up to N dead letters"
    how("--raise", dest="raise_to", type=budget, metavar="N[:RATIO]", help=again)
    how("--skip", action="store_true", help="skip bad records; good ones are landed")
    how("--retry", action="store_true", help="read again under the landing's own budget")
    how("--release", action="store_true", help="publish rows that `publish.checks` refuse")
    how("--drop", action="store_true", help="remove refused rows from their branch; read again")
    add = parser.add_argument
    add("--partition", action="append", metavar="TOPIC:PARTITION", help="take only this partition; repeatable")
    add_ranges(parser)
    add("--whole", action="store_true", help="with --skip: skip good records too")


def _migrate_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--from", dest="start", metavar=f"same|{_POSITIONS}", help="continue here; `same` if offsets were kept")
    add("--old", metavar="HOST:PORT", help="compare records with the old cluster's brokers")
    add("--kafka-config", metavar="FILE", help="read librdkafka settings for --old from YAML")
    renamed = "map a topic to its new name; repeatable"
    add("--topic", action="append", default=[], metavar="OLD=NEW", help=renamed)


RESET = {
    RESET_OFFSETS: Command(
        description="change where a landing continues",
        examples=(
            f'{spoken(RESET_OFFSETS)} orders.yaml --from latest --yes --reason "the old topic is done with"',
            f"{spoken(RESET_OFFSETS)} --dag land_orders --from orders:0=1500,orders:1=0",
            f"{spoken(RESET_OFFSETS)} orders.yaml --from latest --fill the-hole --yes",
        ),
        arguments=_offsets_arguments,
        run=on_session("reset:reset_offsets"),
        effect=Effect.GIVES_UP,
        reason=True,
    ),
    RESET_HARD: Command(
        description="delete all rows of a landing and start over",
        examples=(f"{spoken(RESET_HARD)} orders.yaml", f'{spoken(RESET_HARD)} orders.yaml --yes --reason "test data"'),
        arguments=_add_fewer,
        run=on_session("reset:reset_hard"),
        effect=Effect.GIVES_UP,
        reason=True,
    ),
    RESET_ASSERT: Command(
        description="assert what tables hold if their ledger is lost",
        examples=(
            f"{spoken(RESET_ASSERT)} orders.yaml --from-log",
            f'{spoken(RESET_ASSERT)} --dag land_orders --snapshot 8126360687799756521 --yes --reason "restored"',
        ),
        arguments=_assert_arguments,
        run=on_session("reset:reset_assert"),
        effect=Effect.GIVES_UP,
        reason=True,
    ),
    RESET_BLOCKED: Command(
        description="decide about blocked ranges and refused rows",
        examples=(
            f"{spoken(RESET_BLOCKED)} orders.yaml --raise 500:0.2 --yes",
            f"{spoken(RESET_BLOCKED)} orders.yaml --drop",
            f'{spoken(RESET_BLOCKED)} --dag land_orders --skip --partition orders:3 --yes --reason "test data"',
        ),
        arguments=_blocked_arguments,
        run=on_session("reset:reset_blocked"),
        effect=Effect.GIVES_UP,
        reason=True,
    ),
    MIGRATE: Command(
        description="continue on another Kafka cluster that has the topics",
        examples=(
            f"{spoken(MIGRATE)} orders.yaml --old old-broker:9092",
            f"{spoken(MIGRATE)} orders.yaml --from same --yes",
            f'{spoken(MIGRATE)} orders.yaml --from orders:0=1500,orders:1=0 --reason "moved to the new brokers"',
            f"{spoken(MIGRATE)} --dag land_orders --from 2026-03-01T12:00 --topic orders=east.orders",
        ),
        arguments=_migrate_arguments,
        run=on_session("reset:migrate"),
        effect=Effect.GIVES_UP,
        reason=True,
    ),
    RESET_KEY: Command(
        description="make the rows of a table unique by `upsert.key`",
        examples=(
            f"{spoken(RESET_KEY)} customers.yaml",
            f'{spoken(RESET_KEY)} customers.yaml --yes --reason "keep the newest rows only"',
        ),
        run=on_session("reset:reset_key"),
        effect=Effect.GIVES_UP,
        reason=True,
    ),
}
"""The commands that change where a landing continues, by their spelling."""
