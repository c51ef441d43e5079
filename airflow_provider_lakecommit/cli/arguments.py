# SPDX-License-Identifier: Apache-2.0
"""The arguments of commands that have many of them, and what their texts are turned into.

Contract: a text that is not what its argument needs is argparse's error, with an example of what is. Nothing is
imported for a command.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from airflow_provider_lakecommit.connector.sink import CONTROL_TOPIC

__all__ = [
    "budget",
    "control_log_arguments",
    "duration",
    "every_argument",
    "factor",
    "moment",
    "positive",
    "rescue_arguments",
    "stall_arguments",
    "unblock_arguments",
]


def control_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `control-log`."""
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers, in place of a spec")
    parser.add_argument("--topic", help="control topic (default: the one of the spec)")
    parser.add_argument("--group", metavar="GROUP_ID", help="only records of this control group")
    parser.add_argument(
        "--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings, for brokers that want a login"
    )


def stall_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `stall`."""
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers (or bootstrap.servers by the next two)")
    parser.add_argument("--kafka-config", "--config", metavar="FILE", help="YAML mapping of librdkafka settings")
    parser.add_argument("-X", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="one of them")
    parser.add_argument("--control-topic", metavar="TOPIC", help="default: that of landings")
    parser.add_argument(
        "--group", metavar="GROUP_ID", help="connect-NAME of a connector, lakecommit-NAME of a landing (default: all)"
    )
    parser.add_argument("--follow", action="store_true", help="go on at the end of the topic")
    parser.add_argument(
        "--clock", choices=["event", "wall"], default="wall", help="whose time: the events' own, or what it is now"
    )
    parser.add_argument("--until", type=moment, metavar="ISO", help="up to that time, and what is to be said then")
    parser.add_argument("--stalled-cycles", type=positive, default=3, metavar="N", help="cycles in a row (default 3)")
    parser.add_argument(
        "--silent-intervals", type=factor, default=3.0, metavar="X", help="silence that means dead (default 3)"
    )
    parser.add_argument(
        "--interval", type=duration, metavar="TIME", help="a connector's commit interval (default: learned)"
    )
    parser.add_argument(
        "--unanswered-cycles", type=positive, default=3, metavar="N", help="that a partition may miss (default 3)"
    )
    parser.add_argument(
        "--completion-timeout",
        type=duration,
        default=timedelta(hours=1),
        metavar="TIME",
        help="a landing's (default 1h)",
    )
    parser.add_argument("--only-cycles", action="store_true", help="nothing but the rule of cycles in a row")


def rescue_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `rescue`."""
    parser.add_argument("--connector", required=True, metavar="NAME", help="of the sink")
    parser.add_argument("--catalog", required=True, metavar="FILE", help="YAML mapping of pyiceberg's properties")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="brokers (or bootstrap.servers by the next)")
    parser.add_argument("--kafka-config", metavar="FILE", help="YAML mapping of librdkafka settings")
    parser.add_argument("--control-topic", default=CONTROL_TOPIC, metavar="TOPIC", help=f"default {CONTROL_TOPIC}")
    parser.add_argument("--group", metavar="GROUP_ID", help="in its events (default: connect-NAME)")
    parser.add_argument("--table", action="append", metavar="TABLE", help="only this table (may be repeated)")
    parser.add_argument("--branch", default="main", help="of the tables (default main)")
    parser.add_argument("--commit", action="store_true", help="commit what waits; without, it is only shown")
    stopped = parser.add_mutually_exclusive_group()
    stopped.add_argument(
        "--connect", metavar="URL", help="Kafka Connect, which must say that it is stopped or not there"
    )
    stopped.add_argument("--connector-is-gone", action="store_true", help="your word for it, where Connect is gone too")


def unblock_arguments(parser: argparse.ArgumentParser) -> None:
    """Of `unblock`."""
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--raise",
        dest="raise_to",
        type=budget,
        metavar="N[:RATIO]",
        help="read them again with up to N dead letters, at most RATIO of the records (default 1)",
    )
    how.add_argument("--skip", action="store_true", help="go on without them; recorded as skipped")
    parser.add_argument(
        "--partition", action="append", metavar="TOPIC:PARTITION", help="only of this partition (may be repeated)"
    )


def every_argument(parser: argparse.ArgumentParser) -> None:
    """Of commands that ask how long the source keeps its records."""
    parser.add_argument(
        "--every", type=duration, metavar="TIME", help="how often the landing runs, as in 30s, 5m, 2h or 1d"
    )


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    """A time, as in 5m."""
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in _UNITS or int(number) < 1 or len(number) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, as in 30s, 5m, 2h or 1d")
    return timedelta(**{_UNITS[unit]: int(number)})


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


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
    records, _, ratio = text.partition(":")
    try:
        told = int(records), float(ratio or 1)
    except ValueError:
        told = (-1, 0.0)
    if told[0] < 0 or not 0 <= told[1] <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not N or N:RATIO, as in 500 or 500:0.2")
    return told
