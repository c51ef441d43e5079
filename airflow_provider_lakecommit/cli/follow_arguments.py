# SPDX-License-Identifier: Apache-2.0
"""The options of `land` for continuous mode."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from datetime import timedelta
from typing import Any

from airflow_provider_lakecommit.cli.arguments import duration
from airflow_provider_lakecommit.cycle import FollowOptions

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
    """Return the requested options; ``None``: end when caught up."""
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
