# SPDX-License-Identifier: Apache-2.0
"""Decide what a cycle plans, from facts read before its START_COMMIT.

The result is a window, or an empty plan that says why. A plan takes only what is missing; a refused one takes nothing
and still tells how much is missing. :func:`~airflow_provider_lakecommit.core.planning.missing.find_missing` is called
before, separately, because callers ask for record sizes only where they matter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from airflow_provider_lakecommit.core.debt import TableDebt
from airflow_provider_lakecommit.core.identity import window_id
from airflow_provider_lakecommit.core.model import Plan, ReadPosition, Slice, TableTarget
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.planning.admission import Admit, Refuse, Terms, admit, only_holes, pressure_of
from airflow_provider_lakecommit.core.planning.missing import (
    Missing,
    RangesByTables,
    Watermark,
    WindowLimits,
    choose,
    explain,
    mean_size,
)
from airflow_provider_lakecommit.core.planning.slicing import cut, window_of
from airflow_provider_lakecommit.core.planning.truncation import known_positions
from airflow_provider_lakecommit.core.refusal import WHY_BLOCKED, RefusalState
from airflow_provider_lakecommit.core.state import LandingState
from airflow_provider_lakecommit.exceptions import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInputs:
    """What a plan depends on besides the landing's state.

    :param source: watermarks of all partitions at ``requested_at``
    :param targets: the tables, with the epochs of their ledgers
    :param limits: with requested sizes; ``record_bytes`` is used where there are none
    :param released: cycles whose claims end with this plan
    :param debts: how much each table needs compaction
    :param diverged: why partitions whose logs differ from the landed records are left out
    """

    landing: str
    lane: str
    spec_version: str
    source: Mapping[SourcePartition, Watermark]
    requested_at: datetime
    now: datetime
    targets: tuple[TableTarget, ...] = ()
    vended: Mapping[str, bool] = field(default_factory=dict)
    limits: WindowLimits = field(default_factory=WindowLimits)
    terms: Terms = field(default_factory=Terms)
    released: Collection[UUID] = ()
    debts: Mapping[str, TableDebt] = field(default_factory=dict)
    diverged: str = ""


def decide_plan(landing_state: LandingState, missing: Missing, given: PlanInputs) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan, and lines that explain it. It reports diverged partitions unless another reason comes first.

    :param missing: of the same state and source, without live claims
    :raises SpecError: a window cannot have even one record
    """
    plan, lines = _decided(landing_state, missing, given)
    if given.diverged and not plan.deferred and plan.refused is not RefusalState.SUSPENDED:
        plan = replace(plan, refused=RefusalState.DIVERGED, reason=given.diverged)
    return plan, lines


def _decided(landing_state: LandingState, missing: Missing, given: PlanInputs) -> tuple[Plan, tuple[str, ...]]:
    holes = only_holes(missing, landing_state)
    record_bytes = mean_size(missing.coverage, given.limits.sizes) or given.limits.record_bytes
    pressure = pressure_of(
        landing_state,
        given.now,
        released=given.released,
        record_bytes=record_bytes,
        holes=len(holes),
        debts=given.debts,
    )
    admitted = admit(pressure, given.terms)
    if isinstance(admitted, Refuse):
        nothing = empty_plan(given.landing, given.lane, given.spec_version, given.requested_at, admitted)
        return replace(nothing, ends=_ends(given), left=len(missing)), ()
    if given.limits.max_bytes and record_bytes > given.limits.max_bytes:
        raise SpecError(
            "LC1336",
            f"landing {given.landing}: window.max_bytes is {given.limits.max_bytes:,}, less than one record "
            f"({record_bytes:,} bytes on average), so that each window would have one record: state more",
        )
    limits = replace(
        given.limits, record_bytes=record_bytes, max_records=_most_records(given.limits, admitted, len(missing))
    )
    wanted = holes if admitted.holes_only else missing
    chosen = choose(wanted, limits)
    plan, cut_off = _window(landing_state, missing, chosen, given, limits, admitted.slices)
    return plan, (*explain(chosen, wanted, given.source, limits), *admitted.notes, *cut_off)


