# SPDX-License-Identifier: Apache-2.0
"""The results that a cycle's steps pass on and show: plain values, small enough for XCom.

Contract: ``to_dict`` gives JSON values and ``from_dict`` reads them back, without file lists or secrets. The control
topic and the tables hold the facts; these values are tickets to find them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.control import time_to_json
from airflow_provider_lakecommit.core import (
    ODD_TIME,
    WARNED_RATIO,
    Counts,
    Coverage,
    CycleState,
    Plan,
    Slice,
    TableDebt,
    partitions_text,
    short_number,
)

SHOWN = 4
"""Most slices in a line."""
NAMED = 20
"""Most fields, or kinds of rejects, in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleTicket:
    """The position of a cycle in the control topic: all that a later task of the same run needs to find and recognize
    it, and the basis of its transactional ids.

    ``plan`` is the digest of the plan that the plan task made, or found and checked against the catalog: only a plan
    with this digest in the log is the cycle's. It is empty in older tickets.
    """

    landing: str
    lane: str
    commit_id: UUID
    slot: int
    partition: int
    read_from: int
    plan: str = ""
    deployment: str = ""

    def to_dict(self) -> dict[str, Any]:
        out = {**asdict(self), "commit_id": str(self.commit_id)}
        return {key: value for key, value in out.items() if value or key not in ("plan", "deployment")}

    @classmethod
    def from_dict(cls, v: Mapping[str, Any]) -> CycleTicket:
        return cls(
            landing=v["landing"],
            lane=v["lane"],
            commit_id=UUID(v["commit_id"]),
            slot=v["slot"],
            partition=v["partition"],
            read_from=v["read_from"],
            plan=v.get("plan", ""),
            deployment=v.get("deployment", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTicket:
    """A partition group's share of a window, for one mapped write task. ``label`` is for display; older tickets have
    none.
    """

    cycle: CycleTicket
    group: int
    slices: int
    records: int
    label: str = ""

    def to_dict(self) -> dict[str, Any]:
        out = {"cycle": self.cycle.to_dict(), "group": self.group, "slices": self.slices, "records": self.records}
        return {**out, "label": self.label} if self.label else out

    @classmethod
    def from_dict(cls, v: Mapping[str, Any]) -> GroupTicket:
        return cls(
            cycle=CycleTicket.from_dict(v["cycle"]),
            group=v["group"],
            slices=v["slices"],
            records=v["records"],
            label=v.get("label", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A cycle that was opened, continued, or (``finished``) found to be over; ``lacking`` then are its slices that are
    not in all tables. ``state`` is the cycle as read for this result.
    """

    ticket: CycleTicket
    plan: Plan
    slices: tuple[Slice, ...]
    explain: tuple[str, ...]
    finished: bool = False
    lacking: tuple[Slice, ...] = ()
    note: str = ""
    state: CycleState | None = None

    def lines(self, number: int) -> Iterator[str]:
        """Return the plan as lines.

        :param number: number of the cycle in its run
        """
        what = f"cycle {number} ({self.ticket.commit_id})"
        if not self.slices:
            yield f"{what}: {self.plan.reason or self.note or 'nothing was granted'}"
            return
        records = sum(len(s) for s in self.slices)
        left = f", {self.plan.left} left for later" if self.plan.left else ""
        note = f"; {self.note}" if self.note else ""
        yield f"{what}: {records} offsets in {len(self.slices)} slices, {len(self.groups)} groups{left}{note}"
        yield from (f"  {line}" for line in self.explain)

    @property
    def groups(self) -> list[GroupTicket]:
        """Return one ticket per partition group that has work."""
        shares: dict[int, list[Slice]] = {}
        for s in self.slices:
            shares.setdefault(s.group, []).append(s)
        return [
            GroupTicket(
                cycle=self.ticket, group=g, slices=len(share), records=sum(len(s) for s in share), label=_label(share)
            )
            for g, share in sorted(shares.items())
        ]


def _label(share: Sequence[Slice]) -> str:
    partitions = partitions_text(span.partition for s in share for span in s.spans)
    return f"{partitions} · {short_number(sum(len(s) for s in share))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """The reported work of a group: safe slices and records, and what will be read again. ``causes`` are why slices
    were not done, from this cycle's reports; ``ended_early`` is why no attempt continues them.
    """

    done: int
    saved_records: int
    left: tuple[Slice, ...] = ()
    blocked: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    ended_early: str = ""

    def __str__(self) -> str:
        text = f"{self.done} slices ({self.saved_records} records) are reported and will not be read again"
        if self.left:
            listed = "; ".join(str(s) for s in self.left[:SHOWN])
            more = f" and {len(self.left) - SHOWN} more slices" if len(self.left) > SHOWN else ""
            text += f"; {sum(len(s) for s in self.left)} offsets will be read again: {listed}{more}"
        return text + "".join(f"; blocked: {b}" for b in self.blocked)

    def to_dict(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "saved_records": self.saved_records,
            "left": [str(s) for s in self.left],
            "blocked": list(self.blocked),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSnapshot:
    """A snapshot that this cycle wrote, or announced for a cycle that died before it could.
    ``debt`` of its table is known in the first case.
    """

    table: str
    snapshot_id: int
    commit_id: UUID
    coverage: Coverage
    rows: int
    files: int
    counts: Counts
    debt: TableDebt | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "snapshot_id": self.snapshot_id,
            "commit_id": str(self.commit_id),
            "offsets": self.coverage.to_dict(),
            "rows": self.rows,
            "files": self.files,
            "counts": self.counts.to_dict(),
            "debt": None if self.debt is None else self.debt.to_dict(),
        }


def merged_snapshots(snapshots: Sequence[PublishedSnapshot]) -> PublishedSnapshot:
    """Return the newest snapshot of a table, with the additions of all."""
    return replace(
        snapshots[-1],
        coverage=Coverage.union(p.coverage for p in snapshots),
        rows=sum(p.rows for p in snapshots),
        files=sum(p.files for p in snapshots),
        counts=sum((p.counts for p in snapshots), Counts()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """How a cycle ended. ``missing`` are its slices that some table lacks and that must be read again; ``waiting``
    names what slices wait for, ``causes`` why slices were not done. ``rejects`` counts rejected records by kind and
    column, ``reject_reason`` is the most frequent reason; ``ignored_fields`` counts records with a field that the table
    lacks, ``counts`` all records of its reports; ``redundant`` counts its reports on slices that another cycle had
    reported before. ``other_tables`` are the data tables except ``table``; ``stopped`` is why no window is planned
    until an operator acts. ``failed`` are the tables that failed, with reasons; the cycle is then incomplete.
    """

    commit_id: UUID
    table: str = ""
    published: tuple[PublishedSnapshot, ...] = ()
    waiting: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    voided: tuple[str, ...] = ()
    left: int = 0
    valid_through: datetime | None = None
    reason: str | None = None
    finished: bool = False
    note: str = ""
    ignored_fields: Mapping[str, int] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    rejects: Mapping[str, int] = field(default_factory=dict)
    reject_reason: str = ""
    causes: tuple[str, ...] = ()
    redundant: int = 0
    other_tables: tuple[str, ...] = ()
    stopped: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)

    def after(self, earlier: Closed) -> Closed:
        """Return the end of this cycle together with what earlier cycles published."""
        known = {p.snapshot_id for p in earlier.published}
        published = (*earlier.published, *(p for p in self.published if p.snapshot_id not in known))
        through = self.valid_through or earlier.valid_through
        return replace(self, table=earlier.table, published=published, valid_through=through, finished=False)

    @property
    def asks_for_compaction(self) -> bool:
        """Return True if it wrote to a table that is due, or left everything, maybe because a table is."""
        due = any(p.debt is not None and p.debt.due for p in self.published)
        return due or (not self.published and self.left > 0)

    @property
    def rows(self) -> int:
        """Return the rows published in the data tables."""
        return sum(p.rows for p in self.published if p.table in (self.table, *self.other_tables))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings on values that are missing in the rows, or probably wrong."""
        c = self.counts
        rejected = "no record gave a row, all were rejected" if self._nothing_landed else "records were rejected"
        if c.rejected and not self._nothing_landed and c.rejected >= WARNED_RATIO * c.records:
            share = c.rejected / c.records
            rejected += f", {share:.1%} of the window (more than `dead_letters.max_ratio` would be blocked)"
        why = f"; most of them: {self.reject_reason}" if self.reject_reason else ""
        odd = {k.removeprefix(ODD_TIME): n for k, n in self.ignored_fields.items() if k.startswith(ODD_TIME)}
        ignored = {k: n for k, n in self.ignored_fields.items() if not k.startswith(ODD_TIME)}
        all_filtered = {"records": c.filtered} if c.filtered and c.filtered == c.records else {}
        return tuple(
            f"{what}: {_counted(found)}{more}"
            for what, found, more in (
                ("fields without a column of exactly that name were left out, in this many records", ignored, ""),
                (
                    "times in January/February 1970, in a coarser unit than `timestamps` states, in this many records",
                    odd,
                    "",
                ),
                (rejected, self.rejects, why),
                ("no record gave a row, all are tombstones (no value) or were left out by SQL", all_filtered, ""),
            )
            if found
        )

    @property
    def _nothing_landed(self) -> bool:
        """Return True if the snapshots report nothing but rejects."""
        counts = [p.counts for p in self.published]
        return not any(c.landed or c.deleted for c in counts) and any(
            c.rejected >= sum(self.rejects.values()) for c in counts
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "commit_id": str(self.commit_id),
            "published": [p.to_dict() for p in self.published],
            "rows": self.rows,
            "waiting": list(self.waiting),
            "missing": list(self.missing),
            "blocked": list(self.blocked),
            "voided": list(self.voided),
            "left": self.left,
            "valid_through": None if self.valid_through is None else time_to_json(self.valid_through),
            "reason": self.reason,
            "finished": self.finished,
            "note": self.note,
            "ignored_fields": dict(self.ignored_fields),
            "rejects": dict(self.rejects),
            "reject_reason": self.reject_reason,
            "causes": list(self.causes),
            "redundant": self.redundant,
            "stopped": self.stopped,
            "failed": dict(self.failed),
        }


def _counted(found: Mapping[str, int]) -> str:
    """Return the most frequent ones."""
    names = sorted(found, key=lambda name: (-found[name], name))
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(f"{name} {found[name]}" for name in names[:NAMED]) + more
