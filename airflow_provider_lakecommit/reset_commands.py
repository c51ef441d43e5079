# SPDX-License-Identifier: Apache-2.0
"""How the commands are spelled by which a person says where a landing goes on: the one place that knows.

Contract: errors, remedies and log lines name a command by its constant here, the command line is made of them, and
tables keep them as what was said. So one that is renamed is renamed everywhere.
"""

from __future__ import annotations

__all__ = ["PROGRAM", "RESET_ATTEST", "RESET_BLOCKED", "RESET_HARD", "RESET_OFFSETS", "spoken"]

PROGRAM = "lakecommit"
RESET_OFFSETS = f"{PROGRAM} reset offsets"
"""Where partitions go on."""
RESET_HARD = f"{PROGRAM} reset hard"
"""All rows of a landing go, and it begins anew."""
RESET_ATTEST = f"{PROGRAM} reset attest"
"""What the tables hold, where their ledger cannot say it."""
RESET_BLOCKED = f"{PROGRAM} reset blocked"
"""How blocked ranges go on."""


def spoken(command: str) -> str:
    """A command without the name of the program, as tables keep it."""
    return command.removeprefix(f"{PROGRAM} ")
