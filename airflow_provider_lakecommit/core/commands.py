# SPDX-License-Identifier: Apache-2.0
"""How the commands of the command line are spelled: the one place that knows.

Contract: the command line is made of these constants, and errors, remedies, log lines and the page name commands by
them. Renaming a command here renames it everywhere. Tables keep a command as free text (:func:`spoken`) that is only
ever shown, so former spellings stay readable.
"""

from __future__ import annotations

import re

PROGRAM = "lakecommit"
# `land` is for all landings of a set.
_ON_A_LANDING = re.compile("(`" + PROGRAM + r" (?!land )[^`]*?\bSPEC\b)(?! --landing)")

LAND = f"{PROGRAM} land"
PLAN = f"{PROGRAM} plan"
STATUS = f"{PROGRAM} status"
VERIFY = f"{PROGRAM} verify"
HISTORY = f"{PROGRAM} history"
DOCTOR = f"{PROGRAM} doctor"
INFER_SCHEMA = f"{PROGRAM} infer-schema"

BACKFILL = f"{PROGRAM} backfill"
"""Lands a range; with ``--replace`` anew. ``--list`` and ``--close`` are for backfills that are open."""
DEAD_LETTERS = f"{PROGRAM} dead-letters"
RESET_OFFSETS = f"{PROGRAM} reset offsets"
"""Where partitions go on."""
RESET_HARD = f"{PROGRAM} reset hard"
"""All rows of a landing go, and it begins anew."""
RESET_ASSERT = f"{PROGRAM} reset assert"
"""What the tables hold, where their ledger cannot say it."""
RESET_BLOCKED = f"{PROGRAM} reset blocked"
"""How blocked ranges go on."""
RESET_MIGRATE = f"{PROGRAM} reset migrate"
"""Where a landing goes on, on another Kafka cluster."""

PAUSE = f"{PROGRAM} pause"
RESUME = f"{PROGRAM} resume"
PUBLISH_NOW = f"{PROGRAM} publish-now"

CONNECT_RESCUE = f"{PROGRAM} connect rescue"
CONNECT_ADOPT = f"{PROGRAM} connect adopt"
CONNECT_WATCH = f"{PROGRAM} connect watch"

MAINTAIN = f"{PROGRAM} maintain"


def spoken(command: str) -> str:
    """Return a command without the name of the program, as tables keep it."""
    return command.removeprefix(f"{PROGRAM} ")


def for_landing(text: str, name: str) -> str:
    """Return the text of a landing of a set, whose commands say which landing they are about."""
    return _ON_A_LANDING.sub(rf"\1 --landing {name}", text)
