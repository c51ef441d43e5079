# SPDX-License-Identifier: Apache-2.0
"""Commands that control a landing, work with Kafka Connect or keep tables small."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta

from airflow_provider_lakecommit.cli.arguments import (
    Command,
    Effect,
    add_brokers,
    add_connect,
    calling,
    duration,
    moment,
    natural,
    on_session,
    on_spec,
    positive,
)
from airflow_provider_lakecommit.cli.from_airflow import add_airflow


def _add_wait(parser: ArgumentParser) -> None:
    wait = "wait for the runs to publish (default 1m)"
    parser.add_argument("--wait", type=duration, default=timedelta(minutes=1), metavar="TIME", help=wait)


def _pause_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--drain", action="store_true", help="publish open windows at the current record too")
    _add_wait(parser)


PAUSE = Command(
    description="stop planning new windows; finished ones are still published",
    examples=(
        'pause orders.yaml --reason "the table is restored"',
        'pause --dag land_orders --drain --wait 5m --reason "the cluster moves"',
    ),
    arguments=_pause_arguments,
    run=on_session("control:pause"),
    effect=Effect.ACTS,
    reason=True,
)
RESUME = Command(
    description="plan windows again",
    examples=("resume orders.yaml", 'resume --dag land_orders --reason "restored"'),
    run=on_session("control:resume"),
    effect=Effect.ACTS,
    reason=True,
)
PUBLISH_NOW = Command(
    description="stop open windows at the current record and publish them",
    examples=("publish-now orders.yaml", 'publish-now --dag land_orders --wait 5m --reason "the month ends"'),
    arguments=_add_wait,
    run=on_session("control:publish"),
    effect=Effect.ACTS,
    reason=True,
)


def _rescue_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--catalog", metavar="FILE", help="read pyiceberg's catalog properties from this YAML mapping")
    add("--table", action="append", metavar="TABLE", help="take only this table; repeatable")
    add("--branch", default="main", help="commit to this branch (default main)")
    add_connect(parser)
    add_brokers(parser)
    add_airflow(parser, dag=False)


RESCUE = Command(
    description="commit files that a stopped sink announced but never committed",
    examples=(
        "connect rescue --connector orders --catalog catalog.yaml --bootstrap localhost:9092 --dry-run",
        "connect rescue --connector orders --kafka-conn-id kafka_default --iceberg-conn-id iceberg_default "
        "--connector-is-gone",
    ),
    arguments=_rescue_arguments,
    run=calling("adopt:rescue"),
    spec="none",
    effect=Effect.ACTS,
    reason=True,
)


def _adopt_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--back", action="store_true", help="hand the table back to the sink")
    by = "trust these where consumer group and events differ"
    add("--by", choices=["offsets", "announced"], help=by)
    add("--doubled-stay", action="store_true", help="keep duplicates that landing and sink have landed")
    add("--wait", type=positive, default=300, metavar="SECONDS", help="wait for it to stop (default 300)")
    add_connect(parser)


ADOPT = Command(
    description="take over a stopped sink's table, or hand it back",
    examples=(
        "connect adopt orders.yaml --connector orders-sink --connect http://localhost:8083",
        "connect adopt orders.yaml --connector orders-sink --connect http://localhost:8083 --yes",
        "connect adopt orders.yaml --connector orders-sink --connect http://localhost:8083 --back --yes",
        "connect adopt --dag land_orders --connector orders-sink --kafka-connect-conn-id kafka_connect_default",
    ),
    arguments=_adopt_arguments,
    run=calling("adopt:adopt"),
    effect=Effect.GIVES_UP,
    reason=True,
)


def _watch_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_brokers(parser)
    add("--control-topic", metavar="TOPIC", help="read this control topic (default: the landing's)")
    add("--group", metavar="GROUP_ID", help="evaluate only this group, e.g. connect-NAME or lakecommit-NAME")
    add("--follow", action="store_true", help="continue at the end of the topic")
    add("--clock", choices=["event", "wall"], default="wall", help="take time from events or records")
    add("--until", type=moment, metavar="TIME", help="evaluate as of this time")
    rules = "set a threshold, e.g. stalled-cycles=5; repeatable; wrong names list all"
    add("--rule", action="append", default=[], metavar="NAME=VALUE", help=rules)
    add_airflow(parser, iceberg=False)


WATCH = Command(
    description="show whether commits get through, event by event",
    examples=(
        "connect watch orders.yaml --follow",
        "connect watch --bootstrap localhost:9092 --control-topic control-iceberg --group connect-orders",
        "connect watch --dag land_orders --rule stalled-cycles=5 --rule interval=10m",
    ),
    arguments=_watch_arguments,
    run=calling("watch:watch"),
    spec="optional",
)


def _maintain_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    parts = ["compact", "expire", "sweep", "ledger", "columns", "widen"]
    only = "do only this (default: compact, expire, sweep); repeatable"
    add("--only", action="append", choices=parts, help=only)
    add("--older-than", type=duration, metavar="TIME", help="keep what is younger (files 3d, snapshots 7d)")
    add("--keep", type=natural, default=1, metavar="N", help="keep the N newest snapshots (default 1)")
    add("--time", type=duration, metavar="TIME", help="begin no compaction after this time")
    add("--limit", type=positive, metavar="GB", help="compact at most so many GB per table")


MAINTAIN = Command(
    description="compact small files, expire snapshots, remove unneeded files",
    examples=(
        "maintain orders.yaml",
        "maintain orders.yaml --yes",
        "maintain --dag land_orders --only expire --older-than 30d --keep 100 --yes",
        "maintain orders.yaml --only ledger",
        'maintain orders.yaml --only widen --yes --reason "ids outgrew their int"',
    ),
    arguments=_maintain_arguments,
    run=on_spec("maintain:maintain"),
    effect=Effect.GIVES_UP,
    reason=True,
)
