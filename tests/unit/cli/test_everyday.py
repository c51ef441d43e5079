# SPDX-License-Identifier: Apache-2.0
"""What `land --follow` and its options come to."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta

import pytest

from airflow_provider_lakecommit.cli.arguments import positive
from airflow_provider_lakecommit.cli.everyday import add_follow, follow_of
from airflow_provider_lakecommit.cycle.run.next_window import FollowOptions


def options_of(*arguments: str) -> FollowOptions | None:
    parser = ArgumentParser()
    parser.add_argument("--cycles", type=positive)
    add_follow(parser)
    parser.set_defaults(usage_error=parser.error)
    return follow_of(parser.parse_args(arguments))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", None),
        ("--cycles 3", None),
        ("--follow", FollowOptions()),
        ("--follow-for 10m", FollowOptions(lifetime=timedelta(minutes=10))),
        (
            "--follow --window-age 5s --keep-snapshots 2h --log-interval 10s",
            FollowOptions(
                window_age=timedelta(seconds=5), keep_snapshots=timedelta(hours=2), interval=timedelta(seconds=10)
            ),
        ),
        ("--follow --keep-snapshots all", FollowOptions(keep_snapshots=None)),
    ],
)
def test_options_are_what_they_state(arguments: str, expected: FollowOptions | None) -> None:
    assert options_of(*arguments.split()) == expected


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--window-age 5s", "--window-age needs --follow"),
        ("--keep-snapshots all", "--keep-snapshots needs --follow"),
        ("--follow --cycles 3", "--cycles and --follow exclude each other"),
        ("--follow --window-age 0s", "'0s' is not a duration"),
    ],
)
def test_what_does_not_go_together_is_bad_usage(arguments: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options_of(*arguments.split())
    assert text in capsys.readouterr().err
