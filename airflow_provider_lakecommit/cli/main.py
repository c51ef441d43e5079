# SPDX-License-Identifier: Apache-2.0
"""The command line's face: the parser of its commands, and how a command's end becomes an exit code.

Contract: 0 done; 1 refused or failed, with one line that says why; 2 bad usage or a bad spec; 3 nothing done, as
it would give something up and nobody agreed; 128 + n when signal n ended it. Nothing is imported for a command before
that command runs, so that help and mistakes are answered at once.
Only what nobody foresaw ends in a traceback, and a library that is not installed is not of that; like all text it is
free of the spec's secrets.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecommit import __version__
from airflow_provider_lakecommit.cli.arguments import Command
from airflow_provider_lakecommit.cli.commands import COMMANDS
from airflow_provider_lakecommit.cli.output import Exit, Output, start_logging
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    output = Output(as_json=options.json)
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
        # Whoever read our results has gone; so has the place to say so, also for the interpreter's last flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.REFUSED
    except ModuleNotFoundError as e:
        if (e.name or "").startswith("airflow_provider_lakecommit"):
            return _unforeseen(e, output)
        # Left out on purpose where only guards are installed.
        output.error(ModuleNotFoundError(f"{e}: this command needs it, and it is not installed here"))
        return Exit.REFUSED
    except Exception as e:
        return _unforeseen(e, output)


def _unforeseen(error: Exception, output: Output) -> int:
    output.log("".join(traceback.format_exception(error)))
    output.error(error)
    return Exit.REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lakecommit",
        description="Land Kafka topics in Iceberg tables in batch windows, exactly once.",
        epilog="Exit codes: 0 done, 1 refused or failed with a reason, 2 bad usage or spec, 3 needs --yes.",
    )
    parser.add_argument("--version", action="version", version=f"lakecommit {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        if isinstance(command, Command):
            _add(commands, name, command)
        else:
            group = commands.add_parser(name, help="show or set the ledger of the tables")
            actions = group.add_subparsers(metavar="ACTION", required=True)
            for action, each in command.items():
                _add(actions, action, each)
    return parser


def _add(commands: Any, name: str, command: Command) -> None:
    says, spec = command.says, command.spec
    parser = commands.add_parser(name, help=says, description=f"{says[0].upper()}{says[1:]}.")
    parser.set_defaults(run=command.run)
    if spec != "none":
        nargs = {"optional": "?", "many": "+"}.get(spec)
        files = "YAML file: a landing, kafka, catalog, spark" + ("; or a folder of them" if spec == "many" else "")
        parser.add_argument("spec", metavar="SPEC", nargs=nargs, help=files)
    parser.add_argument("--json", action="store_true", help="results, and errors too, as JSON on standard output")
    parser.add_argument("--verbose", action="store_true", help="more of what happens, on standard error")
    command.add_arguments(parser)


if __name__ == "__main__":
    sys.exit(main())
