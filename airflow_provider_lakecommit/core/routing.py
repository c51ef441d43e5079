# SPDX-License-Identifier: Apache-2.0
"""Where the records of a landing go: its destinations, and which of them takes a row or a reject.

Contract: pure. Destinations are in order, and the first takes rows: its schema decides what is rejected, and a table
that joins a landing later goes on where the first one's ledger ends. Every part of a batch is routed to each table that
is to have it, once; a reject for which no destination is stated goes nowhere, and blocks its range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

__all__ = ["Destination", "Role", "role_of", "route"]

T = TypeVar("T")


class Role(StrEnum):
    """What a table of a landing is for."""

    ROWS = "rows"
    """The rows that records became."""
    DEAD_LETTERS = "dead_letters"
    """The records that were rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A table of a landing, and what goes there."""

    table: str
    role: Role


def route(destinations: Iterable[Destination], role: Role, batch: T) -> Iterator[tuple[str, T]]:
    """Which table takes what of a batch of rows, or of rejects: each table of that role takes all of it."""
    yield from ((d.table, batch) for d in destinations if d.role is role)


def role_of(destinations: Iterable[Destination], table: str) -> Role:
    """What that table is for; one that the landing does not name, as of a plan under an older spec, takes rejects."""
    return next((d.role for d in destinations if d.table == table), Role.DEAD_LETTERS)
