# SPDX-License-Identifier: Apache-2.0
"""The spelling of every command. The command line, errors, logs and the page use these constants."""

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
DEAD_LETTERS = f"{PROGRAM} dead-letters"
RESET_OFFSETS = f"{PROGRAM} reset offsets"
RESET_HARD = f"{PROGRAM} reset hard"
RESET_ASSERT = f"{PROGRAM} reset assert"
RESET_BLOCKED = f"{PROGRAM} reset blocked"
UNBLOCK = f"{PROGRAM} reset blocked SPEC --retry"
RESET_MIGRATE = f"{PROGRAM} reset migrate"
RESET_KEY = f"{PROGRAM} reset key"

PAUSE = f"{PROGRAM} pause"
RESUME = f"{PROGRAM} resume"
PUBLISH_NOW = f"{PROGRAM} publish-now"

CONNECT_RESCUE = f"{PROGRAM} connect rescue"
CONNECT_ADOPT = f"{PROGRAM} connect adopt"
CONNECT_WATCH = f"{PROGRAM} connect watch"

MAINTAIN = f"{PROGRAM} maintain"


def spoken(command: str) -> str:
    """Return a command without the program's name, as table histories store it."""
    return command.removeprefix(f"{PROGRAM} ")


def for_landing(text: str, name: str) -> str:
    """Add ``--landing NAME`` to the commands in a text about one landing of a set."""
    return _ON_A_LANDING.sub(rf"\1 --landing {name}", text)
