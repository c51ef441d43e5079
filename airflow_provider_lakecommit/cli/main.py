# SPDX-License-Identifier: Apache-2.0
"""The command line's entry point: its parser, and the exit code of a command.

0 done; 1 refused or failed, with the reason; 2 bad usage or spec; 3 not confirmed; 128 + n if signal n ended it.
Nothing is imported for a command before it runs, so help and mistakes are answered at once. Only unforeseen errors end
in a traceback, free of the spec's secrets.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_provider_lakecommit import __version__
from airflow_provider_lakecommit.cli import everyday, ranges, upkeep
from airflow_provider_lakecommit.cli.arguments import Command
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output, start_logging
from airflow_provider_lakecommit.core import PROGRAM, spoken
from airflow_provider_lakecommit.core import commands as spelled
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.landing import meant

HEADINGS: Mapping[str, Mapping[str, Command]] = {
    "everyday": {
        spelled.LAND: everyday.LAND,
        spelled.PLAN: everyday.PLAN,
        spelled.STATUS: everyday.STATUS,
        spelled.VERIFY: everyday.VERIFY,
        spelled.HISTORY: everyday.HISTORY,
        spelled.DOCTOR: everyday.DOCTOR,
        spelled.INFER_SCHEMA: everyday.INFER_SCHEMA,
    },
    "ranges": {spelled.BACKFILL: ranges.BACKFILL, spelled.DEAD_LETTERS: ranges.DEAD_LETTERS, **ranges.RESET},
    "control": {spelled.PAUSE: upkeep.PAUSE, spelled.RESUME: upkeep.RESUME, spelled.PUBLISH_NOW: upkeep.PUBLISH_NOW},
    "Kafka Connect": {
        spelled.CONNECT_RESCUE: upkeep.RESCUE,
        spelled.CONNECT_ADOPT: upkeep.ADOPT,
        spelled.CONNECT_WATCH: upkeep.WATCH,
    },
    "upkeep": {spelled.MAINTAIN: upkeep.MAINTAIN},
}
COMMANDS: Mapping[str, Command] = {spoken(name): c for some in HEADINGS.values() for name, c in some.items()}
"""All commands, by the words after the program's name."""
GROUPS: Mapping[str, str] = {
    "reset": "change where a landing continues, or unblock it",
    "connect": "work with Kafka Connect sinks",
}
"""Help of groups of actions."""
_EPILOG = """\
examples:
  lakecommit infer-schema orders --bootstrap localhost:9092 > orders.yaml
  lakecommit land orders.yaml
  lakecommit status --dag land_orders

Commands that delete, skip or go backwards only show what would happen; with --yes they do it. All other commands that
write act at once; with --dry-run they only show it. Output is text; --json makes it JSON.

Exit codes: 0 done, 1 refused or failed with a reason, 2 bad usage or spec, 3 needs --yes; of `status` also 4 blocked,
5 stalled, 6 behind. Add --help to a command to see its options and examples.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:
        # The library that answers a shell's completion request is optional.
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    options = parser.parse_args(arguments)
    if (mistake := _mistake(options)) is not None:
        options.usage_error(mistake)
    output = Output(as_json=options.json, landing=getattr(options, "landing", None) or "")
    start_logging(output, verbose=options.verbose)
    try:
        return int(options.run(options, output))
    except SpecError as e:
        output.error(e)
        return Exit.USAGE
    except LakecommitError as e:
        output.error(e)
        return Exit.REFUSED
    except KeyboardInterrupt as e:
        return int(getattr(e, "code", 130))
    except BrokenPipeError:
        # The reader of our results has closed the pipe, also for the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.REFUSED
    except ModuleNotFoundError as e:
        if (e.name or "").startswith("airflow_provider_lakecommit"):
            return _unforeseen(e, output)
        # Left out on purpose if only guards are installed.
        output.error(ModuleNotFoundError(f"{e}: this command needs it, but it is not installed here"))
        return Exit.REFUSED
    except Exception as e:
        return _unforeseen(e, output)


def _unforeseen(error: Exception, output: Output) -> int:
    output.log("".join(traceback.format_exception(error)))
    output.error(error)
    return Exit.REFUSED


class _Parser(argparse.ArgumentParser):
    """Without arguments, prints the help instead of an error; for a mistyped option, the usage of that command."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        if self._subparsers is not None and "_ARGCOMPLETE" not in os.environ:
            # A completion request may not have the first word yet.
            if not given:
                self.print_help(sys.stderr)
                self.exit(Exit.USAGE)
            self._check_command(given)
        found, left = super().parse_known_args(given, namespace)
        if left and self._subparsers is None:
            near = meant(left[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(left)}{near}")
        return found, left

    def _check_command(self, given: list[str]) -> None:
        if given[0].startswith("-"):
            return
        before = spoken(self.prog).split() if self.prog != PROGRAM else []
        arguments = [*before, *(argument for argument in given if not argument.startswith("-"))]
        name = arguments[: len(before) + 1]
        if name not in [each.split()[: len(name)] for each in COMMANDS]:
            self.error(f"unknown command {' '.join(name)!r}{_nearest(name)}")


def _nearest(name: Sequence[str]) -> str:
    if near := meant(" ".join(name), [*COMMANDS, *GROUPS]):
        return near
    actions = {each.split()[-1]: each for each in COMMANDS}
    near = meant(name[-1], actions)
    for argument, each in actions.items():
        near = near.replace(repr(argument), repr(each))
    return near


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description=f"Land Kafka topics in Iceberg tables in batch windows, exactly once.\n\n{_listed()}",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, prog=PROGRAM, help=argparse.SUPPRESS)
    groups: dict[str, Any] = {}
    for name, command in COMMANDS.items():
        first, _, action = name.partition(" ")
        if action and first not in groups:
            group = commands.add_parser(first, description=_sentence(GROUPS[first]))
            groups[first] = group.add_subparsers(metavar="ACTION", required=True)
        one = (groups[first] if action else commands).add_parser(
            action or first,
            help=command.description,
            description=_sentence(command.description),
            epilog="\n".join(["examples:", *(f"  {PROGRAM} {line}" for line in command.examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_to(one)
    return parser


def _listed() -> str:
    width = max(map(len, COMMANDS))
    lines = []
    for heading, commands in HEADINGS.items():
        lines += [f"{heading}:", *(f"  {spoken(name):<{width}}  {c.description}" for name, c in commands.items()), ""]
    return "\n".join(lines).rstrip()


def _mistake(options: argparse.Namespace) -> str | None:
    """Return what is wrong with the arguments as a whole: a landing comes from a spec or from a DAG."""
    spec, dag = getattr(options, "spec", None), getattr(options, "dag", None)
    if spec and dag:
        return "give either SPEC or --dag"
    if not dag and (getattr(options, "task_group", None) or (getattr(options, "landing", None) and not spec)):
        return "--task-group and --landing choose among the landings of --dag DAG, --landing also of a set's SPEC"
    if not spec and not dag and getattr(options, "needs_landing", False):
        return "give SPEC, or --dag DAG of an Airflow deployment"
    if not dag and getattr(options, "source", "") is None:
        return "give a topic, SPEC, or --dag DAG of an Airflow deployment"
    return None


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    sys.exit(main())
