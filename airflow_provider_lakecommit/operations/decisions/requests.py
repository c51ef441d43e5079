# SPDX-License-Identifier: Apache-2.0
"""The operations on a landing that a user approves, with their arguments and the checks of a DAG's parsing.

Contract: light, because DAG files import it; :mod:`~airflow_provider_lakecommit.operations.decisions.operation` names
the functions that do the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import (
    DEAD_LETTERS,
    RESET_ASSERT,
    RESET_BLOCKED,
    RESET_HARD,
    RESET_KEY,
    RESET_OFFSETS,
    Budget,
    RangeSet,
    parse_budget,
    spoken,
)
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations.decisions.operation import Operation, not_as_previewed
from airflow_provider_lakecommit.operations.decisions.stated import (
    is_stated,
    parse_offsets,
    parse_partition,
    parse_ranges,
    parse_start,
    texts_of,
)

if TYPE_CHECKING:
    from airflow_provider_lakecommit.landing import Landing

OTHERS = ("ask", "present", "missing")
"""Answers about rows of other landings; by default none, and a table with such rows is refused."""
OF_AUDITS = ("release", "drop")
_HOW = ("raise", "retry", "skip", "skip whole", *OF_AUDITS)
_OFFSETS = "at={!r}: use TOPIC:PARTITION=OFFSET,… for example orders:0=1500, or the same as a JSON object"


@dataclass(frozen=True, kw_only=True)
class ResetOffsets(Operation):
    """Start or restart the ledger of a landing's tables, under a new epoch.

    :param start: where reading continues: `earliest`, `latest`, a time in ISO form, or `topic:0=15,topic:1=9`;
        other partitions are unchanged
    :param partitions: with a time, `earliest` or `latest`: only these, for example `topic:3`; several as a list, or
        with commas
    :param fill: leave skipped offsets to this backfill, for a ``BackfillOperator`` with that ``lane``
    :param delete: go back over landed offsets, and delete their rows in the same snapshot: the tables must have
        metadata columns
    :param fewer: with ``delete``: allow this although other writers have already deleted some of these rows
    :param again: go back over landed offsets; their rows are duplicated
    :param others: if a table's ledger is lost: whether it has rows of other landings, `present` or `missing`
    :param give_up_reported: also reported slices that cannot be published, and that the source has removed
    """

    name: ClassVar[str] = spoken(RESET_OFFSETS)
    start: str
    partitions: str | Sequence[str] | None = None
    fill: str = ""
    again: bool = False
    delete: bool = False
    fewer: bool = False
    others: str = "ask"
    give_up_reported: bool = False

    def check(self, landing: Landing) -> None:
        """Check where reading continues."""
        _check_others(self.others)
        if self.delete and (self.again or self.fill):
            raise SpecError("LC8316", "`delete` deletes the rows: leave out `again` and `fill`")
        if is_stated(self.start):
            parse_start(self.start, "start:")

    def works_in(self) -> str:
        return "decisions.delete_back" if self.delete else "decisions.ledger_init"

    @property
    def only(self) -> set[tuple[str, int]]:
        """Return the chosen partitions; none: all."""
        return {parse_partition(text) for text in texts_of(self.partitions)}


@dataclass(frozen=True, kw_only=True)
class ResetHard(Operation):
    """Delete all rows of a landing, and restart it where its declaration says.

    The tables must have metadata columns, which identify the landing of a row.

    :param fewer: allow this although other writers have already deleted some of these rows
    """

    name: ClassVar[str] = spoken(RESET_HARD)
    home: ClassVar[str] = "decisions.delete_back"
    start: ClassVar[None] = None
    only: ClassVar[tuple[()]] = ()
    fewer: bool = False


@dataclass(frozen=True, kw_only=True)
class ResetBlocked(Operation):
    """Continue with blocked ranges, or with rows that `publish.checks` refuse.

    :param how: `raise`: read them again under ``budget``; `retry`: under the landing's own budget, after records, table
        or spec were fixed; `skip`: continue without their bad records, recorded as skipped; `skip whole`: also without
        the good records of these ranges; `release`: publish all refused rows; `drop`: take them off their branch, and
        read their records again
    :param budget: of `raise`: dead letters that a slice may have, and their share, for example `500` or `500:0.2`
    :param partitions: only these, for example `topic:3`; several as a list, or with commas
    :param ranges: only these offsets, for example `topic:3=15-20`; several likewise
    """

    name: ClassVar[str] = spoken(RESET_BLOCKED)
    how: str
    budget: str | int | None = None
    partitions: str | Sequence[str] | None = None
    ranges: str | Sequence[str] | None = None

    def check(self, landing: Landing) -> None:
        """Check ``how`` and the ranges."""
        if is_stated(self.how, self.budget):
            self.values()
        if is_stated(self.partitions, self.ranges):
            self.chosen()

    def works_in(self) -> str:
        return "decisions.audit_decision" if self.way in OF_AUDITS else "decisions.unblock"

    @property
    def way(self) -> str:
        return " ".join(str(self.how).split()).lower()

    def values(self) -> dict[str, Any]:
        """Return the arguments as they are compared with the preview."""
        if self.way not in _HOW:
            raise SpecError("LC8313", f"how={self.how!r}: use {', '.join(_HOW[:-1])} or {_HOW[-1]}")
        budget = self.raise_to()
        return {"how": self.way, "budget": None if budget is None else [budget.max_records, budget.max_ratio]}

    def check_agreed(self, agreed: Mapping[str, Any]) -> None:
        """Check that the preview was made with these arguments."""
        values = self.values()
        if different := [f"{name} is {value!r}" for name, value in values.items() if agreed.get(name) != value]:
            raise not_as_previewed("; ".join(different))

    def chosen(self) -> tuple[set[tuple[str, int]] | None, dict[tuple[str, int], RangeSet] | None]:
        """Return the chosen partitions and ranges; ``None``: all."""
        partitions, ranges = texts_of(self.partitions), texts_of(self.ranges)
        return {parse_partition(text) for text in partitions} or None, parse_ranges(ranges, "ranges:") or None

    def raise_to(self) -> Budget | None:
        if self.way != "raise":
            return None
        if self.budget is None or not str(self.budget).strip():
            raise SpecError("LC8314", "how='raise' needs a budget, for example 500 or 500:0.2")
        records, ratio = parse_budget(str(self.budget))
        return Budget(max_records=records, max_ratio=ratio)


@dataclass(frozen=True, kw_only=True)
class ResetAssert(Operation):
    """State what the tables hold, if their ledger cannot. Give one of ``snapshot_id``, ``from_log`` and ``at``.

    :param snapshot_id: take the ledger of this snapshot
    :param from_log: take what the control topic reports as published
    :param at: everything below these offsets, for example `topic:0=15,topic:1=9`
    :param tables: only these; by default those whose ledger is not in order
    :param others: if a table's ledger is lost: whether it has rows of other landings, `present` or `missing`
    :param give_up_reported: also reported slices that the source has removed
    """

    name: ClassVar[str] = spoken(RESET_ASSERT)
    home: ClassVar[str] = "decisions.assertion"
    snapshot_id: str | int | None = None
    from_log: bool = False
    at: str | None = None
    tables: str | Sequence[str] | None = None
    others: str = "ask"
    give_up_reported: bool = False

    def check(self, landing: Landing) -> None:
        """Check that exactly one of the three is given, and its value."""
        if (self.snapshot_id is not None) + self.from_log + (self.at is not None) != 1:
            raise SpecError("LC8321", "give one of `snapshot_id`, `from_log` and `at`")
        _check_others(self.others)
        if is_stated(self.snapshot_id, self.at, self.tables):
            self.chosen(landing)

    def chosen(self, landing: Landing) -> tuple[list[str] | None, dict[tuple[str, int], int] | None]:
        """Return the chosen tables, and the stated offsets if given."""
        tables, known = texts_of(self.tables) or None, landing.tables
        if strange := [t for t in tables or () if t not in known]:
            raise SpecError("LC8322", f"tables: {strange[0]!r} is unknown; the landing has {', '.join(known)}")
        if self.snapshot_id is not None and not str(self.snapshot_id).isdecimal():
            raise SpecError("LC8323", f"snapshot_id={self.snapshot_id!r}: use the id (a number) of a snapshot")
        return tables, None if self.at is None else parse_offsets(self.at, _OFFSETS.format(self.at))


@dataclass(frozen=True, kw_only=True)
class ResetKey(Operation):
    """Make the rows of a table unique by the landing's `upsert.key`; without one, append again. More rows to delete
    than were previewed, or another key, is refused.
    """

    name: ClassVar[str] = spoken(RESET_KEY)
    home: ClassVar[str] = "decisions.key_change"


@dataclass(frozen=True, kw_only=True)
class ReplayDeadLetters(Operation):
    """Replay open dead letters, after a fix of the table, the landing, or of the values in the dead-letter table.

    :param kinds: only these, for example `wrong_value` or `wrong_value:id`; several as a list, or with commas
    :param ranges: only these offsets, for example `topic:3=15-20`; several likewise
    :param since: only of records at or after this time, as ISO text
    :param until: only of records before this time
    :param limit: at most this many
    :param table: a former dead-letter table of the landing
    """

    name: ClassVar[str] = spoken(DEAD_LETTERS)
    command: ClassVar[str] = f"{spoken(DEAD_LETTERS)} --replay"
    home: ClassVar[str] = "dead_letters.replay"
    kinds: str | Sequence[str] | None = None
    ranges: str | Sequence[str] | None = None
    since: str | None = None
    until: str | None = None
    limit: int | None = None
    table: str | None = None

    def check(self, landing: Landing) -> None:
        if is_stated(self.ranges):
            parse_ranges(texts_of(self.ranges), "ranges")


def _check_others(others: str) -> None:
    """Check the answer about rows of other landings before it is approved."""
    if others not in OTHERS:
        raise SpecError("LC8324", f"others={others!r}: use {', '.join(OTHERS[:-1])} or {OTHERS[-1]}")
