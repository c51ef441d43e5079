# SPDX-License-Identifier: Apache-2.0
"""The command line as one: how many commands and options there are, and the rules that all of them keep."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from airflow_provider_lakecommit.cli.arguments import Effect
from airflow_provider_lakecommit.cli.main import COMMANDS, GROUPS, HEADINGS, _parser, main
from airflow_provider_lakecommit.cli.terminal.output import Exit
from airflow_provider_lakecommit.core import commands as spelled
from airflow_provider_lakecommit.core.commands import PROGRAM, spoken

MOST_COMMANDS = 22
MOST_OPTIONS = 90
MOST_WORDS = 10
EVERYDAY = ["land", "plan", "status", "verify", "history", "doctor", "infer-schema"]
CLI = Path(__file__).resolve().parents[3] / "airflow_provider_lakecommit" / "cli"


def leaves(parser: argparse.ArgumentParser, *words: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command that `lakecommit <words> --help` documents, with its parser."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield " ".join(words), parser
    for group in groups:
        for name, each in group.choices.items():
            yield from leaves(each, *words, name)


def options_of(parser: argparse.ArgumentParser) -> set[str]:
    return {option for option in parser._option_string_actions if option.startswith("--")}


LEAVES: Mapping[str, argparse.ArgumentParser] = dict(leaves(_parser()))
each_command = pytest.mark.parametrize("name", LEAVES)


def test_there_are_few_commands() -> None:
    assert len(LEAVES) <= MOST_COMMANDS
    assert LEAVES.keys() == COMMANDS.keys()


def test_there_are_few_options() -> None:
    assert len(set().union(*map(options_of, LEAVES.values()))) <= MOST_OPTIONS


def test_the_everyday_commands_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert [spoken(name) for name in next(iter(HEADINGS.values()))] == EVERYDAY
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{heading}:\n") for heading in HEADINGS]
    assert places == sorted(places)
    listed = [line.split("  ")[1] for line in shown.splitlines() if line.startswith("  ")]
    assert listed[: len(COMMANDS)] == [*COMMANDS]


@each_command
def test_help_is_short_and_an_imperative(name: str) -> None:
    helps = [COMMANDS[name].description, *(str(a.help) for a in LEAVES[name]._actions)]
    assert [text for text in helps if len(text.split()) > MOST_WORDS] == []
    for text in (COMMANDS[name].description, *GROUPS.values()):
        assert text[0].islower()
        assert not text.endswith(".")
        assert not text.split()[0].endswith(("ed", "ing"))


@each_command
def test_one_rule_for_previews(name: str) -> None:
    """What gives something up has `--yes`, other commands that write have `--dry-run`, those that read have neither."""
    command, found = COMMANDS[name], options_of(LEAVES[name]) & {"--yes", "--dry-run"}
    expected = {
        Effect.READS: set(),
        Effect.ACTS: {"--dry-run"},
        Effect.GIVES_UP: {"--yes"},
        Effect.BY_OPTION: {"--yes", "--dry-run"},
    }
    assert found == expected[command.effect]
    assert bool(command.yes_with) is (command.effect is Effect.BY_OPTION)
    assert {*command.yes_with} <= options_of(LEAVES[name])
    assert not ({"--commit", "--force", "--preview"} & options_of(LEAVES[name]))


def test_what_deletes_skips_or_goes_backwards_gives_up() -> None:
    gives_up = {name for name, command in COMMANDS.items() if command.effect is Effect.GIVES_UP}
    assert gives_up == {
        *(f"reset {way}" for way in ("offsets", "hard", "assert", "blocked", "migrate", "key")),
        "connect adopt",
        "maintain",
    }
    reads = {name for name, command in COMMANDS.items() if command.effect is Effect.READS}
    assert reads == {*EVERYDAY, "connect watch"} - {"land"}


@each_command
def test_one_rule_for_output(name: str) -> None:
    assert "--json" in options_of(LEAVES[name])
    assert LEAVES[name].get_default("json") is False


def test_nothing_but_the_output_requests_whether_there_is_a_terminal() -> None:
    """A result is the same on a terminal and in a pipe; only progress has colours and a line that lives."""
    asking = [str(p.relative_to(CLI)) for p in CLI.rglob("*.py") if "isatty" in p.read_text(encoding="utf-8")]
    assert asking == ["terminal/output.py"]
    text = (CLI / "terminal" / "output.py").read_text(encoding="utf-8")
    assert text.count("isatty") == text.count("_err.isatty") == 1


@each_command
def test_a_command_is_spelled_by_its_constant(name: str) -> None:
    constants = [v for k, v in vars(spelled).items() if k.isupper() and isinstance(v, str)]
    assert f"{PROGRAM} {name}" in constants
    assert all(line.startswith(f"{name} ") for line in COMMANDS[name].examples)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lnad orders.yaml", "'land'"),
        ("backfil", "'backfill'"),
        ("resett offsets", "'reset'"),
        ("reset ofsets", "'reset offsets'"),
        ("offsets", "'reset offsets'"),
        ("maintian", "'maintain'"),
    ],
)
def test_a_typo_is_answered_with_the_nearest_command(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    assert ended.value.code == Exit.USAGE
    assert f"did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.heavy
def test_help_of_a_command_is_fast_and_needs_nothing_of_it() -> None:
    program = (
        "import sys; sys.modules['pyiceberg'] = None; from airflow_provider_lakecommit.cli.main import main; main()"
    )
    for name in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-c", program, *name.split(), "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "examples:" in done.stdout
