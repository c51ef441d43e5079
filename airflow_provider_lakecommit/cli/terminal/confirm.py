# SPDX-License-Identifier: Apache-2.0
"""The preview of a command before it acts, and the decision to act.

:func:`ends_with_preview` is the only reader of ``--dry-run`` and ``--yes``. A command that deletes, skips or goes
backwards ends with :data:`Exit.UNCONFIRMED` without ``--yes``, on a terminal as in a script.
"""

from __future__ import annotations

import getpass
import os
import socket
from argparse import Namespace
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import Decision


def decision_of(command: str, landing: str, reason: str) -> Decision:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Decision(
        command=command, actor=_actor(), host=socket.gethostname(), at=at, landing=landing, reason=reason.strip()
    )


def ends_with_preview(
    options: Namespace, output: Output, values: Mapping[str, Any], lines: Iterable[str] = (), *, gives_up: bool = True
) -> int | None:
    """Show the preview; return the exit code if the command ends there, or ``None`` if it continues.

    :param gives_up: whether the request deletes, skips or goes backwards
    """
    if getattr(options, "dry_run", False) or (gives_up and not options.yes):
        output.answer({"written": False, **values}, lines)
        return preview_end(options, output)
    for line in lines:
        output.log(line)
    return None


def preview_end(options: Namespace, output: Output) -> int:
    """Log that nothing was done; return the exit code."""
    if getattr(options, "dry_run", False):
        output.log("nothing is written")
        return Exit.DONE
    output.log("nothing is written: run it again with --yes")
    return Exit.UNCONFIRMED


def _actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
