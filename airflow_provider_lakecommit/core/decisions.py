# SPDX-License-Identifier: Apache-2.0
"""A user's decision about a table, kept by the newest snapshots so that it outlives its own."""

from __future__ import annotations

from dataclasses import dataclass

MOST_DECISIONS = 50
MOST_TEXT = 300
"""Characters of a reason, and of what a decision came to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One command. ``at`` is ISO text, ``what`` the ranges that it gave up or went back over."""

    command: str
    actor: str
    host: str
    at: str
    landing: str = ""
    reason: str = ""
    what: str = ""

    @property
    def by(self) -> str:
        """Return the text of a decision that concerns no landing, as a rescue of a connector's files."""
        return f"{self.at} {self.actor} on {self.host}: {self.reason or 'no reason given'}"

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ", no reason given"
        return f"{self.at} {self.actor} on {self.host}, `{self.command}` of landing {self.landing}{why}; {self.what}"


def kept_decisions(before: tuple[Decision, ...], new: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """Return the newest of both, oldest first, without duplicates."""
    return tuple(dict.fromkeys((*before, *new)))[-MOST_DECISIONS:]
