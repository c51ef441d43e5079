# SPDX-License-Identifier: Apache-2.0
"""All commands under the headings that `lakecommit --help` shows; a command of two words is an action of a group."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_lakecommit.cli import everyday, ranges, upkeep
from airflow_provider_lakecommit.cli.arguments import Command
from airflow_provider_lakecommit.core import commands as spelled
from airflow_provider_lakecommit.core import spoken

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
    "ranges": {
        spelled.BACKFILL: ranges.BACKFILL,
        spelled.DEAD_LETTERS: ranges.DEAD_LETTERS,
        **ranges.RESET,
    },
    "control": {
        spelled.PAUSE: upkeep.PAUSE,
        spelled.RESUME: upkeep.RESUME,
        spelled.PUBLISH_NOW: upkeep.PUBLISH_NOW,
    },
    "Kafka Connect": {
        spelled.CONNECT_RESCUE: upkeep.RESCUE,
        spelled.CONNECT_ADOPT: upkeep.ADOPT,
        spelled.CONNECT_WATCH: upkeep.WATCH,
    },
    "upkeep": {
        spelled.MAINTAIN: upkeep.MAINTAIN,
    },
}
COMMANDS: Mapping[str, Command] = {spoken(name): c for some in HEADINGS.values() for name, c in some.items()}
"""All commands, by the words after the program's name."""
GROUPS: Mapping[str, str] = {
    "reset": "change where a landing continues, or unblock it",
    "connect": "work with Kafka Connect sinks",
}
"""Help of groups of actions."""