def _window(
    landing_state: LandingState,
    missing: Missing,
    chosen: RangesByTables,
    given: PlanInputs,
    limits: WindowLimits,
    admitted: int | None,
) -> tuple[Plan, tuple[str, ...]]:
    landing, lane, version = given.landing, given.lane, given.spec_version
    window = window_of(chosen, landing_state, landing=landing, lane=lane, spec_version=version)
    slices = cut(chosen, landing_state, limits, window)
    most = min((n for n in (limits.max_slices, admitted) if n is not None), default=len(slices))
    kept = slices[:most]
    plan = Plan(
        landing=landing,
        lane=lane,
        spec_version=version,
        window_id=window,
        slices=kept,
        # An empty plan needs no schemas.
        targets=given.targets if kept else (),
        ends=_ends(given),
        requested_at=given.requested_at,
        left=len(missing) - sum(len(s) for s in kept),
        reason=None if kept else _why_nothing(landing_state, missing.notes),
        vended=given.vended if kept else {},
        positions=_positions(landing_state, kept),
        leader_epochs=_leader_epochs(given, kept),
        generation=max((s.section.generation for s in landing_state.ledgers.values()), default=None),
    )
    cut_off = (f"{len(slices) - most} slices are left: {most} of {len(slices)} are admitted",) if slices[most:] else ()
    return plan, cut_off


def empty_plan(landing: str, lane: str, spec_version: str, requested_at: datetime, why: str | Refuse) -> Plan:
    return Plan(
        landing=landing,
        lane=lane,
        spec_version=spec_version,
        window_id=window_id(landing, lane, spec_version, {}, ()),
        slices=(),
        targets=(),
        ends={},
        requested_at=requested_at,
        reason=str(why),
        refused=why.state if isinstance(why, Refuse) else None,
    )


def abandoned(landing_state: LandingState, dead: Collection[UUID]) -> tuple[UUID, ...]:
    """Return open cycles whose claims end with the next plan: of dead processes, or of epochs that are all over."""
    epochs = {t: ledger.section.epoch for t, ledger in landing_state.ledgers.items()}
    return tuple(
        c.cycle.commit_id
        for c in landing_state.open_cycles()
        if c.cycle.commit_id in dead
        or (epochs and c.plan.epochs and all(epochs.get(t) != e for t, e in c.plan.epochs.items()))
    )


def free_slot(landing_state: LandingState, released: Collection[UUID] = ()) -> int:
    """Return the smallest unused slot; that of a released cycle is free, so that its zombies are fenced."""
    used = {c.cycle.slot for c in landing_state.open_cycles() if not c.released and c.cycle.commit_id not in released}
    return next(n for n in range(len(used) + 1) if n not in used)


def _most_records(limits: WindowLimits, admitted: Admit, missing: int) -> int | None:
    share = None if admitted.share == 1 else max(1, math.ceil(missing * admitted.share))
    return min((n for n in (limits.max_records, admitted.records, share) if n is not None), default=None)


def _positions(landing_state: LandingState, slices: Iterable[Slice]) -> dict[SourcePartition, ReadPosition]:
    """Return the positions at which these slices continue directly."""
    begins = {(s.partition, s.range.start) for one in slices for s in one.spans}
    return {p: at for p, at in known_positions(landing_state) if (p, at.offset) in begins}


def _leader_epochs(given: PlanInputs, slices: Iterable[Slice]) -> dict[SourcePartition, int]:
    """Return the epochs of the leaders that reported the ends."""
    epochs = {p: mark.leader_epoch for p, mark in given.source.items() if mark.leader_epoch is not None}
    return {p: epochs[p] for p in sorted({s.partition for one in slices for s in one.spans} & epochs.keys())}


def _ends(given: PlanInputs) -> dict[SourcePartition, int]:
    return {p: w.stable for p, w in given.source.items()}


def _why_nothing(landing_state: LandingState, notes: Mapping[SourcePartition, str]) -> str:
    if landing_state.blocked:
        return WHY_BLOCKED + "; ".join(map(str, landing_state.blocked))
    if notes:
        return "; ".join(f"{p}: {note}" for p, note in sorted(notes.items()))
    claimed = Coverage.union(c.claim for c in landing_state.open_cycles())
    return f"nothing new; other open cycles claim {claimed}" if claimed else "nothing new"
