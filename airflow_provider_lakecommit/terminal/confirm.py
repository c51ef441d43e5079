# SPDX-License-Identifier: Apache-2.0
"""Commands that give something up: who says it, and that they have seen what it comes to.

Contract: :func:`agreed` is only asked where something would be lost. `--yes` agrees; on a terminal the person is asked;
anywhere else nothing is written, and the command ends with :data:`Exit.UNCONFIRMED`.
"""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import Iterable
from datetime import UTC, datetime

from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.terminal.output import Output

__all__ = ["agreed", "asked", "at_a_terminal", "decision_of"]


def decision_of(command: str, landing: str, reason: str) -> Decision:
    """Who runs this command, where and why."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Decision(
        command=command, actor=_actor(), host=socket.gethostname(), at=at, landing=landing, reason=reason.strip()
    )


def agreed(output: Output, lines: Iterable[str], *, yes: bool) -> bool:
    """Show what would be given up; whether the person agrees."""
    for line in lines:
        output.log(line)
    if yes:
        return True
    if not at_a_terminal():
        output.log("nothing is written: there is no terminal to ask at; the same with --yes does it")
        return False
    return asked(output)


def at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def asked(output: Output) -> bool:
    """Ask, and wait for the word *yes*."""
    output.log("do it? type yes:")
    if sys.stdin.readline().strip().lower() == "yes":
        return True
    output.log("nothing is written")
    return False


def _actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
