# SPDX-License-Identifier: Apache-2.0
"""What a command shows before it acts, and who has decided.

Contract: :func:`ends_with_preview` is the only place where ``--dry-run`` and ``--yes`` are read. What deletes, skips or
goes backwards ends with :data:`Exit.UNCONFIRMED` unless ``--yes`` is given, on a terminal as in a script.
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

__all__ = ["decision_of", "ends_with_preview", "preview_end"]


def decision_of(command: str, landing: str, reason: str) -> Decision:
    """Who runs this command, where and why."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return Decision(
        command=command, actor=_actor(), host=socket.gethostname(), at=at, landing=landing, reason=reason.strip()
    )


def ends_with_preview(
    options: Namespace,
    output: Output,
    values: Mapping[str, Any],
    lines: Iterable[str] = (),
    *,
    gives_up: bool = True,
) -> int | None:
    """Show what would happen, if the command ends there: its exit code. ``None``: it goes on; what it gives up is
    logged.

    :param gives_up: whether what is asked for deletes, skips or goes backwards
    """
    if getattr(options, "dry_run", False) or (gives_up and not options.yes):
        output.answer({"written": False, **values}, lines)
        return preview_end(options, output)
    for line in lines:
        output.log(line)
    return None


def preview_end(options: Namespace, output: Output) -> int:
    """Log that nothing was done; the exit code."""
    if getattr(options, "dry_run", False):
        output.log("nothing is written")
        return Exit.DONE
    output.log("nothing is written: the same with --yes does it")
    return Exit.UNCONFIRMED


def _actor() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
